"""Plans of balances are made by a child process, which has bounds, and whose failures have names.

What it is given are loads as they can be, whatever servers have said.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from array import array
from collections import Counter
from typing import Any

import pytest

from controller.regions import child_balancer
from controller.regions.child_balancer import ChildBalancer, NoPlan
from controller.regions.loads import Load, RegionLoads
from controller.regions.plan_child import answer_of, request
from controller.regions.planner import Planner
from controller.regions.server_lists import Claimants
from regent_agent.protocol import RegionLoad
from state_machines.regions.balancing.cluster import BYTES_MAX, FILES_MAX, REQUESTS_MAX, Cluster
from state_machines.regions.balancing.simple import Simple
from state_machines.regions.balancing.stochastic import Stochastic
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.model import Regions
from state_machines.regions.placement import Cooldown
from state_machines.regions.states import RegionState, ServerState, TableKind, TableState
from tests.kit.deadlines import eventually

PATIENCE_MS = 100_000


def crowded(regions: int) -> Cluster:
    """Returns a cluster whose first server has all regions."""
    draw, none = random.Random(1), array("q", bytes(8 * regions))
    rates = array("d", [draw.random() for _ in range(regions)])
    return Cluster(
        *(array("q", range(1, regions + 1)), none[:], none[:], bytearray(regions)),
        *(rates, rates[:], array("q", [int(one * 1e9) for one in rates]), none[:]),
        servers=("a", "b", "c"),
        targets=b"\1\1\1",
        weights=(1.0, 2.0, 1.0),
        tables=("t",),
    )


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Returns the children that are started."""
    found: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def noted(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        found.append(real(*arguments, **named))
        return found[-1]

    monkeypatch.setattr("controller.process.children.subprocess.Popen", noted)
    return found


async def test_a_child_makes_the_plan_that_the_balancer_makes(children: list[subprocess.Popen[bytes]]) -> None:
    found, balancer = crowded(60), Stochastic(steps_max=1_000, moves_max=30)
    plan = await ChildBalancer(balancer, PATIENCE_MS).plan(found, 5)
    assert plan == balancer.plan(found, 5)
    assert len(plan.moves) == 30
    assert [one.poll() for one in children] == [0]


async def test_a_child_that_takes_too_long_is_killed(
    children: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_balancer, "COMMAND", ("sleep", "600"))
    with pytest.raises(NoPlan, match=r"within 0.2 s, and its process was killed: raise regions.balancer_timeout_ms"):
        await ChildBalancer(Stochastic(), 200).plan(crowded(3), 1)
    assert [one.poll() for one in children] == [-9]


async def test_a_plan_that_nobody_waits_for_leaves_no_child(
    children: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_balancer, "COMMAND", ("sleep", "600"))
    plan = asyncio.ensure_future(ChildBalancer(Stochastic(), PATIENCE_MS).plan(crowded(3), 1))
    await eventually(lambda: children, 30)
    plan.cancel()
    await asyncio.wait({plan})
    assert plan.cancelled()
    assert children[0].wait(30) in (-9, 1)


TOO_SMALL = "import controller.regions.plan_child as it; it.MEMORY_BYTES_MAX = 1; it.main()"


@pytest.mark.parametrize(
    ("command", "regions", "why"),
    [
        (("sh", "-c", "echo no python here >&2; exit 7"), 3, "its process ended with 7; it said: no python here"),
        (("/no/such/python",), 3, "its process does not start: No such file or directory"),
        (("sh", "-c", "echo '{}'"), 3, "its process ended with 0"),
        ((sys.executable, "-c", TOO_SMALL), 200_000, "its process needs more than 0 MiB of memory"),
    ],
    ids=["dies", "does not start", "says something else", "has too little memory"],
)
async def test_a_child_that_fails_is_named(
    command: tuple[str, ...], regions: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_balancer, "COMMAND", command)
    with pytest.raises(NoPlan, match=why):
        await ChildBalancer(Stochastic(), PATIENCE_MS).plan(crowded(regions), 1)


def test_a_child_whose_daemon_has_died_ends_without_an_answer() -> None:
    sent = request(crowded(60), Stochastic(), 1, 60)
    for size in (0, 1, len(sent) // 2):
        done = subprocess.run(child_balancer.COMMAND, input=sent[:size], capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (1, b"")
    done = subprocess.run(child_balancer.COMMAND, input=sent, capture_output=True, check=True)
    assert answer_of(done.stdout).plan is not None


# -- what it is given


def planner(loads: RegionLoads, balancer: Simple | Stochastic, timeout_ms: int = PATIENCE_MS) -> Planner:
    return Planner(loads._model, loads, Claimants(), Cooldown(0), lambda: 0, lambda: 7, balancer, timeout_ms, 0.2)


def lopsided(regions: int) -> RegionLoads:
    """Returns the loads of a model whose first server of three has all regions."""
    model = Regions()
    loads = RegionLoads(model, lambda: 1_000.0)
    first, *others = (Server(name, 1, f"{name}:1", "", ServerState.ONLINE, {}, here=True) for name in "abc")
    model.servers = {one.key: one for one in (first, *others)}
    table = Table("t", TableKind.USER, TableState.ENABLED, {}, [])
    model.add_table(table)
    model.add_regions(table, [Region(one, table, b"%09d" % one, b"", RegionState.OFFLINE) for one in range(regions)])
    for one in table.regions:
        model.move(one, RegionState.OPENING, first, 0)
        model.move(one, RegionState.OPEN, first, 0)
    return loads


async def test_the_daemon_has_a_child_make_stochastic_plans() -> None:
    made = await planner(lopsided(9), Stochastic()).make()
    assert Counter((one.source, one.to) for one in made.plan.moves) == {("a", "b"): 3, ("a", "c"): 3}
    assert made.plan == Stochastic().plan(await planner(lopsided(9), Stochastic()).snapshot(), 7)
    with pytest.raises(NoPlan, match=r"within 0\.001 s"):
        await planner(lopsided(9), Stochastic(), 1).make()


async def test_a_child_makes_simple_plans_of_many_regions(
    children: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = await planner(lopsided(9), Simple()).make()
    assert children == []
    monkeypatch.setattr("controller.regions.planner.ALONE_MAX", 8)
    assert await planner(lopsided(9), Simple()).make() == few
    assert len(children) == 1


async def test_a_child_makes_plans_by_table_of_many_tables_on_many_servers(
    children: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.regions.planner.ALONE_MAX", 12)
    one_table, four_tables = lopsided(9), lopsided(9)
    for name in "uvw":
        four_tables._model.add_table(Table(name, TableKind.USER, TableState.ENABLED, {}, []))
    await planner(one_table, Simple(by_table=True)).make()
    await planner(four_tables, Simple()).make()
    assert children == []
    await planner(four_tables, Simple(by_table=True)).make()
    assert len(children) == 1


async def test_the_procedure_is_told_why_there_is_no_plan() -> None:
    found, woken = planner(lopsided(9), Stochastic(), 1), list[int]()
    found.begin(5, woken.append, "")
    await eventually(lambda: woken, 30)
    assert str(found.made(5)).startswith("it was not made within 0.001 s")


@pytest.mark.parametrize("lie", [-1.0, float("nan"), float("inf"), 1e300])
async def test_loads_that_lie_are_clamped(lie: float, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = lopsided(9)
    claimed = Load(-(1 << 62) if lie < 0 else 1 << 62, -5 if lie < 0 else 1 << 62, lie, lie, 0.0)
    monkeypatch.setattr(loads, "of", lambda region: claimed if region.id < 3 else None)
    found = await planner(loads, Stochastic()).snapshot()
    for figures, most in ((found.reads, REQUESTS_MAX), (found.size_bytes, BYTES_MAX), (found.files, FILES_MAX)):
        assert all(0 <= one <= most for one in figures)
        assert not any(figures[3:])
    plan = Stochastic().plan(found, 1)
    assert Counter(one.to for one in plan.moves) == {"b": 3, "c": 3}, "regions are balanced all the same"
    assert all(0 <= one.value <= 1 for one in plan.before + plan.after)


async def test_loads_of_regions_that_a_server_has_not_count_nothing() -> None:
    loads = lopsided(3)
    b = next(one for one in loads._model.servers.values() if one.name == "b")
    assert loads.take(b, [RegionLoad(1, 10, 10, 10, 10), RegionLoad(99, 10, 10, 10, 10)]) == 2
    assert not any((await planner(loads, Stochastic()).snapshot()).size_bytes)
