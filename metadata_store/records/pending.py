"""Writes of a ZooKeeper store that wait for a multi, and the domain's own rows in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from metadata_store.port import Op
from state_machines.procedures.record import Record


class Rows(Protocol):
    """Further znodes of a domain, which are written in the multis of its records."""

    def weigh(self, rows: Sequence[object]) -> int:
        """Returns how many bytes rows add to a multi, at most."""
        ...

    async def prepare(self) -> None:
        """Learns what there is before the first write; raises ``NotConnected``."""
        ...

    def ops(self, rows: Iterable[object]) -> list[Op]:
        """Returns the operations that write rows, for one multi."""
        ...

    def written(self, rows: Iterable[object]) -> None:
        """Notes that :meth:`ops` were applied."""
        ...

    async def find_out(self, rows: Iterable[object]) -> None:
        """Finds out whether :meth:`ops` were applied, after a write whose outcome is unknown."""
        ...


class Pending(NamedTuple):
    """A write that waits for those before it."""

    puts: tuple[Record, ...]
    deletes: tuple[int, ...]
    rows: tuple[object, ...]
    future: asyncio.Future[None]


def settle(one: Pending, error: BaseException | None) -> None:
    """Ends the wait of a write's caller, unless the caller has gone."""
    if one.future.done():
        return
    if error is None:
        one.future.set_result(None)
    elif isinstance(error, Exception):
        one.future.set_exception(error)
    else:
        one.future.cancel()
