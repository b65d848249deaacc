"""Calls of clients and their records: the multi of each, other writers, refused records, failovers, bounds."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from unittest import mock

import pytest
from msgspec import Struct

from brokers.listener.controller_listener import NotController
from brokers.wire.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from controller.kafka.term import procedures
from controller.procedures import requests
from controller.procedures.recorder import RESULT_BYTES_MAX, CallKind
from controller.process.clock import wall_ms
from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.acl import READ, Acl
from metadata_store.errors import OutcomeUnknown
from metadata_store.records import codec
from metadata_store.records.port import StoreFailed
from metadata_store.records.zookeeper import ZooKeeperRecords
from state_machines.procedures.record import Caller
from state_machines.procedures.states import State
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.calls import CALL, carried, create, created, grow, scram, topic
from tests.kit.kafka.recorded_calls import ALICE, CALLS, FIRST, Call, begun, effect, in_memory, prepared, stored, warmed
from tests.kit.kafka.world import KafkaWorld, in_world, world

EACH: Final = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.kind.value)


def lost() -> None:
    raise OutcomeUnknown("the reply is lost")


# -- one call


@EACH
@in_world(before=warmed)
async def test_a_call_is_one_multi_with_its_record(w: KafkaWorld, call: Call) -> None:
    await carried(w, call.body, **ALICE)
    multi = next(paths_ for paths_ in w.active.script.writes if FIRST in paths_)
    assert multi == [paths.CONTROLLER_EPOCH, *call.writes, FIRST]
    assert sum(FIRST in one for one in w.active.script.writes) == 1
    [record] = stored(w).values()
    assert (record.pid, record.kind, record.state) == (1, call.kind.value, State.SUCCESS)
    assert record.caller == Caller("User:alice", "admin-1 at 10.0.0.7", nonce=CALL.hex())
    assert record.result.decode() == call.result
    assert in_memory(w) == stored(w)
    assert (w.counters.recorded_calls, w.counters.unrecorded_calls) == (1, 0)


@EACH
@in_world(before=warmed)
async def test_a_repeated_call_keeps_its_record(w: KafkaWorld, call: Call) -> None:
    first = await carried(w, call.body, **ALICE)
    await w.propagated()
    found = stored(w)
    again = await carried(w, call.body, attempt=1, **ALICE)
    assert stored(w) == in_memory(w) == found
    if call.kind is not CallKind.DELETE_TOPICS:
        assert again == first
    assert w.term.procedures.engine.pid_of(Caller("User:alice", nonce=CALL.hex())) == 1
    assert w.term.procedures.engine.pid_of(Caller("User:bob", nonce=CALL.hex())) is None


@EACH
@in_world(before=warmed)
async def test_a_reply_that_is_lost_leaves_one_record(w: KafkaWorld, call: Call) -> None:
    await _one_record_although_lost(w, call, "after")


@EACH
@in_world(before=warmed)
async def test_a_write_that_is_lost_leaves_one_record(w: KafkaWorld, call: Call) -> None:
    """Its sender cannot tell it from one whose reply was lost."""
    await _one_record_although_lost(w, call, "before")


async def _one_record_although_lost(w: KafkaWorld, call: Call, when: str) -> None:
    w.active.script.at(FIRST, lost, when=when)
    try:
        await carried(w, call.body, **ALICE)
    except NotController:  # as without records: the endpoint sends the call again
        await w.settle()
        await carried(w, call.body, attempt=1, **ALICE)
    await w.propagated()
    assert stored(w) == in_memory(w)
    assert [(one.kind, one.result.decode()) for one in stored(w).values()] == [(call.kind.value, call.result)]


@EACH
@in_world(before=warmed)
async def test_a_record_that_is_refused_is_never_blamed_on_its_call(w: KafkaWorld, call: Call) -> None:
    """Another client made a znode where the record was to be."""
    await w.operator.create(FIRST, b"mine")
    answer = await carried(w, call.body, **ALICE)
    assert not failures(answer) - {3, 36}
    await w.propagated()
    assert (w.counters.recorded_calls, w.counters.unrecorded_calls) == (0, 1)
    node = w.node(FIRST)
    assert node is not None
    assert node.data == b"mine"
    assert not w.term.gate.ended
    with pytest.raises(Exception, match="refused the record of pid 1"):
        _ = w.term.procedures.engine


@EACH
@in_world(before=warmed)
async def test_a_root_that_is_gone_is_never_blamed_on_the_call(w: KafkaWorld, call: Call) -> None:
    await w.operator.delete(own.PROCEDURES, -1)
    answer = await carried(w, call.body, **ALICE)
    assert not failures(answer) - {3, 36}
    assert w.counters.unrecorded_calls == 1
    await asyncio.sleep(60.0)  # the records are loaded again, and their root made
    await w.settle()
    await created(w, create(topic("later", 1, 1)), call_id=b"another call id.")
    assert [one.kind for one in stored(w).values()] == [CallKind.CREATE_TOPICS.value]
    assert w.counters.unrecorded_calls == 1


@in_world(before=warmed)
async def test_records_that_are_being_loaded_again_still_let_an_early_request_wait(w: KafkaWorld) -> None:
    found, go_on, load = w.term.procedures, asyncio.Event(), ZooKeeperRecords.load

    async def slow(records: ZooKeeperRecords) -> Any:
        await go_on.wait()
        return await load(records)

    found._fail(StoreFailed("a record is refused"))
    with mock.patch.object(ZooKeeperRecords, "load", slow):
        for times in (1, 2):  # a request asks for it, and the pause ends while it goes on
            found.load_soon()
            await asyncio.sleep(procedures.LOAD_AGAIN_S)
            assert (found.engine_or_none, found.loads_later) == (None, True), times
        go_on.set()
        await w.settle()
    assert found.engine_or_none is not None
    assert not found.loads_later
    found._fail(StoreFailed("another one is refused"))
    await asyncio.sleep(procedures.LOAD_AGAIN_S)
    await w.settle()
    assert not found.loads_later, "each failure has its pause"


def failures(answer: Any) -> set[int]:
    """Codes of errors anywhere in a response."""
    found: set[int] = set()
    if isinstance(answer, Struct):
        for field in answer.__struct_fields__:
            value = getattr(answer, field)
            if field == "error_code" and value:
                found.add(int(value))
            elif isinstance(value, tuple):
                found.update(*(failures(one) for one in value))
    return found


@EACH
@in_world(before=prepared)
async def test_without_permission_for_the_records_calls_go_on(w: KafkaWorld, call: Call) -> None:
    await w.operator.create(own.ROOT, None)
    await w.operator.create(own.PROCEDURES, b"0")
    await w.operator.set_acls(own.PROCEDURES, (Acl(READ, "world", "anyone"),), -1)
    await w.serve()
    answer = await carried(w, call.body, **ALICE)
    assert not failures(answer) - {3, 36}
    assert w.counters.unrecorded_calls == 1
    assert not w.term.gate.ended


# -- killed at every write


@EACH
@in_virtual_time
async def test_killed_before_and_after_each_write_a_call_has_one_pid_and_one_effect(call: Call) -> None:
    async with world() as w:
        await begun(w)
        await carried(w, call.body, **ALICE)
        writes = len(w.active.script.writes)
        await w.propagated()
        clean = effect(w)
    assert writes
    for number, when in [(number, when) for number in range(1, writes + 1) for when in ("before", "after")]:
        async with world() as w:
            await begun(w)
            w.active.script.kill_at(number, when)
            try:
                await carried(w, call.body, **ALICE)
            except NotController:
                pass
            known = stored(w)
            await w.active.crash()
            await w.begin_term()
            await carried(w, call.body, attempt=1, **ALICE)
            await w.propagated()
            assert effect(w) == clean, f"killed {when} write {number}"
            assert stored(w) == in_memory(w)
            assert known.items() <= stored(w).items()
            [record] = stored(w).values()
            assert (record.kind, record.result.decode()) == (call.kind.value, call.result)


# -- many calls, and large ones


@in_world(before=warmed)
async def test_two_adjacent_calls_share_a_multi_and_have_two_records(w: KafkaWorld) -> None:
    calls = [created(w, create(topic(f"n{n}", 1, 1)), call_id=b"%16d" % n) for n in (1, 2)]
    assert await asyncio.gather(*calls) == [{"n1": 0}, {"n2": 0}]
    [multi] = [one for one in w.active.script.writes if FIRST in one]
    assert multi[-2:] == [FIRST, f"{own.PROCEDURES}/0000000002"]
    assert [record.result.decode() for record in stored(w).values()] == ["created 1 topic: n1", "created 1 topic: n2"]


@in_world(before=warmed)
async def test_of_two_adjacent_calls_each_has_its_own_outcome(w: KafkaWorld) -> None:
    """Another client creates the topic of one of them first: that call changes nothing, and has no record."""
    w.active.script.at(paths.topic("n1"), lambda: w.topic("n1", (1,)))
    calls = [created(w, create(topic(f"n{n}", 1, 1)), call_id=b"%16d" % n) for n in (1, 2)]
    assert await asyncio.gather(*calls) == [{"n1": 36}, {"n2": 0}]
    assert [record.result.decode() for record in stored(w).values()] == ["created 1 topic: n2"]
    assert stored(w) == in_memory(w)


@in_world(before=warmed)
async def test_a_result_that_was_not_as_expected_is_corrected_once(w: KafkaWorld) -> None:
    """The record is durable with the first topics; another client creates one of the last."""
    names = [f"n{number:03}" for number in range(300)]
    w.active.script.at(paths.topic("n299"), lambda: w.topic("n299", (1,)))
    found = await created(w, create(*(topic(name, 1, 1) for name in names)))
    assert found == dict.fromkeys(names, 0) | {"n299": 36}
    [record] = stored(w).values()
    assert record.result.decode().startswith("created 299 topics: n000, n001, ")
    assert record.result.decode().endswith("and 289 more; refused: 1 x TOPIC_ALREADY_EXISTS")
    assert stored(w) == in_memory(w)
    assert sum(FIRST in one for one in w.active.script.writes) == 2


@pytest.mark.timeout(600)  # a busy machine takes long
@in_world(before=warmed)
async def test_a_call_of_10_000_topics_is_recorded_once(w: KafkaWorld) -> None:
    names = [f"n{number}" for number in range(10_000)]
    found = await created(w, create(*(topic(name, 1, 1) for name in names)))
    assert not any(found.values())
    assert sum(FIRST in one for one in w.active.script.writes) == 1
    [record] = stored(w).values()
    assert len(record.result) < RESULT_BYTES_MAX


@in_world(before=warmed)
async def test_a_thousand_small_calls_have_as_many_records_and_few_writes(w: KafkaWorld) -> None:
    calls = [
        created(w, create(topic(f"n{number}", 1, 1)), call_id=b"%16d" % number, principal=f"User:{number % 7}")
        for number in range(1_000)
    ]
    await asyncio.gather(*calls)
    await w.propagated()
    records = stored(w)
    assert len(records) == 1_000
    assert records == in_memory(w)
    assert {record.caller.principal for record in records.values()} == {f"User:{n}" for n in range(7)}
    writing = [one for one in w.active.script.writes if any(path.startswith(own.PROCEDURES) for path in one)]
    assert len(writing) <= 1 + 1_000 // 100, "a block of pids, and multis of a hundred calls"


@in_world(before=warmed)
async def test_what_changes_nothing_has_no_record(w: KafkaWorld) -> None:
    zxid = w.server.tree.zxid
    await created(w, create(topic("t", 1, 1)))
    await created(w, create(topic("new", 1, 1), validate_only=True))
    await created(w, grow("t", 1))
    await created(w, CreatePartitionsRequest((), 5_000, False))
    await carried(w, DeleteTopicsRequest(5_000, ("nowhere",)))
    await carried(w, DeleteTopicsRequest(5_000, ("nowhere",)), attempt=1)
    await carried(w, scram())
    assert w.server.tree.zxid == zxid
    assert stored(w) == in_memory(w) == {}


@in_world(before=warmed)
async def test_a_deletion_counts_what_is_refused(w: KafkaWorld) -> None:
    await carried(w, DeleteTopicsRequest(5_000, ("t", "nowhere", "never")))
    [record] = stored(w).values()
    assert record.result.decode() == "marked for deletion 1 topic: t; refused: 2 x UNKNOWN_TOPIC_OR_PARTITION"


@in_world(before=warmed)
async def test_names_that_clients_choose_are_cut(w: KafkaWorld) -> None:
    await created(w, create(topic("n" * 249, 1, 1)), principal="User:" + "p" * 5_000, client_id="c" * 5_000)
    [record] = stored(w).values()
    assert (len(record.caller.principal), len(record.caller.client)) == (500, 500)
    assert len(codec.sealed(record)) < 4_096


@in_world(before=warmed)
async def test_results_go_after_their_time_in_few_turns(w: KafkaWorld) -> None:
    for number in range(20):
        await created(w, create(topic(f"n{number}", 1, 1)), call_id=b"%16d" % number)
        await asyncio.sleep(1.0)
    assert len(stored(w)) == 20
    w.forget()
    await asyncio.sleep(requests.KEPT_MS / 1000 + requests.EVICTED_EVERY_MS / 1000)
    await w.settle()
    assert stored(w) == in_memory(w) == {}
    evicting = [one for one in w.active.script.writes if any(path.startswith(own.PROCEDURES) for path in one)]
    assert len(evicting) <= 2


@in_world(before=warmed)
async def test_a_wall_clock_that_is_set_a_day_ahead_removes_no_result(w: KafkaWorld) -> None:
    await created(w, create(topic("n1", 1, 1)), call_id=b"%16d" % 1)
    set_ns = (wall_ms() + 86_400_000) * 1_000_000
    with mock.patch("controller.process.clock.time_ns", return_value=set_ns):
        await created(w, create(topic("n2", 1, 1)), call_id=b"%16d" % 2)
        await asyncio.sleep(requests.EVICTED_EVERY_MS / 1000)
        await w.settle()
    assert len(stored(w)) == 2


@in_world(before=warmed)
async def test_too_many_results_are_evicted_together(w: KafkaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "RESULTS_MAX", 10)
    monkeypatch.setattr(requests, "EVICTED_TOGETHER", 5)
    for number in range(15):
        await created(w, create(topic(f"n{number}", 1, 1)), call_id=b"%16d" % number)
        await w.settle()
        assert len(stored(w)) == (number + 1 if number < 14 else 10)
    assert stored(w) == in_memory(w)
    assert min(stored(w)) == 6


@in_world(before=warmed)
async def test_a_daemon_that_does_not_know_a_kind_leaves_its_record_alone(
    w: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await created(w, create(topic("new", 1, 1)))
    found = stored(w)
    monkeypatch.setattr(procedures, "KINDS", tuple(kind for kind in procedures.KINDS if kind.steps))
    await w.active.crash()
    await w.begin_term()
    assert in_memory(w) == {}
    assert list(w.term.procedures.engine.unusable) == [1]
    assert stored(w) == found
