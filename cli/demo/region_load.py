"""Writes and reads rows of a table all the time, and remembers every acknowledged one: nothing may be lost."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from examples.kv.client import Client
from regent_agent.connection import Address

PERIOD_S: Final = 0.3
"""Time between two rows that one worker writes; there is one worker for each region."""
CALL_S_MAX: Final = 60.0
KEYS: Final = 1 << 32
"""Keys are numbers below this one, as eight hexadecimal digits."""


class Wait(NamedTuple):
    """Measures how long calls waited. ``ranges``: those of ``of`` in which a call waited longer than the limit."""

    longest_s: float
    ranges: int
    of: int


class RegionLoad:
    """Runs one worker for each of ``count`` ranges that divide the keys evenly; each reads its last row, too.

    ``acknowledged``: the rows whose put was answered; ``wrong``: what reads returned instead of such a row.
    """

    def __init__(self, daemon: Address, table: str, count: int, value_bytes: int = 0) -> None:
        """``value_bytes``: least length of a row's value."""
        self.client = Client([daemon], timeout_s=CALL_S_MAX)
        self.acknowledged: dict[bytes, bytes] = {}
        self.wrong: list[str] = []
        self.reads = 0
        self._table = table
        self._count = count
        self._value_bytes = value_bytes
        self._longest = [0.0] * count
        self._waits_since: dict[int, float] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Reads and writes inside the block; at the end each worker finishes the row that it has begun."""
        ends = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for worker in range(self._count):
                group.create_task(self._work(worker, ends))
            try:
                yield
            finally:
                ends.set()

    def take(self, bound_s: float) -> Wait:
        """Returns the longest wait since the last call, those that go on included, and the ranges beyond a bound."""
        now_s = time.monotonic()
        longest = [max(self._longest[n], now_s - self._waits_since.get(n, now_s)) for n in range(self._count)]
        self._longest = [0.0] * self._count
        return Wait(max(longest), sum(one > bound_s for one in longest), self._count)

    def flows(self, within_s: float) -> bool:
        """Returns whether no call waits for longer than this."""
        return all(time.monotonic() - since_s < within_s for since_s in self._waits_since.values())

    async def lost(self) -> list[bytes]:
        """Reads the whole table; returns the keys of acknowledged rows that it does not have."""
        rows = {key: found.value async for key, found in self.client.scan(self._table)}
        return [key for key, value in self.acknowledged.items() if rows.get(key) != value]

    async def _work(self, worker: int, ends: asyncio.Event) -> None:
        await asyncio.sleep(random.uniform(0, PERIOD_S))
        first, end = (KEYS * number // self._count for number in (worker, worker + 1))
        for row in range(KEYS):
            if ends.is_set():
                return
            key, value = b"%08x" % random.randrange(first, end), (b"%d" % row).rjust(self._value_bytes)
            began = time.monotonic()
            self._waits_since[worker] = began
            await self.client.put(self._table, key, value)
            self.acknowledged[key] = value
            found = await self.client.get(self._table, key)
            del self._waits_since[worker]
            took_s = time.monotonic() - began
            self._longest[worker] = max(self._longest[worker], took_s)
            self.reads += 1
            if found is None or found.value != value:
                self.wrong.append(f"{key!r}: {found}, {value[-20:]!r} was written")
            await asyncio.sleep(max(0.0, PERIOD_S - took_s))
