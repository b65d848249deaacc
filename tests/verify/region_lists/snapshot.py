"""Clones the latest snapshot of the table at the end, and compares it with what writers were told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from examples.kv.client import Client
from tests.verify.region_lists.nodes import ROW, numbers, read
from tests.verify.region_lists.stage import Stage

COPY: Final = "copy"
MS_US: Final = 1_000


class Cut(NamedTuple):
    """A snapshot: what was acknowledged before it began is in it, and nothing whose write began after its end."""

    name: str
    began_us: int
    ended_us: int


async def latest(stage: Stage, begun: dict[str, int]) -> Cut | None:
    """Returns the latest snapshot that is complete. ``begun``: moments of the requests, by name."""
    items = (await stage.daemon.get("/v1/regions/snapshots"))["items"]
    made = {one["name"]: datetime.fromisoformat(one["made"]).timestamp() for one in items}
    found = [Cut(name, begun[name], int(at_s * 1e6) + MS_US) for name, at_s in made.items() if name in begun]
    return max(found, key=lambda cut: cut.began_us, default=None)


async def copied(stage: Stage, cut: Cut) -> None:
    """Makes a table of a snapshot, and waits until it is open."""
    await stage.daemon.done(f"/v1/regions/tables/{COPY}/clone", {"snapshot": cut.name})
    await stage.all_open(COPY)


async def faults(client: Client, cut: Cut, notes: Iterable[Path]) -> list[str]:
    """Compares the copy with the notes; returns what is wrong, and an empty list where the copy is exact."""
    before: dict[int, bool] = {}
    """Nodes that may be in the copy: whether one has to be."""
    named: defaultdict[int, set[int]] = defaultdict(set)
    for file in notes:
        for batch in read(file):
            if batch.began_us < cut.ended_us:
                for node, value in zip(numbers(batch.keys), numbers(batch.before), strict=True):
                    before[node] = before.get(node, False) or batch.ended_us < cut.began_us
                    named[node].add(value)
    found: list[str] = []
    async for key, row in client.scan(COPY):
        node = int.from_bytes(key, "big")
        value, _, _ = ROW.unpack(row.value)
        if before.pop(node, None) is None:
            found.append(f"node {node:016x} was written after snapshot {cut.name}, or by nobody")
        elif value not in named[node]:
            found.append(f"node {node:016x} of snapshot {cut.name} names {value:016x}, which no writer wrote")
    missing = [node for node, is_due in before.items() if is_due]
    found += [f"node {node:016x} was acknowledged before snapshot {cut.name}, which lacks it" for node in missing]
    return found
