"""Who holds the role, and which live brokers know it: what take-over and hand-back wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from brokers.client import BrokerCallFailed
from brokers.queries import BrokerQueries, Dial, query_each
from controller.process.wording import named
from controller.role.claim import Role
from metadata_store.errors import NotConnected
from metadata_store.reads import read_brokers
from state_machines.model.types import Broker

POLL_S: Final = 0.2
ANSWER_S_MAX: Final = 3.0
"""How long one look waits for a broker: one that is frozen must not hide what the others say."""


class RoleHolder(Struct, frozen=True):
    """Who holds the role, and who knows it.

    ``holder``: the id in ``/controller``, None where there is none. ``told``: by live broker the controller that its
    metadata names, or why it did not answer.
    """

    holder: int | None
    by_daemon: bool
    told: Mapping[int, int | str]

    @property
    def held_by_broker(self) -> bool:
        """Whether a live broker holds the role."""
        return self.holder is not None and not self.by_daemon and self.holder in self.told

    @property
    def unaware(self) -> list[str]:
        """Live brokers whose metadata names somebody else than the holder."""
        return [
            f"{broker} ({f'names {said}' if isinstance(said, int) else said})"
            for broker, said in self.told.items()
            if said != self.holder
        ]

    def sentence(self) -> str:
        """For people."""
        if self.holder is None:
            return "nobody holds the role"
        who = f"{'daemon' if self.by_daemon else 'broker'} {self.holder} holds the role"
        return f"{who}; broker {named(self.unaware)} does not know it" if self.unaware else f"{who}, every broker knows"


async def look(role: Role, dial: Dial, answer_s: float = ANSWER_S_MAX) -> RoleHolder:
    """Reads ``/controller`` and asks every live broker, each for ``answer_s`` at the most."""
    await role.zk.sync()
    holder, _ = await role.controller()
    registered = await read_brokers(role.zk)
    if holder is None:
        return RoleHolder(None, False, dict.fromkeys(registered.brokers, "not asked"))
    told = await query_each(dial, registered.brokers, _controller_of, answer_s)
    return RoleHolder(
        holder.broker,
        await role.is_daemon(holder),
        {b: str(said) if isinstance(said, BrokerCallFailed) else said for b, said in told.items()},
    )


async def _controller_of(queries: BrokerQueries, _broker: Broker) -> int:
    return (await queries.metadata(())).controller_id


async def until(
    role: Callable[[], Role | None], dial: Dial, done: Callable[[RoleHolder], bool], within_s: float
) -> tuple[bool, RoleHolder | None]:
    """Looks again and again until ``done``; returns whether it came about, and what was seen last.

    ``role`` gives the present one, None while there is no session; a lost connection is waited out.
    """
    now_s = asyncio.get_running_loop().time
    deadline_s = now_s() + within_s
    seen: RoleHolder | None = None
    while True:
        present = role()
        left_s = max(POLL_S, deadline_s - now_s())
        try:
            async with asyncio.timeout(left_s):
                seen = await look(present, dial, min(ANSWER_S_MAX, left_s / 2)) if present is not None else seen
        except (NotConnected, TimeoutError):
            pass
        if seen is not None and done(seen):
            return True, seen
        if now_s() >= deadline_s:
            return False, seen
        await asyncio.sleep(POLL_S)
