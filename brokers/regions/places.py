"""Gives places to large requests: one of each address at a time, and a few of all, in the order of their arrival."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

PLACES_MAX: Final = 4
"""Large requests that are decoded or carried out at a time."""


class Places:
    """Holds the places. An address with many large requests waits for itself, others wait for one of them at most."""

    def __init__(self, places_max: int = PLACES_MAX) -> None:
        self._all = asyncio.Semaphore(places_max)
        self._addresses: dict[str, tuple[asyncio.Lock, int]] = {}
        self.taken = 0
        """Places that are taken."""

    @asynccontextmanager
    async def place(self, address: str) -> AsyncIterator[None]:
        """Waits for a place, and has it inside the block."""
        async with self._turn(address), self._all:
            self.taken += 1
            try:
                yield
            finally:
                self.taken -= 1

    @asynccontextmanager
    async def _turn(self, address: str) -> AsyncIterator[None]:
        lock, users = self._addresses.get(address) or (asyncio.Lock(), 0)
        self._addresses[address] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._addresses[address]
            if users > 1:
                self._addresses[address] = lock, users - 1
            else:
                del self._addresses[address]
