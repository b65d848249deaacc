"""Reassign plans in the controller's world: waves below caps, other clients that win, pauses, roll-backs, failovers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import pytest
from msgspec.structs import replace

from brokers.queries import Dial
from controller.kafka.procedures import reassign
from controller.kafka.procedures.reassign import NAME, plan_of
from controller.kafka.reassignments.reassignment import go_on
from controller.kafka.term import procedures
from controller.operator.pauses import PauseRequest, PauseView
from controller.procedures.engine import Engine
from controller.procedures.requests import ProcedureRefused
from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.acl import READ, Acl
from metadata_store.errors import NotConnected, OutcomeUnknown
from metadata_store.records.port import StoreFailed
from state_machines.admin_rules.throttles import RATE_BYTES_PER_S_MAX
from state_machines.decisions import plan_progress
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan, Status
from state_machines.model.types import Assignment, Broker, LogDirectory, ReplicaLog
from state_machines.procedures.record import Caller
from state_machines.procedures.states import State
from tests.kit.kafka.plans import (
    LISTS,
    PARTITIONS,
    RATES,
    aborted,
    applied,
    commanded,
    config,
    finished,
    gathered,
    in_isr,
    moves,
    moving,
    placed,
    record,
    running,
    statuses,
    throttled,
)
from tests.kit.kafka.reassignments import alter, caught_up, join, propagated, written
from tests.kit.kafka.world import KafkaWorld, in_world


@pytest.mark.seed("S2-7", "S2-15", "S3-14")
@in_world(1, 2, 3, 4)
async def test_a_plan_moves_its_partitions_in_waves_below_both_caps(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=4, broker_moves_max=2))
    assert len(moving(w)) == 2, "a broker receives two at a time"
    seen = {len(moving(w))}
    while not record(w, pid).state.is_final:
        await join(w)
        await propagated(w)
        await asyncio.sleep(6)
        await w.settle()
        seen.add(len(moving(w)))
    assert max(seen) == 2
    assert placed(w) == [(3, 4)] * PARTITIONS
    assert record(w, pid).state is State.SUCCESS
    assert record(w, pid).result == b"6 done"
    w.agreed()


def sized(replica_bytes: int) -> tuple[PlannedMove, ...]:
    return tuple(replace(move, bytes=2 * replica_bytes) for move in moves())


@in_world(1, 2, 3, 4)
async def test_a_plan_moves_its_partitions_below_both_caps_of_bytes_which_change_while_it_runs(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(sized(10), bytes_max=59))
    assert len(moving(w)) == 2, "each move copies 20 bytes"
    await commanded(w, pid, bytes_max=0, broker_bytes_max=30)
    assert len(moving(w)) == 3, "a broker receives 10 bytes of each"
    await commanded(w, pid, broker_bytes_max=1)
    await caught_up(w)
    await asyncio.sleep(6)
    await w.settle()
    assert len(moving(w)) == 1, "a move that is larger than the cap goes alone"
    assert (await finished(w, pid)).result == b"6 done"


@in_world(1, 2, 3, 4)
async def test_reassignments_of_other_clients_count_against_the_caps_of_bytes(w: KafkaWorld) -> None:
    await running(w)
    w.term.controller.dial = sizes_of_leaders({("a", 0): 25})
    assert await alter(w, {("a", 0): (1, 3)}) == {}
    rest = tuple(move for move in sized(10) if (move.topic, move.partition) != ("a", 0))
    pid = await applied(w, ReassignPlan(rest, bytes_max=45))
    await asyncio.sleep(1)
    await w.settle()
    assert moving(w) == {("a", 0), ("a", 1)}, "25 bytes of another client, and 20"
    assert (await finished(w, pid)).result == b"5 done"


def sizes_of_leaders(sizes: dict[tuple[str, int], int]) -> Dial:
    """Brokers report these logs."""

    @asynccontextmanager
    async def dial(_: Broker) -> AsyncIterator[Any]:
        async def replica_logs(partitions: Any, _max: int) -> tuple[LogDirectory, ...]:
            logs = [ReplicaLog(*name, size, 0, False) for name, size in sizes.items() if name[0] in partitions]
            return (LogDirectory("/data", 0, tuple(logs)),)

        async def broker_configs(_broker: int, names: Any) -> dict[str, str | None]:
            return dict.fromkeys(names)

        yield SimpleNamespace(replica_logs=replica_logs, broker_configs=broker_configs)

    return dial


@in_world(1, 2, 3, 4)
async def test_the_wave_and_the_record_are_one_multi(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves()))
    [wave] = [names for names in w.active.script.writes if paths.topic("a") in names]
    assert wave == [paths.CONTROLLER_EPOCH, f"{own.PROCEDURES}/{pid:010}", paths.topic("a"), paths.topic("b")]
    assert statuses(w, pid) == [Status.BEGUN] * PARTITIONS


@pytest.mark.seed("S2-34", "S3-14", "S3-15")
@in_world(1, 2, 3, 4)
async def test_a_plan_goes_on_after_a_failover_and_the_nonce_finds_it(w: KafkaWorld) -> None:
    await running(w)
    plan = ReassignPlan(moves(), moves_max=2)
    pid = await applied(w, plan)
    begun = moving(w)
    await w.active.crash()
    await w.begin_term()
    assert moving(w) == begun
    assert await applied(w, plan) == pid
    assert (await finished(w, pid)).state is State.SUCCESS
    assert placed(w) == [(3, 4)] * PARTITIONS


@in_world(1, 2, 3, 4)
async def test_other_clients_win_and_the_plan_names_what_they_did(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=3))
    assert moving(w) == {("a", 0), ("a", 1), ("a", 2)}
    assert await alter(w, {("a", 0): None, ("a", 1): (3,), ("b", 2): (2, 3)}) == {}
    found = await finished(w, pid)
    by_name = {(move.topic, move.partition): (move.status, move.why) for move in plan_of(found).moves}
    assert by_name["a", 0] == (Status.SUPERSEDED, "another client cancelled the reassignment")
    assert by_name["a", 1] == (Status.SUPERSEDED, "another client reassigned the partition to [3]")
    assert by_name["b", 2] == (Status.SUPERSEDED, "another client reassigned the partition to [2, 3]")
    assert [written(w, *name).replicas for name in (("a", 0), ("a", 1), ("b", 2))] == [(1, 2), (3,), (2, 3)]
    assert found.result == b"3 done, 3 superseded"


@pytest.mark.seed("S1-55")
@in_world(1, 2, 3, 4)
async def test_a_paused_plan_begins_nothing_until_it_is_resumed(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=1))
    await commanded(w, pid, paused=True)
    for _ in range(3):
        await caught_up(w)
        await asyncio.sleep(6)
        await w.settle()
    assert statuses(w, pid) == [Status.DONE] + [Status.QUEUED] * (PARTITIONS - 1)
    await commanded(w, pid, paused=False, moves_max=100)
    assert statuses(w, pid) == [Status.DONE] + [Status.BEGUN] * (PARTITIONS - 1)
    assert (await finished(w, pid)).state is State.SUCCESS


@in_world(1, 2, 3, 4)
async def test_a_stopped_plan_ends_with_what_it_has_begun(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=2))
    await commanded(w, pid, stop=True)
    assert (await finished(w, pid)).result == b"2 done, 4 stopped"
    assert placed(w) == [(3, 4)] * 2 + [(1, 2)] * 4


@in_world(1, 2, 3, 4)
async def test_an_aborted_plan_gives_every_partition_its_original_replicas(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=2))
    await join(w)
    await propagated(w)
    assert statuses(w, pid) == [Status.DONE] * 2 + [Status.BEGUN] * 2 + [Status.QUEUED] * 2
    await aborted(w, pid)
    found = await finished(w, pid)
    assert (found.state, found.error) == (State.ROLLEDBACK, "aborted")
    assert placed(w) == [(1, 2)] * PARTITIONS
    assert not moving(w)
    w.agreed()


@in_world(1, 2, 3, 4)
async def test_an_aborted_plan_says_which_partition_it_cannot_restore(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(target=(1, 4)), moves_max=1))
    await join(w)
    await propagated(w)
    assert statuses(w, pid) == [Status.DONE, Status.BEGUN] + [Status.QUEUED] * 4
    w.die(2)
    await w.settle()
    await aborted(w, pid)
    found = await finished(w, pid)
    assert found.state is State.ROLLEDBACK
    refused = [move for move in plan_of(found).moves if move.status is Status.REFUSED]
    assert [(move.topic, move.partition, move.why) for move in refused] == [
        ("a", 0, "an added replica's broker is not live: start it first")
    ]
    assert [written(w, "a", number).replicas for number in (0, 1)] == [(1, 4), (1, 2)]


@pytest.mark.seed("S1-29")
@in_world(1, 2, 3)
async def test_a_move_to_a_dead_broker_waits_for_it_and_the_others_go_on(w: KafkaWorld) -> None:
    await running(w)
    waiting, *others = moves(target=(1, 3))
    pid = await applied(w, ReassignPlan((msgspec.structs.replace(waiting, target=(3, 4)), *others)))
    for _ in range(3):
        await caught_up(w)
        await asyncio.sleep(6)
        await w.settle()
    assert statuses(w, pid) == [Status.QUEUED] + [Status.DONE] * (PARTITIONS - 1)
    assert plan_of(record(w, pid)).moves[0].why == "an added replica's broker is not live: start it first"
    await w.boot(4)
    assert (await finished(w, pid)).state is State.SUCCESS
    assert written(w, "a").replicas == (3, 4)


@in_world(1, 2, 3, 4)
async def test_a_topic_that_changes_under_the_wave_is_read_back_and_the_wave_is_decided_anew(w: KafkaWorld) -> None:
    await running(w)

    async def foreign() -> None:
        await w.operator.set(paths.topic("a"), w.node(paths.topic("a")).data, -1)  # type: ignore[union-attr]

    w.active.script.at(paths.topic("a"), partial(foreign), exact=True)
    pid = await applied(w, ReassignPlan(moves()))
    assert (await finished(w, pid)).state is State.SUCCESS
    assert placed(w) == [(3, 4)] * PARTITIONS


@in_world(1, 2, 3, 4)
async def test_two_plans_run_one_after_the_other(w: KafkaWorld) -> None:
    await running(w)
    some, others = moves()[:2], moves()[2:]
    first = await applied(w, ReassignPlan(some, moves_max=1))
    second = await applied(w, ReassignPlan(others), Caller(principal="User:ops", nonce="two"))
    assert statuses(w, second) == [Status.QUEUED] * len(others)
    await finished(w, first)
    await finished(w, second)
    assert placed(w) == [(3, 4)] * PARTITIONS


@in_world(1, 2, 3, 4)
async def test_a_partition_whose_topic_is_deleted_ends_superseded(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan((*moves(), PlannedMove("gone", 0, (1,), (2,)))))
    found = plan_of(await finished(w, pid))
    assert [move.why for move in found.moves if move.status is Status.SUPERSEDED] == ["the partition was deleted"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (b"{", "the command cannot be read"),
        (b'{"moves_max":0}', "moves_max is 0, it must be at least 1"),
        (b'{"bytes_max":-1}', "bytes_max is -1: give 0 for no cap"),
        (b'{"broker_moves_max":-1}', "broker_moves_max is -1, it must be at least 1"),
        (b'{"broker_bytes_max":-1}', "broker_bytes_max is -1: give 0 for no cap"),
        (b'{"rate_bytes_per_s":-1}', "rate_bytes_per_s is -1: give 0 for none, or at most"),
        (b'{"rate_bytes_per_s":%d}' % (RATE_BYTES_PER_S_MAX + 1), "give 0 for none, or at most"),
    ],
)
@in_world(1, 2, 3, 4)
async def test_a_command_that_cannot_be_carried_out_is_refused(w: KafkaWorld, command: bytes, why: str) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=1))
    with pytest.raises(ProcedureRefused, match=why):
        await w.term.procedures.engine.command(pid, command)


@in_world(1, 2, 3, 4)
async def test_records_that_cannot_be_read_leave_the_term_without_procedures_until_they_can(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=1, paused=True))
    await w.operator.set(own.PROCEDURES, b"many", -1)
    await w.active.crash()
    await w.begin_term()
    assert not w.term.gate.ended
    with pytest.raises(ProcedureRefused, match=r"procedures stand still: .*write the highest pid that was ever used"):
        _ = w.term.procedures.engine
    await w.operator.set(own.PROCEDURES, b"%d" % pid, -1)
    await asyncio.sleep(31)
    await w.settle()
    assert record(w, pid).kind == NAME
    assert Assignment((1, 2)) == written(w, "b")


# -- throttles


@in_world(1, 2, 3, 4)
async def test_throttles_are_in_force_before_the_first_move_and_gone_at_the_end(w: KafkaWorld) -> None:
    await running(w)
    seen: list[dict[str, str]] = []
    w.active.script.at(paths.topic("a"), lambda: seen.append(config(w, "brokers", "3")), exact=True)
    pid = await applied(w, ReassignPlan(moves(), moves_max=2, rate_bytes_per_s=5_000))
    assert seen == [dict.fromkeys(RATES, "5000")]
    assert throttled(w) == {"brokers 1", "brokers 2", "brokers 3", "brokers 4", "topics a"}
    assert config(w, "topics", "a") == {LISTS[0]: "0:1,0:2,1:1,1:2", LISTS[1]: "0:3,0:4,1:3,1:4"}
    assert (await finished(w, pid)).state is State.SUCCESS
    assert throttled(w) == set()


@in_world(1, 2, 3, 4)
async def test_a_replica_is_throttled_from_the_begin_of_its_move_until_it_is_in_sync(w: KafkaWorld) -> None:
    await running(w)
    await applied(w, ReassignPlan(moves(), moves_max=2, rate_bytes_per_s=5_000))
    await in_isr(w, "a", 0, 3)
    assert config(w, "topics", "a") == {LISTS[0]: "0:1,0:2,0:3,1:1,1:2", LISTS[1]: "0:4,1:3,1:4"}, "3 may lead by now"
    await in_isr(w, "a", 0, 4)
    assert moving(w) == {("a", 1), ("a", 2)}
    assert config(w, "topics", "a") == {LISTS[0]: "1:1,1:2,2:1,2:2", LISTS[1]: "1:3,1:4,2:3,2:4"}
    await join(w)
    await propagated(w)
    assert moving(w) == {("b", 0), ("b", 1)}
    assert (config(w, "topics", "a"), config(w, "brokers", "1")) == ({}, dict.fromkeys(RATES, "5000"))
    assert config(w, "topics", "b") == {LISTS[0]: "0:1,0:2,1:1,1:2", LISTS[1]: "0:3,0:4,1:3,1:4"}


@in_world(1, 2, 3, 4)
async def test_a_replica_that_falls_out_of_sync_before_its_move_ends_is_throttled_again(w: KafkaWorld) -> None:
    await running(w)
    await applied(w, ReassignPlan(moves(), moves_max=1, rate_bytes_per_s=5_000))
    await in_isr(w, "a", 0, 3)
    assert config(w, "topics", "a")[LISTS[1]] == "0:4"
    state = w.states["a", 0]
    await w.alter_partition(state.leader, w.proposal("a", 0, (1, 2)))
    await gathered(w)
    assert config(w, "topics", "a")[LISTS[1]] == "0:3,0:4"


@in_world(1, 2, 3, 4)
async def test_a_list_of_another_client_keeps_its_replicas_when_those_of_the_plan_go(w: KafkaWorld) -> None:
    await running(w)
    path = paths.config("topics", "a")
    if w.node("/config/topics") is None:
        await w.operator.create("/config/topics", None)
    data = msgspec.json.encode({"version": 1, "config": {LISTS[1]: "9:9", "retention.ms": "5"}})
    await (w.operator.create(path, data) if w.node(path) is None else w.operator.set(path, data, -1))
    pid = await applied(w, ReassignPlan(moves(), moves_max=1, rate_bytes_per_s=5_000))
    assert config(w, "topics", "a")[LISTS[1]] == "9:9,0:3,0:4"
    await in_isr(w, "a", 0, 4)
    assert config(w, "topics", "a")[LISTS[1]] == "9:9,0:3"
    await in_isr(w, "a", 0, 3)
    assert config(w, "topics", "a")[LISTS[1]] == "9:9,1:3,1:4"
    assert (await finished(w, pid)).state is State.SUCCESS
    assert config(w, "topics", "a") == {LISTS[1]: "9:9", "retention.ms": "5"}


@in_world(1, 2, 3, 4)
async def test_a_topic_whose_lists_cannot_be_set_costs_its_own_moves_alone(w: KafkaWorld) -> None:
    await running(w)
    path = paths.config("topics", "b")
    await (w.operator.create(path, b"{") if w.node(path) is None else w.operator.set(path, b"{", -1))
    pid = await applied(w, ReassignPlan(moves(), moves_max=2, rate_bytes_per_s=5_000))
    await join(w)
    await propagated(w)
    await gathered(w)
    assert moving(w) == {("a", 2)}
    await in_isr(w, "a", 2, 3)
    assert config(w, "topics", "a")[LISTS[1]] == "2:4"
    assert (await finished(w, pid)).state is State.SUCCESS
    assert statuses(w, pid) == [Status.DONE] * 3 + [Status.REFUSED] * 3
    why = plan_of(record(w, pid)).moves[-1].why
    assert why.startswith(f"its throttle cannot be set: {path} cannot be used: ")
    assert config(w, "topics", "a") == config(w, "brokers", "3") == {}


@in_world(1, 2, 3, 4)
async def test_moves_that_are_still_to_be_cancelled_stay_throttled_while_moves_are_paused(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=2, rate_bytes_per_s=5_000))
    await PauseView(lambda: w.term).pause(PauseRequest(), "uid 0")
    await w.settle()
    await aborted(w, pid)
    await gathered(w)
    assert moving(w) == {("a", 0), ("a", 1)}
    assert config(w, "topics", "a")[LISTS[1]] == "0:3,0:4,1:3,1:4"


@pytest.mark.parametrize("error", [NotConnected, OutcomeUnknown])
@in_world(1, 2, 3, 4)
async def test_a_wave_goes_on_in_the_same_term_although_the_connection_is_lost_behind_its_write(
    w: KafkaWorld, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    await running(w)
    lost = [True]

    async def losing(*given: Any, **more: Any) -> None:
        if lost:
            lost.clear()
            raise error("lost")
        await go_on(*given, **more)

    monkeypatch.setattr(reassign, "go_on", losing)
    term = w.term
    pid = await applied(w, ReassignPlan(moves(), moves_max=2))
    assert not lost
    await join(w)
    await propagated(w)
    assert [status is Status.DONE for status in statuses(w, pid)[:2]] == [True, True]
    assert w.term is term


@in_world(1, 2, 3, 4)
async def test_isr_changes_are_gathered_before_lists_are_written(w: KafkaWorld) -> None:
    await running(w)
    await applied(w, ReassignPlan(moves(), moves_max=6, rate_bytes_per_s=5_000))
    await gathered(w)
    for broker, number in ((3, 0), (3, 1)):
        state = w.states["a", number]
        await w.alter_partition(state.leader, w.proposal("a", number, (*state.isr, broker)))
        await w.settle()
        assert config(w, "topics", "a")[LISTS[1]] == "0:4,1:3,1:4,2:3,2:4", "the second change waits"
    await gathered(w)
    assert config(w, "topics", "a")[LISTS[1]] == "0:4,1:4,2:3,2:4"


@in_world(1, 2, 3, 4)
async def test_a_plan_whose_lists_stand_writes_nothing_more_for_them(w: KafkaWorld) -> None:
    await running(w)
    await applied(w, ReassignPlan(moves(), moves_max=2, rate_bytes_per_s=5_000))
    w.forget()
    for _ in range(3):
        await asyncio.sleep(6)
        await w.settle()
    assert w.active.script.writes == []


@in_world(1, 2, 3, 4)
async def test_throttles_are_gone_after_a_roll_back_too_and_former_values_are_back(w: KafkaWorld) -> None:
    await running(w)
    path = paths.config("brokers", "3")
    data = b'{"version":1,"config":{"follower.replication.throttled.rate":"77"}}'
    for parent in ("/config/brokers",):
        if w.node(parent) is None:
            await w.operator.create(parent, None)
    await w.operator.create(path, data)
    pid = await applied(w, ReassignPlan(moves(), moves_max=2, rate_bytes_per_s=5_000))
    assert config(w, "brokers", "3")["follower.replication.throttled.rate"] == "5000"
    await aborted(w, pid)
    assert (await finished(w, pid)).state is State.ROLLEDBACK
    assert config(w, "brokers", "3") == {"follower.replication.throttled.rate": "77"}
    assert throttled(w) == {"brokers 3"}


@in_world(1, 2, 3, 4)
async def test_another_rate_is_written_and_a_rate_of_zero_lifts_the_throttle_at_once(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=2, rate_bytes_per_s=5_000))
    await commanded(w, pid, rate_bytes_per_s=9_000)
    assert config(w, "brokers", "1") == dict.fromkeys(RATES, "9000")
    await commanded(w, pid, rate_bytes_per_s=0)
    assert throttled(w) == set()
    assert (await finished(w, pid)).state is State.SUCCESS


@in_world(1, 2, 3, 4)
async def test_the_rate_and_the_caps_of_a_plan_that_is_taken_back_can_be_changed_and_nothing_else(
    w: KafkaWorld,
) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=3, rate_bytes_per_s=5_000))
    await commanded(w, pid, paused=True, moves_max=1)
    await join(w)
    await propagated(w)
    await aborted(w, pid)
    assert (record(w, pid).state, len(moving(w))) == (State.FAILED, 1), "three that are done go back one by one"
    await commanded(w, pid, paused=False, rate_bytes_per_s=9_000, moves_max=100)
    assert config(w, "brokers", "1") == dict.fromkeys(RATES, "9000")
    assert len(moving(w)) == 3
    for change in (b'{"paused":true}', b'{"held":true}', b'{"stop":true}'):
        with pytest.raises(ProcedureRefused, match="is being taken back: give it caps or a rate"):
            await w.term.procedures.engine.command(pid, change)
    assert (await finished(w, pid)).state is State.ROLLEDBACK
    assert (placed(w), throttled(w)) == ([(1, 2)] * PARTITIONS, set())


@in_world(1, 2, 3, 4)
async def test_a_throttle_that_another_client_changed_stays(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=2, rate_bytes_per_s=5_000))
    path = paths.config("brokers", "1")
    await w.operator.set(path, b'{"version":1,"config":{"leader.replication.throttled.rate":"1"}}', -1)
    await finished(w, pid)
    assert config(w, "brokers", "1") == {"leader.replication.throttled.rate": "1"}
    assert throttled(w) == {"brokers 1"}


@in_world(1, 2, 3, 4)
async def test_the_next_daemon_lifts_the_throttles_of_the_one_that_died(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=2, rate_bytes_per_s=5_000))
    await w.active.crash()
    await w.begin_term()
    assert throttled(w)
    assert (await finished(w, pid)).state is State.SUCCESS
    assert throttled(w) == set()


@in_world(1, 2, 3, 4)
async def test_a_plan_that_is_held_has_no_throttle_begins_nothing_and_goes_on_once_it_is_resumed(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=1, rate_bytes_per_s=5_000))
    holding = asyncio.ensure_future(w.term.procedures.hold(5.0))
    await w.settle()
    assert (await holding)[0].startswith(f"plans [{pid}] are paused")
    assert throttled(w) == set()
    await w.active.crash()
    await w.begin_term()
    for _ in range(3):
        await caught_up(w)
        await asyncio.sleep(6)
        await w.settle()
    assert statuses(w, pid) == [Status.DONE] + [Status.QUEUED] * (PARTITIONS - 1)
    await commanded(w, pid, paused=False)
    assert throttled(w)
    assert (await finished(w, pid)).state is State.SUCCESS
    assert throttled(w) == set()


@in_world(1, 2, 3, 4)
async def test_a_plan_that_could_not_be_paused_is_not_said_to_be(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=1))
    engine = w.term.procedures.engine
    with mock.patch.object(engine, "command", side_effect=StoreFailed("the store is gone")):
        said = await w.term.procedures.hold(5.0)
    [sentence] = said
    assert sentence.startswith(f"plans [{pid}] could not be paused, and go on when regent has the role again: ")


@in_world(1, 2, 3, 4)
async def test_without_plans_nothing_is_held(w: KafkaWorld) -> None:
    await running(w)
    assert await w.term.procedures.hold(5.0) == []


@in_world(1, 2, 3, 4)
async def test_a_held_plan_is_taken_back_when_it_is_aborted(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=2, held=True))
    await aborted(w, pid)
    assert (await finished(w, pid)).state is State.ROLLEDBACK


@in_world(1, 2, 3, 4)
async def test_a_topic_that_zookeeper_refuses_is_refused_alone_and_the_others_move(w: KafkaWorld) -> None:
    await running(w)
    w.server.tree._nodes[paths.topic("a")].acls = (Acl(READ, "world", "anyone"),)
    pid = await applied(w, ReassignPlan(moves()))
    await asyncio.sleep(2)
    await w.settle()
    found = await finished(w, pid)
    assert found.result == b"3 done, 3 refused"
    assert {move.why for move in plan_of(found).moves if move.status is Status.REFUSED} == {
        "ZooKeeper refused the write (NO_AUTH): check jute.maxbuffer and the znode's ACL"
    }


@pytest.mark.parametrize("bytes_max", [1, 250], ids=["less than a topic", "less than both with their names"])
@in_world(1, 2, 3, 4)
async def test_a_wave_is_bounded_by_the_bytes_of_its_topics_and_one_large_topic_goes_alone(
    w: KafkaWorld, monkeypatch: pytest.MonkeyPatch, bytes_max: int
) -> None:
    await running(w)
    monkeypatch.setattr(plan_progress, "BYTES_MAX", bytes_max)
    pid = await applied(w, ReassignPlan(moves()))
    waves = [names[2:] for names in w.active.script.writes if f"{own.PROCEDURES}/{pid:010}" in names]
    assert [wave for wave in waves if wave] == [[paths.topic("a")], [paths.topic("b")]]
    assert statuses(w, pid) == [Status.BEGUN] * PARTITIONS


@in_world(1, 2, 3, 4)
async def test_attempts_in_vain_are_counted_for_one_wave_and_not_for_the_whole_plan(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=1))
    for _ in range(PARTITIONS):

        async def foreign() -> None:
            for topic in "ab":
                node = w.node(paths.topic(topic))
                assert node is not None
                await w.operator.set(paths.topic(topic), node.data, -1)

        w.active.script.at(own.PROCEDURES, foreign)
        await join(w)
        await propagated(w)
        await asyncio.sleep(10)
        await w.settle()
        assert record(w, pid).attempts <= 1
    assert (await finished(w, pid)).state is State.SUCCESS


@in_world(1, 2, 3, 4)
async def test_a_configuration_that_cannot_be_read_keeps_no_other_throttle_in_force(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=100, rate_bytes_per_s=5_000))
    path = paths.config("brokers", "1")
    node = w.node(path)
    assert node is not None
    await w.operator.set(path, b"{", -1)
    for _ in range(3):
        await caught_up(w)
        await asyncio.sleep(6)
        await w.settle()
    assert not record(w, pid).state.is_final
    assert f"{path} cannot be used" in record(w, pid).error
    await w.operator.set(path, node.data, -1)
    assert (await finished(w, pid)).state is State.SUCCESS
    assert throttled(w) == set()


@pytest.mark.parametrize("beside", [0, 1_000])
@in_world(1, 2, 3, 4)
async def test_many_records_are_loaded_once_all_brokers_have_the_states_of_the_term(
    w: KafkaWorld, monkeypatch: pytest.MonkeyPatch, beside: int
) -> None:
    await running(w)
    await finished(w, await applied(w, ReassignPlan(moves())))
    await w.active.crash()
    behind: list[frozenset[int]] = []
    load = Engine.load

    async def noted(engine: Engine[Any]) -> None:
        behind.append(w.term.controller.channels._behind())
        await load(engine)

    monkeypatch.setattr(Engine, "load", noted)
    monkeypatch.setattr(procedures, "RECORDS_BESIDE_MAX", beside)
    await w.begin_term()
    await w.settle()
    assert [bool(brokers) for brokers in behind] == [beside > 0]
