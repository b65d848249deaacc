"""Sizes of partitions that other clients reassign: read for each reassignment anew, also after a read that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.kafka.kinds import broker_queries
from controller.kafka.kinds.broker_queries import ForeignSizes
from controller.kafka.path.controller import Controller
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan
from state_machines.model.types import TopicPartition

PLAN = ReassignPlan((), bytes_max=1_000)
ADDING = SimpleNamespace(kept=SimpleNamespace(adding=(4,)))


def name(row: int) -> TopicPartition:
    return TopicPartition("others", row)


class Cluster:
    """A controller of which other clients reassign some rows; its leaders report, or fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.read: list[list[TopicPartition]] = []
        self.fails = False
        self.cluster = SimpleNamespace(
            name=name, reassigning={}, rows={row: SimpleNamespace(leader=row % 2) for row in range(9)}, brokers={}
        )
        self.dial = object()
        monkeypatch.setattr(broker_queries, "sizes_on", self.sizes_on)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def sizes_on(self, _: object, __: object, by_leader: dict[int, list[TopicPartition]], ___: float) -> Any:
        self.read.append(sorted(one for names in by_leader.values() for one in names))
        if self.fails:
            raise OSError("a test")
        return {
            leader: {one: SimpleNamespace(size_bytes=100 + one.partition) for one in names}
            for leader, names in by_leader.items()
        }

    def reassigns(self, *rows: int) -> None:
        self.cluster.reassigning = dict.fromkeys(rows, ADDING)

    async def reports(self) -> None:
        """Lets the reads end that are under way."""
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()


async def test_each_further_reassignment_of_another_client_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world, sizes = Cluster(monkeypatch), ForeignSizes()
    c = cast("Controller", world)
    assert sizes.are_known(c, PLAN), "there is none"
    for rows in ((1,), (1, 2), (2, 3, 4)):
        world.reassigns(*rows)
        assert not sizes.are_known(c, PLAN)
        assert not sizes.are_known(c, PLAN)
        assert len(world.tasks) == 1, "one read at a time"
        await world.reports()
        assert sizes.are_known(c, PLAN)
        assert sizes.known == {name(row): 100 + row for row in rows}, "those that have ended are forgotten"
    assert world.read == [[name(1)], [name(2)], [name(3), name(4)]]


async def test_a_read_that_fails_holds_up_neither_the_plan_nor_the_next_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world, sizes = Cluster(monkeypatch), ForeignSizes()
    c = cast("Controller", world)
    world.fails = True
    world.reassigns(1)
    assert not sizes.are_known(c, PLAN)
    await world.reports()
    assert sizes.are_known(c, PLAN)
    assert sizes.known == {name(1): 0}
    world.fails = False
    world.reassigns(1, 2)
    assert not sizes.are_known(c, PLAN)
    await world.reports()
    assert (sizes.are_known(c, PLAN), sizes.known[name(2)]) == (True, 102)


async def test_a_leader_of_several_partitions_is_queried_for_all_of_them_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, sizes = Cluster(monkeypatch), ForeignSizes()
    c = cast("Controller", world)
    world.reassigns(1, 2, 3, 4, 5)
    assert not sizes.are_known(c, ReassignPlan((), broker_bytes_max=1)), "the cap of a broker needs them, too"
    await world.reports()
    assert sizes.are_known(c, ReassignPlan((), broker_bytes_max=1))
    assert sizes.known == {name(row): 100 + row for row in range(1, 6)}


async def test_only_moves_of_others_that_copy_data_are_read_and_a_plan_without_caps_in_bytes_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, sizes = Cluster(monkeypatch), ForeignSizes()
    c = cast("Controller", world)
    world.cluster.reassigning = {1: ADDING, 2: SimpleNamespace(kept=SimpleNamespace(adding=())), 3: ADDING}
    own = ReassignPlan((PlannedMove("others", 1, (1, 2), (3, 4)),), bytes_max=1_000)
    assert sizes.are_known(c, ReassignPlan(own.moves))
    assert not world.tasks
    assert not sizes.are_known(c, own)
    await world.reports()
    assert sizes.are_known(c, own)
    assert world.read == [[name(3)]], "row 1 is a move of the plan, row 2 drops replicas"


async def test_more_partitions_than_one_request_may_name_are_read_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_queries, "PARTITIONS_PER_REQUEST_MAX", 3)
    world, sizes = Cluster(monkeypatch), ForeignSizes()
    c = cast("Controller", world)
    world.reassigns(*range(1, 9))
    for _ in range(3):
        assert not sizes.are_known(c, PLAN)
        await world.reports()
    assert sizes.are_known(c, PLAN)
    assert [len(names) for names in world.read] == [3, 3, 2]
    assert sizes.known == {name(row): 100 + row for row in range(1, 9)}
