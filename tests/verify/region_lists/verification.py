"""Compares all rows of the table with what writers were told."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from examples.kv.client import Client
from examples.kv.protocol import Found
from tests.verify.region_lists.breakdown import Wait
from tests.verify.region_lists.nodes import REGIONS, ROW, TABLE, Batch, numbers, place_of, read

SHOWN: Final = 20
"""Faults of each sort that are kept."""


class Told(NamedTuple):
    """What the writer of a node knows. ``repeated``: the write may have been carried out more than once."""

    before: int
    token: int
    version: int
    repeated: bool


class Verification:
    """Counts what was found. ``faults`` and ``shown``: by sort, how many, and the first ones."""

    def __init__(self, notes: Iterable[Path]) -> None:
        self.nodes = self.repeated = 0
        self.longest: dict[int, Wait] = {}
        """Longest wait for the response of a batch, by place."""
        self.faults: dict[str, int] = defaultdict(int)
        self.shown: list[str] = []
        self._batches: list[list[Batch]] = [[] for _ in range(REGIONS)]
        self._found = array("Q")
        self._named = array("Q")
        for file in notes:
            for batch in read(file):
                place = place_of(numbers(batch.keys[:8])[0])
                self._batches[place].append(batch)
                wait = Wait(batch.region, batch.keys[:8], batch.began_us, batch.ended_us)
                self.longest[place] = max(self.longest.get(place, wait), wait, key=lambda one: one.seconds)
                self.repeated += batch.repeated

    async def run(self, client: Client) -> None:
        """Reads the whole table, and then looks for holes: nodes that are named and do not exist."""
        place, told = -1, dict[int, Told]()
        async for key, row in client.scan(TABLE):
            node = int.from_bytes(key, "big")
            while place < place_of(node):
                self._lost(told)
                place += 1
                told = self._told(place)
            self._compare(node, row, told.pop(node, None))
        while place < REGIONS - 1:
            self._lost(told)
            place += 1
            told = self._told(place)
        self._lost(told)
        self._look_for_holes()

    def _told(self, place: int) -> dict[int, Told]:
        """Returns the last acknowledged write of each node of a region."""
        told: dict[int, Told] = {}
        for batch in self._batches[place]:
            keys = numbers(batch.keys)
            first = batch.version - len(keys) + 1
            for version, (node, before) in enumerate(zip(keys, numbers(batch.before), strict=True), first):
                told[node] = Told(before, batch.token, version, batch.repeated)
        self._batches[place].clear()
        self.nodes += len(told)
        return told

    def _compare(self, node: int, row: Found, told: Told | None) -> None:
        before, token, _ = ROW.unpack(row.value)
        self._found.append(node)
        self._named.append(before)
        if told is None:
            fault = "not written by anyone"
        elif before != told.before:
            fault = "another value"
        elif token != told.token:
            fault = "another token"
        elif row.version != told.version and not (told.repeated and row.version > told.version):
            fault = "another version"
        else:
            return
        about = f"node {node:016x} names {before:016x}, token {token}, version {row.version}; its writer: {told}"
        self._fault(fault, about)

    def _lost(self, told: dict[int, Told]) -> None:
        for node, last in told.items():
            self._fault("lost", f"node {node:016x}: {last}")

    def _look_for_holes(self) -> None:
        """Compares sorted numbers: each list is closed, so each node is named once, and names one that exists."""
        found, named = sorted(self._found), sorted(self._named)
        if found == named:
            return
        for node in sorted(set(named) - set(found)):
            self._fault("hole", f"node {node:016x} is named, and does not exist")
        for node in sorted(set(found) - set(named)):
            self._fault("not named", f"node {node:016x} exists, and no node names it")

    def _fault(self, sort: str, text: str) -> None:
        self.faults[sort] += 1
        if self.faults[sort] <= SHOWN:
            self.shown.append(f"{sort}: {text}")
