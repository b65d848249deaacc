"""Finds the holder of the role, and the live brokers that know it: take-over and hand-back wait for both."""

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
RESPONSE_S_MAX: Final = 3.0
"""Longest wait for one broker's response: a frozen broker must not hide the responses of the others."""


class RoleHolder(Struct, frozen=True):
    """The holder of the role as ZooKeeper and the live brokers know it.

    ``holder``: the id in ``/controller``, None without one. ``known``: by live broker the controller that its metadata
    names, or why the broker did not answer.
    """

    holder: int | None
    by_daemon: bool
    known: Mapping[int, int | str]

    @property
    def held_by_broker(self) -> bool:
        """Returns whether a live broker holds the role."""
        return self.holder is not None and not self.by_daemon and self.holder in self.known

    @property
    def unaware(self) -> list[str]:
        """Returns the live brokers whose metadata does not name the holder."""
        return [
            f"{broker} ({f'names {known}' if isinstance(known, int) else known})"
            for broker, known in self.known.items()
            if known != self.holder
        ]

    def sentence(self) -> str:
        """Returns a sentence for operators."""
        if self.holder is None:
            return "the role has no holder"
        held = f"{'daemon' if self.by_daemon else 'broker'} {self.holder} holds the role"
        unaware = self.unaware
        return f"{held}; broker {named(unaware)} does not know it" if unaware else f"{held}, every broker knows"


async def look(role: Role, dial: Dial, response_s: float = RESPONSE_S_MAX) -> RoleHolder:
    """Reads ``/controller``, and the metadata of every live broker within ``response_s``."""
    await role.zk.sync()
    holder, _ = await role.controller()
    registered = await read_brokers(role.zk)
    if holder is None:
        return RoleHolder(None, False, dict.fromkeys(registered.brokers, "not queried"))
    known = await query_each(dial, registered.brokers, _controller_of, response_s)
    return RoleHolder(
        holder.broker,
        await role.is_daemon(holder),
        {b: str(found) if isinstance(found, BrokerCallFailed) else found for b, found in known.items()},
    )


async def _controller_of(queries: BrokerQueries, _broker: Broker) -> int:
    return (await queries.metadata(())).controller_id


async def until(
    role: Callable[[], Role | None], dial: Dial, done: Callable[[RoleHolder], bool], within_s: float
) -> tuple[bool, RoleHolder | None]:
    """Looks again until ``done`` or the deadline; returns whether ``done`` was met, and the last holder seen.

    ``role`` returns the present one, None without a session; a lost connection only delays the next look.
    """
    now_s = asyncio.get_running_loop().time
    deadline_s = now_s() + within_s
    seen: RoleHolder | None = None
    while True:
        present = role()
        left_s = max(POLL_S, deadline_s - now_s())
        try:
            async with asyncio.timeout(left_s):
                seen = await look(present, dial, min(RESPONSE_S_MAX, left_s / 2)) if present is not None else seen
        except (NotConnected, TimeoutError):
            pass
        if seen is not None and done(seen):
            return True, seen
        if now_s() >= deadline_s:
            return False, seen
        await asyncio.sleep(POLL_S)
