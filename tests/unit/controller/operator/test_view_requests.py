"""Requests of operators about a Kafka cluster: written once where a response is lost, whole, and of others nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from brokers.client import BrokerCallFailed
from controller.http.documents import ViewRefused
from controller.kafka.procedures.drain import drain_of
from controller.operator import cordons as cordons_module
from controller.operator import counts as counts_module
from controller.operator import pauses as pauses_module
from controller.operator import plan_requests
from controller.operator import strays as strays_module
from controller.operator import verify as verify_module
from controller.operator.comparison import DIFFERENCES_MAX, CopyDifference, Findings
from controller.operator.counts import Counted
from controller.operator.drains import DrainRequest, ShutdownRequest, UndrainRequest
from controller.operator.pauses import PauseRequest
from controller.operator.plan_requests import Move, ReassignCommand, ReassignRequest
from controller.operator.strays import remembered
from controller.operator.verify import verify
from metadata_store.errors import OutcomeUnknown
from metadata_store.nodes.cordon_node import write_cordons
from metadata_store.nodes.pause_node import write_pause
from metadata_store.nodes.stray_nodes import StrayKey
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import MinIsr
from state_machines.model.types import Broker
from tests.kit.kafka.model import topic
from tests.kit.kafka.reassignments import propagated
from tests.kit.kafka.role import kafka
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.kit.view_kit import governed, several
from tests.unit.controller.kafka.procedures.test_drain import running, views
from tests.unit.controller.kafka.procedures.test_elect import request as election
from tests.unit.controller.kafka.procedures.test_elect import view as elections
from tests.unit.controller.operator.test_cordons import begun, request
from tests.unit.controller.operator.test_pause import view_of as pauses
from tests.unit.controller.operator.test_view_procedures import plans, view_of
from tests.unit.controller.operator.test_view_strays import log


class LostResponse:
    """A write that is carried out, and whose first response is lost."""

    def __init__(self, write: Any) -> None:
        self._write, self.calls = write, 0

    async def __call__(self, *given: Any) -> bool:
        self.calls += 1
        done: bool = await self._write(*given)
        if self.calls == 1:
            raise OutcomeUnknown("the connection was lost")
        return done


@in_world(1, 2, 3)
async def test_marks_and_a_pause_whose_response_was_lost_are_found_written(w: KafkaWorld) -> None:
    cordons = await begun(w)
    lost = LostResponse(write_cordons)
    with mock.patch.object(cordons_module, "write_cordons", lost):
        assert [mark.broker for mark in await cordons.cordon(request(2), "uid 0")] == [2]
    assert lost.calls == 1, "the mark is there"
    lost = LostResponse(write_pause)
    with mock.patch.object(pauses_module, "write_pause", lost):
        assert (await pauses(w).pause(PauseRequest(reason="a test"), "uid 0")).paused
    await w.settle()
    assert w.term.cluster.cordoned == {2}
    assert (await pauses(w).shown()).reason == "a test"


@in_world(1, 2, 3)
async def test_as_many_brokers_are_cordoned_as_may_be(w: KafkaWorld) -> None:
    view = await begun(w)
    with mock.patch.object(cordons_module, "BROKERS_MAX", 2):
        assert len(await view.cordon(request(1, 2), "uid 0")) == 2
        with pytest.raises(ViewRefused, match="3 brokers would be cordoned, at most 2 may be"):
            await view.cordon(request(3), "uid 0")


@in_world(1, 2, 3)
async def test_an_undrain_lets_its_own_broker_lead_again_and_no_other(w: KafkaWorld) -> None:
    await running(w)
    drains, _ = views(w)
    for broker in (1, 2):
        await drains.shutdown(ShutdownRequest(broker=broker))
    await propagated(w)
    await drains.undrain(UndrainRequest(brokers=[1]))
    await propagated(w)
    assert w.term.cluster.shutting_down == {2}


@in_world(1, 2, 3, 4)
async def test_a_drain_moves_nothing_to_a_cordoned_broker_and_keeps_its_throttle(w: KafkaWorld) -> None:
    await running(w)
    drains, cordons = views(w)
    await cordons.cordon(request(3), "uid 0")
    await w.settle()
    found = await drains.drain(DrainRequest(brokers=[1], replicas=True, rate_bytes_per_s=7), "uid 0")
    plan = drain_of(w.term.procedures.engine.records[found.pid]).plan
    assert plan is not None
    assert plan.rate_bytes_per_s == 7
    assert {broker for move in plan.moves for broker in set(move.target) - set(move.origin)} == {4, 2}


@in_world(1, 2, 3)
async def test_an_election_that_is_requested_twice_is_one(w: KafkaWorld) -> None:
    await running(w)
    pids = {(await elections(w).elect(election("t0", nonce="n"), "uid 0")).pid for _ in range(2)}
    assert len(pids) == 1


@in_world(1, 2, 3)
async def test_a_plan_has_all_that_was_requested_and_a_pause_of_it_requests_no_end(w: KafkaWorld) -> None:
    await running(w)
    moves = [
        Move(topic="t", partition=0, target=(2, 3)),
        Move(topic="u", partition=0, target=(2, 3)),
        Move(topic="t", partition=1, target=(2, 3), size_bytes=5),
    ]
    wanted = ReassignRequest(
        moves=moves, moves_max=1, broker_moves_max=2, bytes_max=3, broker_bytes_max=4, rate_bytes_per_s=6, paused=True
    )
    with mock.patch.object(plan_requests, "leader_sizes", return_value={("t", 0): 100, ("u", 0): 100}):
        plan = await plan_requests.requested_plan(w.term, wanted)
    assert [move.bytes for move in plan.moves] == [0, 200, 5], "by the replicas that are added"
    assert (plan.moves_max, plan.broker_moves_max, plan.bytes_max, plan.broker_bytes_max) == (1, 2, 3, 4)
    assert (plan.rate_bytes_per_s, plan.paused) == (6, True)
    view = view_of(w)
    begun = await plans(view).apply(wanted, "uid 0")
    await w.settle()
    assert (
        await plans(view).command(begun.pid, ReassignCommand(paused=True, reason="lunch"), "uid 7")
    ).end_requested == ""
    await w.settle()
    assert (await view.one(begun.pid, 0)).end_requested == ""


# -- lists and counts


async def test_other_settings_and_the_model_of_another_term_are_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts_module, "REST_TIMES", 0)
    cluster, counted = several(2, 3), Counted(MinIsr(1, {}))
    await counted.refresh(cluster)
    assert counted.seen(cluster)[0].under_min_isr == 0
    counted.min_isr = MinIsr(3, {})
    await counted.refresh(cluster)
    assert counted.seen(cluster)[0].under_min_isr == 2, "the rows are the same"
    monkeypatch.setattr(counts_module, "REST_TIMES", 1_000_000)
    await counted.refresh(cluster)
    next_one = several(4, 3)
    await counted.refresh(next_one)
    assert counted.seen(next_one)[0].leads == {1: 12}, "the rest after a count is no rest for another model"


async def test_a_broker_with_more_strays_than_are_listed_is_named(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        cluster.brokers[2].logs = [log("gone", number) for number in range(3)]
        cluster.brokers[3].logs = [log("gone", number) for number in range(2)]
        with mock.patch.multiple(strays_module, BROKER_STRAYS_MAX=2, TURN_LOGS=1):
            found = await view.strays.listed((2, 3))
        assert (len(found.strays), found.cut) == (4, [2])


def test_all_remembered_replicas_are_counted_beyond_those_that_are_listed() -> None:
    content = SimpleNamespace(content=SimpleNamespace(partitions={0: 1_000, 1: 1_000}))
    entries = {StrayKey(broker, "gone"): content for broker in (1, 2)}
    term: Any = SimpleNamespace(
        cluster=SimpleNamespace(brokers={2: None}),
        controller=SimpleNamespace(strays=SimpleNamespace(entries=entries)),
    )
    with mock.patch.object(strays_module, "REMEMBERED_MAX", 3):
        listed, total = remembered(term, ())
    assert ([one.broker for one in listed], total) == ([1, 1, 2], 4)
    assert [one.registered for one in listed] == [False, False, True]
    assert remembered(term, (2,))[1] == 2


# -- verification


def test_all_differences_are_counted_beyond_those_that_are_listed() -> None:
    found = Findings()
    for broker in (1, 2):
        found.add(CopyDifference("t", number, "isr", "1", "2", broker) for number in range(DIFFERENCES_MAX))
    assert (len(found.listed), found.total) == (DIFFERENCES_MAX, 2 * DIFFERENCES_MAX)


async def test_a_broker_that_is_reached_in_a_later_look_was_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is refused once, and breaks once; and a broker that is restarted gets a new one."""
    monkeypatch.setattr(verify_module, "PAUSE_S", 0.01)
    async with governed(tmp_path) as (cluster, daemon, _):
        dials: list[int] = []

        @asynccontextmanager
        async def dial(broker: Broker) -> AsyncIterator[Any]:
            dials.append(broker.id)
            if dials.count(2) == 1 and broker.id == 2:
                raise BrokerCallFailed("connection refused")
            async with cluster.dial(broker) as queries:
                if broker.id == 3 and dials.count(3) == 1:
                    yield SimpleNamespace(metadata=mock.AsyncMock(side_effect=BrokerCallFailed("broken")))
                else:
                    yield queries

        found = await verify(cluster.role(), dial, daemon.ibp, settle_s=5.0)
        assert (found.clean, sorted(dials)) == (True, [1, 2, 2, 3, 3])


async def test_a_topic_that_only_the_daemon_knows_is_a_difference(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        memory = Cluster()
        memory.observe_topic(topic("ghost", [(1, 2)]))
        found = await verify(cluster.role(), cluster.dial, (await cluster.context()).ibp, memory=memory, settle_s=0.0)
        told = [f"{one.topic} {one.field} {one.expected} {one.found}" for one in found.differences]
        assert "ghost topic known not in ZooKeeper" in told
