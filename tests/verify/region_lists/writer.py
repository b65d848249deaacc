"""Writes linked lists in waves, as a process of its own: each node names one of the wave before.

The last wave of a list is followed by its first one again, whose nodes then name those of the last wave. So each node
is named once, and a lost write is a hole.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from examples.kv.client import Client, Failed, first_of
from examples.kv.options import add_daemons
from examples.kv.protocol import PutMany, Request, Response, Written
from regent_agent.protocol import Route
from tests.verify.region_lists.nodes import (
    REGIONS,
    ROW,
    TABLE,
    WAVES,
    Batch,
    Plan,
    encode,
    first_of_place,
    key_of,
    packed,
    place_of,
    wall_us,
)

SIDE_BY_SIDE_MAX: Final = 24
"""Batches that wait for their response."""
CALL_S_MAX: Final = 60.0
"""Longest time of one call; the batch is then tried anew."""

logger = logging.getLogger("writer")


class Writer:
    """Writes the lists of one writer, and notes each batch that was acknowledged."""

    def __init__(self, number: int, client: Client, plan: Plan, notes: Path, seed: int) -> None:
        self._number = number
        self._client = client
        self._plan = plan
        self._rate = plan.rate / plan.writers
        self._notes = notes.open("wb", buffering=0)
        self._chance = random.Random(f"{seed} {number}")
        self._places = asyncio.Semaphore(SIDE_BY_SIDE_MAX)
        self._sent = 0
        self._began = time.monotonic()

    async def write(self) -> None:
        """Looks up all regions, and then writes all lists."""
        for place in range(REGIONS):
            await self._client.get(TABLE, key_of(first_of_place(place)))
        for _ in range(self._plan.lists):
            first = before = [0] * self._plan.width
            for wave in range(WAVES):
                nodes = [self._chance.getrandbits(64) for _ in range(self._plan.width)]
                await self._write_wave(nodes, before)
                first = first if wave else nodes
                before = nodes
            await self._write_wave(first, [*before[1:], before[0]])
        self._notes.close()

    async def _write_wave(self, nodes: Sequence[int], before: Sequence[int]) -> None:
        batches: list[tuple[list[int], list[int]]] = [([], []) for _ in range(REGIONS)]
        for node, named in zip(nodes, before, strict=True):
            own, others = batches[place_of(node)]
            own.append(node)
            others.append(named)
        self._chance.shuffle(batches)
        async with asyncio.TaskGroup() as group:
            for own, others in batches:
                if not own:
                    continue
                await self._places.acquire()
                await self._keep_rate(len(own))
                group.create_task(self._write_batch(own, others)).add_done_callback(lambda _: self._places.release())

    async def _keep_rate(self, count: int) -> None:
        due_s = self._began + self._sent / self._rate
        self._sent += count
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def _write_batch(self, nodes: list[int], before: list[int]) -> None:
        """Writes nodes of one place; where several regions have them, one after the other."""
        left, repeated = sorted(zip(nodes, before, strict=True)), False
        while left:
            written, repeated = await self._write_some(left, repeated)
            del left[:written]

    async def _write_some(self, left: list[tuple[int, int]], repeated: bool) -> tuple[int, bool]:
        """Writes the first nodes, as many as one region has; returns how many, and whether attempts were repeated."""
        began_us = wall_us()
        sent, entries = Route(0, TABLE, b"", b""), list[tuple[bytes, bytes]]()

        def request(route: Route) -> Request:
            nonlocal sent, entries
            rows = [(key_of(node), ROW.pack(named, route.token, self._number)) for node, named in left]
            sent, entries = route, first_of(rows, route.end)
            return PutMany(route.region, route.token, entries)

        response: Response | None = None
        while response is None:
            try:
                response, again = await self._client.call(TABLE, key_of(left[0][0]), request)
                repeated |= again
            except Failed as error:
                repeated = True
                logger.warning("batch is tried again: %s", error)
        assert isinstance(response, Written), response
        about = sent.region, sent.token, response.version, repeated, began_us, wall_us()
        nodes, before = zip(*left[: len(entries)], strict=True)
        self._notes.write(encode(Batch(*about, packed(nodes), packed(before))))
        return len(entries), repeated


def main() -> None:
    """Writes with the options of the command line."""
    parser = argparse.ArgumentParser()
    add_daemons(parser)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--writers", type=int, required=True)
    parser.add_argument("--notes", type=Path, required=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    asyncio.run(_write(parser.parse_args()))


async def _write(options: argparse.Namespace) -> None:
    client = Client(options.daemons, timeout_s=CALL_S_MAX)
    plan = Plan(options.nodes, options.rate, options.writers)
    try:
        await Writer(options.number, client, plan, options.notes, options.seed).write()
    finally:
        await client.close()


if __name__ == "__main__":
    main()
