"""Measures answers by znodes of regions in transition (A1z), beside answers by polls on the same store, and HBase."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.arena import say
from benchmarks.procedures.rows import paired
from benchmarks.regions import hbase, real
from benchmarks.regions.assigning import Times
from benchmarks.regions.plan import ROUNDS, Shape, disk, lag
from benchmarks.regions.world import TABLE, Child, until
from benchmarks.regions.zookeeper_world import Store, store
from benchmarks.results import Goal, Row
from controller.regions.procedures.messages import TableTask

SHAPE: Final = Shape(10_000, 10)
POLLS: Final = "answers by polls"


class Changed(NamedTuple):
    """A change of the table: its time, what it wrote until nothing was in transition, and the costs of the daemon."""

    took_s: float
    znodes: int
    transactions: int
    cpu_s: float
    lag_ms: float


async def answered_by_znodes(shape: Shape = SHAPE, rounds: int = ROUNDS) -> list[Row]:
    """A1z: a table is created, disabled and enabled, with answers by znodes and by polls in turn."""
    played: dict[bool, list[dict[str, Changed]]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="regions-", dir=disk()) as name:
        async with store(Path(name) / "zookeeper") as found:
            for number in range(rounds):
                for noded in (True, False):
                    played[noded].append(await _round(found, Path(name) / f"{number}-{noded}", shape, noded=noded))
    return rows(shape, played[True], played[False])


async def beside_hbase(clusters: real.Clusters, shape: Shape = real.SHAPE, rounds: int = ROUNDS) -> list[Row]:
    """A1z 1.7: a smaller table on real servers, beside clusters of HBase that assign by ZooKeeper, and that do not."""
    with tempfile.TemporaryDirectory(prefix="regions-", dir=disk()) as name:
        ours = await _by_real_servers(Path(name), shape, rounds)
    made: list[Row] = []
    for rival in (one for one in real.RIVALS if one.version is hbase.OLD):
        what = "regions by real servers and znodes"
        made += real.rows("A1z", what, shape, ours, rival, await clusters.rates(rival))
    return made


async def _by_real_servers(folder: Path, shape: Shape, rounds: int) -> real.Rates:
    async with store(folder / "zookeeper") as found, AsyncExitStack() as stack:
        chroot = await found.chroot()
        running = found.daemon(folder / "daemon", chroot, noded=True, servers_min=shape.servers, fence="log")
        daemon = await stack.enter_async_context(running)
        options = "--transport", "zookeeper", "--zookeeper", found.address(chroot)
        for number in range(shape.servers):
            server = real.kv_server(f"kv-{number}", folder / "data", daemon.port, *options)
            await stack.enter_async_context(server)
        await daemon.until(shape.servers)
        return await real.rates_of("A1z regent", daemon, shape, rounds)


async def _round(found: Store, folder: Path, shape: Shape, *, noded: bool) -> dict[str, Changed]:
    chroot = await found.chroot()
    made: dict[str, Changed] = {}
    async with (
        found.daemon(folder, chroot, noded=noded, servers_min=shape.servers) as daemon,
        found.servers(daemon.port, shape.servers, chroot, noded=noded) as servers,
    ):
        await daemon.until(shape.servers)
        times = Times(daemon)
        before = await _spent(found, servers)
        for change in real.CHANGES:
            task = TableTask(TABLE, uniform=shape.regions if change == "create" else 0)
            played = await times.change(f"{change}_table", task)
            after = await _spent(found, servers)
            made[change] = Changed(
                played.took_s, after.znodes - before.znodes, after.transactions - before.transactions, *played[1:]
            )
            before = after
    rates = ", ".join(f"{change} {shape.regions / one.took_s:,.0f}/s" for change, one in made.items())
    say(f"A1z {shape} {'znodes' if noded else 'polls'}: {rates}")
    return made


class _Spent(NamedTuple):
    znodes: int
    transactions: int


async def _spent(found: Store, servers: Child) -> _Spent:
    """Returns the count of writes once no znode of a region is left: the last ones go after the end of a change."""
    await until(lambda: not found.nodes())
    servers.tell(0)
    return _Spent(found.written.count + int(await servers.said()), await found.transactions())


def rows(shape: Shape, noded: list[dict[str, Changed]], polled: list[dict[str, Changed]]) -> list[Row]:
    """Returns the rows of changes: rates, and znodes that ZooKeeper wrote for a region."""
    made: list[Row] = []
    per = 1_000 / shape.regions
    for change in real.CHANGES:
        ours, theirs = ([one[change] for one in played] for played in (noded, polled))
        rate = paired(
            f"A1z {change}",
            str(shape),
            f"regions with answers by znodes: {change}",
            "per second",
            [shape.regions / one.took_s for one in ours],
            [shape.regions / one.took_s for one in theirs],
            goal=Goal(),
            peer_is=POLLS,
            higher_is_better=True,
        )
        rate.phases = {
            name: {
                "ZooKeeper transactions for 1,000 regions": _median(one.transactions for one in played) * per,
                "us of CPU of the daemon for a region": _median(one.cpu_s for one in played) * per * 1e3,
            }
            for name, played in (("znodes", ours), ("polls", theirs))
        }
        writes = paired(
            f"A1z {change} writes",
            str(shape),
            f"znodes written for a region: {change}",
            "znodes",
            [one.znodes / shape.regions for one in ours],
            [one.znodes / shape.regions for one in theirs],
            goal=Goal(),
            peer_is=POLLS,
        )
        made += [rate, writes, lag(f"A1z {change}", shape, [one.lag_ms for one in ours])]
    return made


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)
