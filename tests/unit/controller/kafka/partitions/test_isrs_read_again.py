"""Below IBP 2.7-IV2 leaders write ISRs themselves: what a known ISR stands in the way of is decided on ZooKeeper's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from controller.kafka.path.controller import Controller
from state_machines.decisions.leader_election import ElectionType
from state_machines.decisions.reassignment import LAST_IN_SYNC
from state_machines.model.types import Assignment
from tests.kit.controller_world import World, in_world, world
from tests.kit.reassignment_kit import alter, caught_up, propagated, written
from tests.kit.virtual_time import in_virtual_time

IBP = "2.7-IV1"
PREFERRED = ElectionType.PREFERRED


async def running(w: World, *, ibp: str = IBP, isr: tuple[int, ...] = (2, 3)) -> None:
    """t-0 and t-1 prefer broker 1 and are led by 2; as far as anybody knows, t-0 has not caught up there."""
    await w.topic("t", (1, 2, 3), leaders=True, led_by=2, isr=isr)
    await w.topic("u", (1, 2, 3), leaders=True, led_by=2)
    await w.serve(ibp)
    w.active.script.writes.clear()


@contextmanager
def rereads(w: World) -> Iterator[list[list[tuple[str, int]]]]:
    """Partitions of each time that state znodes are read again."""
    found: list[list[tuple[str, int]]] = []

    async def reread(c: Controller, rows: list[int]) -> object:
        found.append([c.cluster.name(i) for i in rows])
        return await again(c, rows)

    again = Controller.reread
    with mock.patch.object(Controller, "reread", reread):
        yield found


@pytest.mark.seed("S4-70", "S4-80")
@in_world(before=running)
async def test_a_preferred_replica_that_rejoined_without_a_notification_leads(w: World) -> None:
    await w.leader_writes("t", 0, (2, 3, 1))
    with rereads(w) as found:
        assert await w.elect(PREFERRED, ("t", 0), ("u", 0)) == {("t", 0): 0, ("u", 0): 0}
    assert found == [[("t", 0)]]
    assert w.leaders() == {("t", 0): (1, (2, 3, 1)), ("u", 0): (1, (1, 2, 3))}
    assert [len(multi) for multi in w.active.script.writes] == [2, 2], "nobody waits for what is read again"
    w.agreed()


@pytest.mark.seed("S4-80")
@in_world(before=running)
async def test_a_server_of_zookeeper_that_is_behind_catches_up_before_an_isr_is_read(w: World) -> None:
    w.server.lag(w.active.zk.session_id)
    await w.leader_writes("t", 0, (2, 3, 1))
    assert await w.elect(PREFERRED, ("t", 0)) == {("t", 0): 0}


@pytest.mark.seed("S4-71", "S4-80")
@in_world(before=running)
async def test_a_preferred_replica_that_rejoined_leads_after_a_request_by_znode(w: World) -> None:
    await w.leader_writes("t", 0, (2, 3, 1))
    await w.request_preferred(("t", 0))
    await w.propagated()
    assert w.leaders()["t", 0] == (1, (2, 3, 1))


@pytest.mark.seed("S4-80")
@in_world(before=running)
async def test_a_replica_that_is_still_not_in_sync_is_refused_after_one_read(w: World) -> None:
    with rereads(w) as found:
        assert await w.elect(PREFERRED, ("t", 0)) == {("t", 0): 80}
    assert found == [[("t", 0)]]
    assert w.active.script.writes == []


@pytest.mark.seed("S4-80")
@in_world()
async def test_nothing_is_read_again_where_the_controller_alone_writes_isrs(w: World) -> None:
    await running(w, ibp="3.9")
    with rereads(w) as found:
        assert await w.elect(PREFERRED, ("t", 0)) == {("t", 0): 80}
    assert found == []


@in_world(before=running)
async def test_a_replica_that_is_down_is_refused_without_a_read(w: World) -> None:
    w.die(1)
    await w.propagated()
    with rereads(w) as found:
        assert await w.elect(PREFERRED, ("t", 0)) == {("t", 0): 80}
    assert found == []


@in_virtual_time
async def test_a_bounded_number_of_isrs_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.kafka.path.controller.DOUBTED_MAX", 2)
    async with world() as w:
        await w.topic("t", *[(1, 2)] * 5, leaders=True, led_by=2, isr=(2,))
        await w.serve(IBP)
        for partition in range(5):
            await w.leader_writes("t", partition, (2, 1))
        with rereads(w) as found:
            outcome = await w.elect(PREFERRED, *[("t", partition) for partition in range(5)])
        assert [len(names) for names in found] == [2]
        assert sorted(outcome.values()) == [0, 0, 80, 80, 80]


@pytest.mark.seed("S4-83", "S4-80")
@in_world(before=running)
async def test_the_automatic_balance_moves_what_has_caught_up(w: World) -> None:
    await w.leader_writes("t", 0, (2, 3, 1))
    await asyncio.sleep(6.0)
    await w.propagated()
    assert w.leaders() == {("t", 0): (1, (2, 3, 1)), ("u", 0): (1, (1, 2, 3))}


@pytest.mark.seed("S4-72", "S4-80")
@in_world()
async def test_a_controlled_shutdown_finds_the_replica_that_has_caught_up(w: World) -> None:
    await running(w, isr=(2,))
    await w.leader_writes("t", 0, (2, 3))
    reply = await w.controlled_shutdown(2)
    assert list(reply.remaining) == []
    assert w.leaders()["t", 0] == (3, (3,))


@pytest.mark.seed("S4-44", "S4-80")
@in_world(before=running)
async def test_a_follower_that_rejoined_and_died_leaves_the_isr(w: World) -> None:
    await w.leader_writes("t", 0, (2, 3, 1))
    w.die(1)
    await w.propagated()
    assert w.leaders() == {("t", 0): (2, (2, 3)), ("u", 0): (2, (2, 3))}
    assert w.wires.offline(3)["t", 0] == (1,)
    w.agreed()


@pytest.mark.seed("S4-84", "S4-80")
@in_world()
async def test_a_cancel_that_only_the_known_isr_forbids_is_done(w: World) -> None:
    await w.topic("t", (1,), leaders=True)
    await w.begin_term(IBP)
    await alter(w, {("t", 0): (2, 3)})
    await propagated(w)
    await w.leader_writes("t", 0, (1, 2))
    await propagated(w)
    w.die(1)
    await propagated(w)
    assert w.leaders() == {("t", 0): (2, (2,))}
    await w.boot(1)
    await propagated(w)
    found = await alter(w, {("t", 0): None})
    assert [why.why for why in found.values()] == [LAST_IN_SYNC]
    w.server.hold_watches(w.active.zk.session_id)
    await w.leader_writes("t", 0, (2, 1))
    assert await alter(w, {("t", 0): None}) == {}
    w.server.release_watches(w.active.zk.session_id)
    await caught_up(w)
    assert (written(w, "t"), w.leaders()) == (Assignment((1,)), {("t", 0): (1, (1,))})
