"""Measures plans of the stochastic balancer (B1): random steps alone, the greedy pass before them, and HBase's.

Besides, the lag of the daemon's loop while it takes a snapshot and a child makes the plan.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.arena import say
from benchmarks.regions import hbase
from benchmarks.regions.plan import ROUNDS, Shape, disk, goal, lag, row
from benchmarks.regions.world import Lag
from benchmarks.results import Row, Sample
from controller.regions.loads import RegionLoads
from controller.regions.planner import Planner
from controller.regions.server_lists import Claimants
from regent_agent.protocol import LOADS_MAX, RegionLoad
from state_machines.regions.balancing.cluster import Cluster
from state_machines.regions.balancing.costs import Frame, framed, judged, total
from state_machines.regions.balancing.greedy import spread
from state_machines.regions.balancing.placing import Placing
from state_machines.regions.balancing.steps import walk
from state_machines.regions.balancing.stochastic import Stochastic
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.model import Regions
from state_machines.regions.placement import Cooldown
from state_machines.regions.states import RegionState, ServerState, TableKind, TableState

TABLES: Final = 50
SKEW: Final = 3.3
"""The first server, and the first table, have that many times as many regions as they would have."""
TAIL: Final = 1.5
"""Exponent of the loads: a few regions have most."""
RANDOM_STEPS: Final = 1_000_000
STEPS: Final = 50_000
TIMEOUT_MS: Final = 600_000
MB: Final = 1 << 20


class Searched(NamedTuple):
    """A search: what its placement costs, and the seconds of CPU that it took."""

    cost: float
    cpu_s: float
    moved: int


def skewed(shape: Shape, tables: int = TABLES) -> Cluster:
    """Returns regions of which the first servers, and the first tables, have most; loads are whole megabytes."""
    draw = random.Random(1)

    def one_of(count: int) -> int:
        return min(count - 1, int(draw.expovariate(SKEW / count)))

    def loads(least: int, each: int = 1) -> list[int]:
        return [int(draw.paretovariate(TAIL) * least) * each for _ in range(shape.regions)]

    return Cluster(
        array("q", range(1, shape.regions + 1)),
        array("q", [one_of(shape.servers) for _ in range(shape.regions)]),
        array("q", [one_of(tables) for _ in range(shape.regions)]),
        bytearray(shape.regions),
        array("d", loads(100)),
        array("d", loads(30)),
        array("q", loads(256, MB)),
        array("q", loads(3)),
        tuple(f"s{at}" for at in range(shape.servers)),
        bytes([1]) * shape.servers,
        (1.0,) * shape.servers,
        tuple(f"t{at}" for at in range(tables)),
    )


def searched(cluster: Cluster, frame: Frame, search: Callable[[Placing], object]) -> Searched:
    """Lets a search change the placement; the time has all but the judge's."""
    began_s = time.process_time()
    placing = Placing(cluster, frame, frame.home)
    search(placing)
    cpu_s = time.process_time() - began_s
    return result(cluster, frame, placing.where, cpu_s)


def result(cluster: Cluster, frame: Frame, where: Sequence[int], cpu_s: float) -> Searched:
    """Judges a placement."""
    moved = sum(at != home for at, home in zip(where, frame.home, strict=True))
    return Searched(total(judged(cluster, frame, where)), cpu_s, moved)


async def balanced(shape: Shape, rounds: int = ROUNDS, *, peer: bool) -> list[Row]:
    """B1: the searches take turns; their placements are judged by the same costs."""
    cluster = skewed(shape)
    frame = framed(cluster)
    ours, plain = list[Searched](), list[Searched]()
    for seed in range(rounds):
        ours.append(searched(cluster, frame, partial(_greedy, seed=seed)))
        plain.append(searched(cluster, frame, partial(walk, steps=RANDOM_STEPS, seed=seed)))
        for what, found in (("greedy", ours[-1]), ("random", plain[-1])):
            say(f"B1 {shape}: {what}: cost {found.cost:.2f}, {found.cpu_s:.2f} s of CPU, {found.moved:,} moves")
    theirs = await _theirs(cluster, frame, shape) if peer else None
    before = total(judged(cluster, frame, frame.home))
    lags = [await _lag_ms(cluster) for _ in range(rounds)]
    return [*rows(shape, before, ours, plain, theirs), lag("B1", shape, lags)]


def _greedy(placing: Placing, seed: int) -> None:
    spread(placing)
    walk(placing, STEPS, seed)


async def _lag_ms(cluster: Cluster) -> float:
    """Returns the longest stall of a loop that takes a snapshot of a model, and waits for the plan of a child."""
    clock = asyncio.get_running_loop().time
    model = modelled(cluster, int(clock() * 1000))
    loads = RegionLoads(model, clock)
    for server in model.servers.values():
        ids = list(server.regions)
        for at in range(0, len(ids), LOADS_MAX):
            loads.take(server, [RegionLoad(one, one, one, one * MB, 3) for one in ids[at : at + LOADS_MAX]])
    parts = Claimants(), Cooldown(0), lambda: int(clock() * 1000), lambda: 1
    planner = Planner(model, loads, *parts, Stochastic(), TIMEOUT_MS, 0.2)
    found = Lag()
    watch = asyncio.ensure_future(found.watch())
    await found.settle()
    made = await planner.make()
    await asyncio.sleep(2 * Lag.EVERY_S)
    watch.cancel()
    longest_ms = found.take_ms()
    say(f"B1: {len(made.plan.moves):,} moves of a child, lag {longest_ms:.0f} ms")
    return longest_ms


def modelled(cluster: Cluster, now_ms: int) -> Regions:
    """Returns a daemon's model of the same regions, all of them open."""
    model = Regions()
    servers = [Server(name, 1, f"{name}:1", "", ServerState.ONLINE, {}, here=True) for name in cluster.servers]
    model.servers = {one.key: one for one in servers}
    tables = [Table(name, TableKind.USER, TableState.ENABLED, {}, []) for name in cluster.tables]
    regions: list[list[Region]] = [[] for _ in tables]
    for id_, table in zip(cluster.ids, cluster.table, strict=True):
        regions[table].append(Region(id_, tables[table], b"%09d" % id_, b"%09d" % (id_ + 1), RegionState.OFFLINE))
    for one, some in zip(tables, regions, strict=True):
        model.add_table(one)
        model.add_regions(one, some)
    for id_, at in zip(cluster.ids, cluster.server, strict=True):
        for state in (RegionState.OPENING, RegionState.OPEN):
            model.move(model.regions[id_], state, servers[at], now_ms)
    return model


def rows(
    shape: Shape, before: float, ours: list[Searched], plain: list[Searched], theirs: Searched | None
) -> list[Row]:
    """Returns the rows of B1. ``before``: the cost of the first placement; ``theirs``: HBase's plan."""
    what = f"CPU of a plan, greedy and {STEPS:,} steps, beside {RANDOM_STEPS:,} random steps"
    random_ = f"{RANDOM_STEPS:,} random steps"
    cpu = row("B1", shape, what, "s", [one.cpu_s for one in ours])
    cpu.peer, cpu.peer_is = Sample.of([one.cpu_s for one in plain]), random_
    what = f"cost after the plan, of {before:.1f} before"
    cost = row("B1 cost", shape, what, "cost", [one.cost for one in ours])
    cost.goal = goal("B1 cost", shape)
    cost.peer, cost.peer_is = Sample.of([one.cost for one in plain]), random_
    made = [cpu, cost]
    if theirs is not None:
        what = "cost after the plan, beside that of HBase's balancer"
        beside = row("B1 HBase", shape, what, "cost", [one.cost for one in ours])
        beside.peer, beside.peer_is = Sample.of([theirs.cost]), hbase.NEW.name
        made.append(beside)
    contestants = [("regent", ours), (random_, plain), *([(hbase.NEW.name, [theirs])] if theirs else [])]
    cost.phases = {
        name: {"moves": float(found[-1].moved), "ms of CPU": 1000 * found[-1].cpu_s} for name, found in contestants
    }
    return made


async def _theirs(cluster: Cluster, frame: Frame, shape: Shape) -> Searched:
    """Has HBase's balancer make a plan of the same regions, with its own limits; judges it."""
    with tempfile.TemporaryDirectory(prefix="regions-", dir=disk().absolute()) as name:
        folder = Path(name)
        given, plan = folder / "regions.txt", folder / "plan.txt"
        columns = zip(
            *(cluster.ids, cluster.server, cluster.table, cluster.reads, cluster.writes),
            *([one // MB for one in cluster.size_bytes], cluster.files),
            strict=True,
        )
        given.write_text("".join(f"{' '.join(str(int(one)) for one in some)}\n" for some in columns), encoding="utf-8")
        async with hbase.running(hbase.BALANCING, folder / "peer", given, shape.servers, plan) as beside:
            await beside.play(shape.regions)  # warm-up, for its compiler
            said = await beside.play(shape.regions)
        where = frame.home[:]
        for line in plan.read_text(encoding="utf-8").splitlines():
            region, to = map(int, line.split())
            where[region - 1] = to
    found = result(cluster, frame, where, said["cpuS"])
    say(f"B1 {shape}: HBase cost {found.cost:.2f} in {said['s']:.1f} s, {said['moves']:,} moves")
    return found
