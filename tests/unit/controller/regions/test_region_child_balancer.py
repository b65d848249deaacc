"""Plans of balances are made by a child process, which has bounds, and whose failures have names."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from array import array
from typing import Any

import pytest

from controller.regions import child_balancer
from controller.regions.child_balancer import ChildBalancer, NoPlan
from controller.regions.plan_child import answer_of, request
from state_machines.regions.balancing.cluster import Cluster
from state_machines.regions.balancing.stochastic import Stochastic
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
