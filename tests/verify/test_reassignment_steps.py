"""The daemon is killed at every write of a reassignment from {1,2,3} to {4,5,6} on six real brokers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from metadata_store import paths
from state_machines.model.types import Assignment
from tests.kit.cluster.lossy import LossyProxy
from tests.kit.deadlines import eventually
from tests.verify.system import System, system

TOPIC = "moves"
STATE = f"/topics/{TOPIC}/partitions/0/state.*"
ZNODE = f"/topics/{TOPIC}.*"
HOMES = ((1, 2, 3), (4, 5, 6))

Proxies = dict[int, LossyProxy]


class Row(NamedTuple):
    """Holds assignment, leader, and ISR in ascending order."""

    assignment: Assignment
    leader: int
    isr: tuple[int, ...]


class Move(NamedTuple):
    """Holds the replicas before and after a reassignment."""

    origin: tuple[int, ...]
    target: tuple[int, ...]

    @property
    def table(self) -> list[Row]:
        """Returns the content of ZooKeeper at first and after each step of the protocol."""
        origin, target = self
        union, everybody = Assignment(origin).reassigned_to(target), tuple(range(1, 7))
        return [
            Row(Assignment(origin), origin[0], origin),
            Row(union, origin[0], origin),
            Row(union, origin[0], everybody),
            Row(union, target[0], target),
            Row(Assignment(target), target[0], target),
        ]


class Step(NamedTuple):
    """Describes a write: the text of its multi, and the table's rows before and after it."""

    what: str
    written: Callable[[Move], str]
    before: int
    after: int
    by_znode: bool = False


def any_of(brokers: tuple[int, ...]) -> str:
    """Returns a regular expression for an ISR of these brokers in any order."""
    one = "[" + "".join(map(str, brokers)) + "]"
    return rf'"isr":\[{one}(,{one}){{{len(brokers) - 1}}}\]'


STEPS = [
    Step("the topic znode names both", lambda m: f'{ZNODE}"adding_replicas":{{"0":', 0, 1),
    Step("the leader epoch", lambda m: STATE + any_of(m.origin), 1, 1),
    Step("the last of the target is in sync", lambda m: STATE + any_of((*m.origin, *m.target)), 1, 2),
    Step("the target leads, alone in sync", lambda m: STATE + any_of(m.target), 2, 3),
    Step("the topic znode names the target", lambda m: f'{ZNODE}"adding_replicas":{{}}', 3, 4),
    Step("the request's znode goes", lambda m: paths.REASSIGN_PARTITIONS, 4, 4, by_znode=True),
]


@pytest.mark.seed("S4-51", "S4-52", "S4-53", "S4-54", "S4-55", "S4-56", "S4-57", "S4-58", "S4-59", "S4-60", "S4-61")
@pytest.mark.seed("S4-62", "S4-63", "S4-64", "S4-69", "S4-77")
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_reassignment_ends_after_a_kill_of_the_daemon_at_any_write(
    before: bool, request: pytest.FixtureRequest
) -> None:
    async with system(request.node.name, brokers=6) as s, proxied(s) as proxies:
        await s.create(TOPIC, {0: HOMES[0]})
        async with s.loaded({TOPIC: 1}) as stage:
            for number, step in enumerate(STEPS):
                move = Move(HOMES[number % 2], HOMES[1 - number % 2])
                await killed_at(s, proxies, step, move, before=before)
            await s.proven(stage)


async def killed_at(s: System, proxies: Proxies, step: Step, move: Move, *, before: bool) -> None:
    """Requests a reassignment, kills the active daemon at a write, and waits until the other one has finished."""
    assert await row(s) == move.table[0]
    active, epoch = await s.active(), await s.w.epoch()
    proxy, pid = proxies[active.id], active.pid
    proxy.strike(step.written(move), lambda: os.kill(pid, signal.SIGKILL), before=before)
    asking = asyncio.create_task(ask(s, move.target, by_znode=step.by_znode))
    await eventually(lambda: not proxy.armed and not active.running, 60.0)
    found = await row(s)
    assert await s.w.epoch() == epoch, "the standby has not taken over yet"
    assert growing(found, move) == move.table[step.before if before else step.after], step.what
    with s.times.taken(f"killed at '{step.what}' to the end of the move"):
        await asking
        await eventually(lambda: done(s, move), 90.0)
    await active.boot("standby")


def growing(found: Row, move: Move) -> Row:
    """Replaces an ISR that only a part of the target has joined by the original one."""
    joined = {*move.origin} < {*found.isr} < {*move.origin, *move.target}
    return found._replace(isr=move.origin) if joined else found


async def ask(s: System, target: tuple[int, ...], *, by_znode: bool) -> None:
    """Requests a reassignment by the tool, or by znode."""
    wish = {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": target}]}
    if by_znode:
        await s.w.zk.create(paths.REASSIGN_PARTITIONS, json.dumps(wish).encode())
        return
    file = s.w.cluster.folder / "wish.json"
    file.write_text(json.dumps(wish), encoding="utf-8")
    await s.tool("kafka-reassign-partitions", "--reassignment-json-file", str(file), "--execute")


async def row(s: System) -> Row:
    """Reads the present row."""
    leader, isr = await s.isr(TOPIC)
    return Row((await s.placed(TOPIC))[0], leader, tuple(sorted(isr)))


async def done(s: System, move: Move) -> bool:
    """Returns whether ZooKeeper has the table's last row, and request and old logs are gone."""
    assert await row(s) == move.table[-1]
    assert await s.w.zk.exists(paths.REASSIGN_PARTITIONS) is None
    assert s.w.hosting(TOPIC) == {(broker, 0) for broker in move.target}
    return True


@asynccontextmanager
async def proxied(s: System) -> AsyncIterator[Proxies]:
    """Restarts both daemons with a proxy before ZooKeeper each."""
    proxies: Proxies = {}
    for daemon in s.daemons:
        await daemon.stop()
        proxies[daemon.id] = LossyProxy("127.0.0.1", s.w.cluster.zookeeper.port)
        await proxies[daemon.id].start()
        daemon.configure({**s.settings, "zookeeper.connect": f"127.0.0.1:{proxies[daemon.id].port}"})
    await s.daemons[0].boot("active")
    await s.daemons[1].boot("standby")
    try:
        yield proxies
    finally:
        for daemon in s.daemons:
            await daemon.kill()
            await proxies[daemon.id].stop()
