"""Waves of reassign plans: writes with lost replies, topics that are created again, and what a wave waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from brokers.queries import Dial
from controller.kafka.procedures.reassign import LOOK_AGAIN_MS, NAME, command, encode_plan, plan_of
from metadata_store import paths
from state_machines.decisions.plan_progress import ReassignPlan, Status
from state_machines.model.types import Broker
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from tests.kit.kafka.parts import DAEMON
from tests.kit.kafka.plans import PARTITIONS, aborted, applied, finished, moves, moving, placed, record, running
from tests.kit.kafka.world import KafkaWorld, in_world


@pytest.mark.parametrize("fault", ["lose_replies", "lose_requests"])
@pytest.mark.parametrize("changes", [1, 2])
@in_world(1, 2, 3, 4)
async def test_a_wave_whose_reply_or_request_is_lost_is_begun_once(w: KafkaWorld, fault: str, changes: int) -> None:
    """A plan that took its own moves for those of another client would end them as superseded."""
    await running(w)
    w.active.script.at(
        paths.topic("a"), lambda: getattr(w.server, fault)(w.active.zk.session_id), exact=True, times=changes
    )
    pid = await applied(w, ReassignPlan(moves(), moves_max=3))
    found = await finished(w, pid)
    assert (found.state, found.result) == (State.SUCCESS, b"6 done")
    assert placed(w) == [(3, 4)] * PARTITIONS
    w.agreed()


@in_world(1, 2, 3, 4)
async def test_a_wave_that_met_a_topic_of_the_same_name_stands_for_the_other_topics(w: KafkaWorld) -> None:
    """A client deletes topic a and creates it again just before the write, so this changes the new topic."""
    await running(w)

    async def created_again() -> None:
        top = paths.topic("a")
        states = [paths.state("a", number) for number in range(PARTITIONS // 2)]
        parents = [state.rpartition("/")[0] for state in states]
        below = [f"{top}/partitions", *parents, *states]
        data = {path: node.data for path in (top, *below) if (node := w.node(path)) is not None}
        for path in reversed(data):
            await w.operator.delete(path, -1)
        for path, content in data.items():
            await w.operator.create(path, content)

    w.active.script.at(paths.topic("a"), created_again, exact=True)
    pid = await applied(w, ReassignPlan(moves()))
    stored = plan_of(record(w, pid)).moves
    assert [move.status for move in stored if move.topic == "b"] == [Status.BEGUN] * (PARTITIONS // 2)
    found = await finished(w, pid)
    assert found.state is State.SUCCESS
    by_topic = {move.topic: move.status for move in plan_of(found).moves}
    assert by_topic["b"] is Status.DONE
    assert placed(w)[PARTITIONS // 2 :] == [(3, 4)] * (PARTITIONS // 2)


def brokers_that_wait_for(asked: asyncio.Event) -> Dial:
    """Brokers whose min.insync.replicas is 2, which they send once an event is set."""

    @asynccontextmanager
    async def dial(_: Broker) -> AsyncIterator[Any]:
        async def broker_configs(_broker: int, names: Iterable[str]) -> dict[str, str | None]:
            await asked.wait()
            return dict.fromkeys(names, "2")

        yield SimpleNamespace(broker_configs=broker_configs)

    return dial


@in_world(1, 2, 3, 4)
async def test_a_plan_begins_nothing_before_the_brokers_have_sent_how_many_replicas_acks_all_needs(
    w: KafkaWorld,
) -> None:
    await running(w)
    sent = asyncio.Event()
    w.term.controller.dial = brokers_that_wait_for(sent)
    short, *others = moves()
    pid = await applied(w, ReassignPlan((replace(short, target=(3,)), *others)))
    await asyncio.sleep(2)
    await w.settle()
    assert not moving(w)
    sent.set()
    await asyncio.sleep(2)
    await w.settle()
    assert len(moving(w)) == PARTITIONS - 1
    refused = plan_of(await finished(w, pid)).moves[0]
    assert (refused.status, refused.why[:45]) == (Status.REFUSED, "1 replicas are below min.insync.replicas = 2:")
    assert placed(w) == [(1, 2)] + [(3, 4)] * (PARTITIONS - 1)


@in_world(1, 2, 3, 4)
async def test_a_plan_is_taken_back_although_no_broker_responds_to_the_query(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=3))
    await w.active.crash()
    w.dial = brokers_that_wait_for(asyncio.Event())  # type: ignore[method-assign, assignment]
    await w.begin_term()
    assert len(moving(w)) == 3
    await aborted(w, pid)
    assert (await finished(w, pid)).state is State.ROLLEDBACK
    assert placed(w) == [(1, 2)] * PARTITIONS


@in_world(1, 2, 3, 4)
async def test_moves_whose_wave_was_written_go_on_once_a_lost_connection_is_back(w: KafkaWorld) -> None:
    await running(w)
    session = w.active.zk.session_id

    async def cut() -> None:
        w.server.suspend(session)
        asyncio.get_running_loop().call_later(0.5, w.server.resume, session)

    w.active.script.at("a/partitions/0/state", cut)
    pid = await applied(w, ReassignPlan(moves(), moves_max=3))
    found = await finished(w, pid)
    assert (found.state, found.result, placed(w)) == (State.SUCCESS, b"6 done", [(3, 4)] * PARTITIONS)
    w.agreed()


@in_world(1, 2, 3, 4)
async def test_a_move_to_the_node_of_a_daemon_is_refused_and_ends(w: KafkaWorld) -> None:
    """It hosts no replica, however long the plan would wait."""
    await running(w)
    first, *others = moves()
    pid = await applied(w, ReassignPlan((replace(first, target=(3, DAEMON)), *others)))
    found = await finished(w, pid)
    assert (found.state, found.result) == (State.SUCCESS, b"5 done, 1 refused")


@in_world(1, 2, 3, 4)
async def test_a_plan_that_waits_writes_nothing(w: KafkaWorld) -> None:
    await running(w)
    await applied(w, ReassignPlan(moves(), moves_max=1))
    w.forget()
    await asyncio.sleep(10 * LOOK_AGAIN_MS / 1_000)
    await w.settle()
    assert w.active.script.writes == []


def test_a_command_that_stops_a_plan_changes_its_caps_too() -> None:
    plan = ReassignPlan((*moves()[:1], replace(moves()[1], status=Status.BEGUN)), moves_max=5, rate_bytes_per_s=7)
    before = Record(1, NAME, State.RUNNABLE, 0, 1, 2, data=encode_plan(plan))
    after = plan_of(replace(before, data=command(before, b'{"stop":true,"moves_max":2,"rate_bytes_per_s":0}')))
    assert [move.status for move in after.moves] == [Status.STOPPED, Status.BEGUN]
    assert (after.moves_max, after.rate_bytes_per_s, after.broker_moves_max) == (2, 0, plan.broker_moves_max)
