"""ISR changes: AlterPartition with its errors, and below IBP 2.7-IV2 notes and ISRs that leaders write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from brokers.wire.calls import AlterPartitionCall, read_call, read_header
from brokers.wire.errors import Error
from brokers.wire.primitives import Reader
from brokers.wire.replies import AlterPartitionReply, PartitionReply, encode_reply
from controller.kafka.partitions.isr_changes import CALLS_MAX
from controller.kafka.path.controller import Controller
from metadata_store import paths
from metadata_store.acl import CREATE, READ
from state_machines.decisions.leader_election import ElectionType
from state_machines.decisions.reassignment import LAST_IN_SYNC
from state_machines.model.types import Assignment, TopicPartition
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.cluster import id_of
from tests.kit.kafka.parts import LEADER_AND_ISR, UPDATE_METADATA
from tests.kit.kafka.reassignments import alter, caught_up, propagated, written
from tests.kit.kafka.world import KafkaWorld, in_world, world
from tests.kit.wire import part, read_response, to_uuid, write_request


async def running(w: KafkaWorld, ibp: str = "3.9") -> None:
    """t-0 led by 1, t-1 by 2, both in sync on 1, 2, 3; u-0 has one replica."""
    await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True)
    await w.topic("u", (1,), leaders=True)
    await w.serve(ibp)
    w.forget()


def only(reply: AlterPartitionReply) -> PartitionReply:
    assert reply.error == Error.NONE
    [found] = reply.partitions
    return found


@pytest.mark.seed("S4-80")
@in_world(before=running)
async def test_an_isr_change_is_committed_and_propagated_without_a_new_leader_epoch(w: KafkaWorld) -> None:
    found = only(await w.alter_partition(1, w.proposal("t", 0, (1, 3))))
    assert (found.error, found.leader, found.leader_epoch, found.isr, found.partition_epoch) == (0, 1, 3, (1, 3), 1)
    assert (w.states["t", 0].isr, w.states["t", 0].leader_epoch, w.states["t", 0].version) == ((1, 3), 3, 1)
    await w.propagated()
    [(_, told)] = w.wires.partitions(2, UPDATE_METADATA)
    assert (told.isr, told.zk_version) == ((1, 3), 1)
    assert not w.wires.requests(3, LEADER_AND_ISR), "brokers ignore a leader epoch that they know"


@pytest.mark.kafka("ControllerIntegrationTest.testIdempotentAlterPartition")
@pytest.mark.seed("S4-80")
@in_world(before=running)
async def test_a_repeated_isr_change_succeeds_with_the_present_state(w: KafkaWorld) -> None:
    asked = w.proposal("t", 0, (1, 3))
    await w.alter_partition(1, asked)
    zxid = w.server.tree.zxid
    again = only(await w.alter_partition(1, asked))
    assert (again.error, again.partition_epoch, again.isr) == (0, 1, (1, 3))
    assert w.server.tree.zxid == zxid


REFUSED: dict[str, tuple[dict[str, Any], Error, Error]] = {
    "unknown topic": ({"topic": bytes(15) + b"?"}, Error.UNKNOWN_TOPIC_ID, Error.UNKNOWN_TOPIC_OR_PARTITION),
    "unknown partition": ({"partition": 9}, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_OR_PARTITION),
    "negative partition": ({"partition": -1}, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_OR_PARTITION),
    "leader knows a later leader epoch": ({"leader_epoch": 4}, Error.NOT_CONTROLLER, Error.NOT_CONTROLLER),
    "leader knows a later partition epoch": ({"partition_epoch": 1}, Error.NOT_CONTROLLER, Error.NOT_CONTROLLER),
    "older leader epoch": ({"leader_epoch": 2}, Error.FENCED_LEADER_EPOCH, Error.FENCED_LEADER_EPOCH),
    "older partition epoch": ({"partition_epoch": -1}, Error.INVALID_UPDATE_VERSION, Error.INVALID_UPDATE_VERSION),
    "recovering": ({"recovering": True}, Error.INVALID_REQUEST, Error.INVALID_REQUEST),
    "a broker that is gone": ({"isr": (1, 9)}, Error.INELIGIBLE_REPLICA, Error.OPERATION_NOT_ATTEMPTED),
    "no replica of it": ({"isr": (1, 4)}, Error.INVALID_REQUEST, Error.INVALID_REQUEST),
    "without its leader": ({"isr": (2, 3)}, Error.INVALID_REQUEST, Error.INVALID_REQUEST),
    "a replica twice": ({"isr": (1, 2, 2)}, Error.INVALID_REQUEST, Error.INVALID_REQUEST),
    "an empty ISR": ({"isr": ()}, Error.INVALID_REQUEST, Error.INVALID_REQUEST),
}


@pytest.mark.kafka("ControllerIntegrationTest.testAlterPartitionErrors")
@pytest.mark.seed("S4-80", "S4-86")
@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("why", REFUSED)
@in_virtual_time
async def test_what_is_refused_is_refused_with_kafkas_error_and_changes_nothing(why: str, version: int) -> None:
    changes, by_id, by_name = REFUSED[why]
    async with world(1, 2, 3, 4) as w:
        await running(w)
        fields = {"isr": (1, 2), **changes}
        if version < 2:
            fields["topic"] = "?" if "topic" in fields else "t"
        before = w.states["t", 0]
        found = only(await w.alter_partition(1, w.proposal("t", 0, **fields), version=version))
        assert Error(found.error) is (by_id if version >= 2 else by_name)
        assert w.states["t", 0] == before
        assert w.active.script.writes == []


@pytest.mark.kafka("ControllerIntegrationTest.testAlterPartitionErrors")
@pytest.mark.seed("S4-80", "S4-86")
@in_world(before=running)
async def test_isr_changes_of_a_former_incarnation_are_refused_as_a_whole(w: KafkaWorld) -> None:
    former = w.broker_epoch(1)
    await w.bounce(1)
    await w.settle()
    asked = w.proposal("t", 1, (2,))
    assert (await w.alter_partition(1, asked, epoch=former)).error == Error.STALE_BROKER_EPOCH
    assert (await w.alter_partition(77, asked, epoch=1)).error == Error.STALE_BROKER_EPOCH


@pytest.mark.kafka("ControllerIntegrationTest.testAlterPartitionErrors")
@pytest.mark.seed("S4-80")
@pytest.mark.parametrize(("version", "ineligible"), [(1, Error.OPERATION_NOT_ATTEMPTED), (3, Error.INELIGIBLE_REPLICA)])
@in_world()
async def test_a_leader_that_shuts_down_gets_an_error_for_each_partition(
    w: KafkaWorld, version: int, ineligible: Error
) -> None:
    await w.topic("alone", (1, 2), leaders=True, isr=(1,))
    await running(w)
    names: list[dict[str, Any]] = [{"topic": name} if version < 2 else {} for name in ("alone", "t")]
    asked = [w.proposal("alone", 0, isr, **names[0]) for isr in ((1,), (1, 2))]
    moved = w.proposal("t", 0, (1,), **names[1])
    await w.controlled_shutdown(1)
    replies = [await w.alter_partition(1, one, moved, version=version) for one in asked]
    assert [reply.error for reply in replies] == [Error.NONE] * 2
    errors = [[partition.error for partition in reply.partitions] for reply in replies]
    assert errors == [[Error.NONE, Error.FENCED_LEADER_EPOCH], [ineligible, Error.FENCED_LEADER_EPOCH]]


@pytest.mark.seed("S4-80")
@in_world()
async def test_waiting_calls_share_a_commit_and_each_has_its_response(w: KafkaWorld) -> None:
    await w.topic("wide", *[(1, 2, 3)] * 300, leaders=True)
    await running(w)
    calls = [w.alter_partition(1, w.proposal("wide", p, (1, 2))) for p in range(CALLS_MAX + 50)]
    calls.append(w.alter_partition(2, w.proposal("t", 1, (2, 1)), w.proposal("t", 0, (1,), topic=bytes(16))))
    replies = await asyncio.gather(*calls)
    assert [only(reply).isr for reply in replies[:-1]] == [(1, 2)] * (CALLS_MAX + 50)
    assert [p.error for p in replies[-1].partitions] == [0, Error.UNKNOWN_TOPIC_ID]
    assert len(w.active.script.writes) == 2, f"{CALLS_MAX} calls in the first commit, the rest in the second"


@in_world(before=running)
async def test_of_two_requests_for_one_partition_the_second_is_outdated(w: KafkaWorld) -> None:
    first, second = w.proposal("t", 0, (1, 2)), w.proposal("t", 0, (1, 3))
    replies = await asyncio.gather(w.alter_partition(1, first), w.alter_partition(1, second))
    assert [Error(only(reply).error) for reply in replies] == [Error.NONE, Error.INVALID_UPDATE_VERSION]
    assert w.states["t", 0].isr == (1, 2)


@in_world(before=running)
async def test_a_foreign_write_in_between_is_an_invalid_version_for_the_leader(w: KafkaWorld) -> None:
    w.active.script.at("t/partitions/0/state", lambda: w.leader_writes("t", 0, (1,)))
    found = only(await w.alter_partition(1, w.proposal("t", 0, (1, 2))))
    assert Error(found.error) is Error.INVALID_UPDATE_VERSION
    assert w.states["t", 0].isr == (1,)
    w.agreed()


@in_world(before=running)
async def test_a_znode_that_may_not_be_written_is_no_success(w: KafkaWorld) -> None:
    w.restrict(paths.state("t", 0))
    found = only(await w.alter_partition(1, w.proposal("t", 0, (1, 2))))
    assert Error(found.error) is Error.OPERATION_NOT_ATTEMPTED
    assert not w.term.gate.ended


@pytest.mark.parametrize("fault", ["lose_replies", "lose_requests", "suspend"])
@in_world(before=running)
async def test_a_call_survives_a_lost_connection(w: KafkaWorld, fault: str) -> None:
    session = w.active.zk.session_id
    w.active.script.at("t/partitions/0/state", lambda: getattr(w.server, fault)(session))
    asked = asyncio.create_task(w.alter_partition(1, w.proposal("t", 0, (1, 2))))
    await asyncio.sleep(0.5)
    w.server.resume(session)
    assert only(await asked).isr == (1, 2)
    assert w.states["t", 0].version == 1, "written once"


@pytest.mark.kafka("ControllerIntegrationTest.testAlterPartition")
@pytest.mark.seed("S4-80")
@pytest.mark.parametrize("version", [0, 1, 2, 3])
@in_world(before=running)
async def test_over_the_wire_in_every_version(w: KafkaWorld, version: int) -> None:
    """kio writes the request and reads the answer, as a broker would."""
    members = (
        {"new_isr_with_epochs": tuple(part(56, 3, "BrokerState", broker_id=b) for b in (1, 2))}
        if version == 3
        else {"new_isr": (1, 2)}
    )
    asked = part(56, version, "PartitionData", partition_index=0, leader_epoch=3, partition_epoch=0, **members)
    topic = part(56, version, "TopicData", topic_name="t", topic_id=to_uuid(id_of("t")), partitions=(asked,))
    frame = write_request(56, version, 7, broker_id=1, broker_epoch=w.broker_epoch(1), topics=(topic,))
    reader = Reader(frame)
    call = read_call(read_header(reader), reader)
    assert isinstance(call, AlterPartitionCall)
    reply = await w.alter_partition(1, *call.proposals, version=call.version)
    correlation, entity = read_response(56, version, encode_reply(call, 7, reply)[4:])
    assert correlation == 7
    [found] = entity.topics[0].partitions
    assert (found.error_code, found.leader_id, found.isr, found.partition_epoch) == (0, 1, (1, 2), 1)


@pytest.mark.seed("S4-80")
@in_world()
async def test_isr_changes_in_zookeeper_are_propagated_and_their_notifications_deleted(w: KafkaWorld) -> None:
    await running(w, "2.7-IV1")
    await w.leader_writes("t", 0, (1, 2))
    await w.leader_writes("t", 1, (2,))
    await w.notify(TopicPartition("t", 0), TopicPartition("gone", 3))
    await w.operator.create(f"{paths.ISR_CHANGES}/isr_change_", b"broken", sequential=True)
    await w.notify(TopicPartition("t", 1))
    await w.propagated()
    w.agreed()
    assert w.children(paths.ISR_CHANGES) == []
    assert {p.isr for _, p in w.wires.partitions(3, UPDATE_METADATA)} == {(1, 2), (2,)}
    assert not w.counters.malformed, "the broken note is gone, too"
    w.die(2)
    await w.propagated()
    assert w.leaders()["t", 1] == (-1, (2,)), "decided on what the leader wrote"


@in_world()
async def test_an_unusable_entry_of_a_notification_costs_itself_alone(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await running(w, "2.7-IV1")
    await w.leader_writes("t", 0, (1, 2))
    note = b'{"version":1,"partitions":[{"topic":"t","partition":-1},{"topic":"t","partition":0}]}'
    await w.operator.create(f"{paths.ISR_CHANGES}/isr_change_", note, sequential=True)
    await w.propagated()
    assert {p.isr for _, p in w.wires.partitions(3, UPDATE_METADATA)} == {(1, 2)}
    assert w.children(paths.ISR_CHANGES) == []
    assert f"{paths.ISR_CHANGES}: 1 of 2 entries cannot be used" in caplog.text


@in_world()
async def test_a_note_that_cannot_be_deleted_ends_no_term(w: KafkaWorld) -> None:
    w.restrict(paths.ISR_CHANGES, CREATE | READ)
    await w.notify(TopicPartition("t", 0))
    await running(w, "2.7-IV1")
    await w.leader_writes("t", 0, (1, 2), notify=True)
    await w.propagated()
    assert not w.term.gate.ended
    w.agreed()


IBP = "2.7-IV1"
PREFERRED = ElectionType.PREFERRED


async def running_below_2_7(w: KafkaWorld, *, ibp: str = IBP, isr: tuple[int, ...] = (2, 3)) -> None:
    """t-0 and t-1 prefer broker 1 and are led by 2; as far as anybody knows, t-0 has not caught up there."""
    await w.topic("t", (1, 2, 3), leaders=True, led_by=2, isr=isr)
    await w.topic("u", (1, 2, 3), leaders=True, led_by=2)
    await w.serve(ibp)
    w.active.script.writes.clear()


@contextmanager
def rereads(w: KafkaWorld) -> Iterator[list[list[tuple[str, int]]]]:
    """Partitions of each time that state znodes are read again."""
    found: list[list[tuple[str, int]]] = []

    async def reread(c: Controller, rows: list[int]) -> object:
        found.append([c.cluster.name(i) for i in rows])
        return await again(c, rows)

    again = Controller.reread
    with mock.patch.object(Controller, "reread", reread):
        yield found


@pytest.mark.seed("S4-70", "S4-80")
@in_world(before=running_below_2_7)
async def test_a_preferred_replica_that_rejoined_without_a_notification_leads(w: KafkaWorld) -> None:
    await w.leader_writes("t", 0, (2, 3, 1))
    with rereads(w) as found:
        assert await w.elect(PREFERRED, ("t", 0), ("u", 0)) == {("t", 0): 0, ("u", 0): 0}
    assert found == [[("t", 0)]]
    assert w.leaders() == {("t", 0): (1, (2, 3, 1)), ("u", 0): (1, (1, 2, 3))}
    assert [len(multi) for multi in w.active.script.writes] == [2, 2], "nobody waits for what is read again"
    w.agreed()


@pytest.mark.seed("S4-80")
@in_world(before=running_below_2_7)
async def test_a_server_of_zookeeper_that_is_behind_catches_up_before_an_isr_is_read(w: KafkaWorld) -> None:
    w.server.lag(w.active.zk.session_id)
    await w.leader_writes("t", 0, (2, 3, 1))
    assert await w.elect(PREFERRED, ("t", 0)) == {("t", 0): 0}


@pytest.mark.seed("S4-71", "S4-80")
@in_world(before=running_below_2_7)
async def test_a_preferred_replica_that_rejoined_leads_after_a_request_by_znode(w: KafkaWorld) -> None:
    await w.leader_writes("t", 0, (2, 3, 1))
    await w.request_preferred(("t", 0))
    await w.propagated()
    assert w.leaders()["t", 0] == (1, (2, 3, 1))


@pytest.mark.seed("S4-80")
@in_world(before=running_below_2_7)
async def test_a_replica_that_is_still_not_in_sync_is_refused_after_one_read(w: KafkaWorld) -> None:
    with rereads(w) as found:
        assert await w.elect(PREFERRED, ("t", 0)) == {("t", 0): 80}
    assert found == [[("t", 0)]]
    assert w.active.script.writes == []


@pytest.mark.seed("S4-80")
@in_world()
async def test_nothing_is_read_again_where_the_controller_alone_writes_isrs(w: KafkaWorld) -> None:
    await running_below_2_7(w, ibp="3.9")
    with rereads(w) as found:
        assert await w.elect(PREFERRED, ("t", 0)) == {("t", 0): 80}
    assert found == []


@in_world(before=running_below_2_7)
async def test_a_replica_that_is_down_is_refused_without_a_read(w: KafkaWorld) -> None:
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
@in_world(before=running_below_2_7)
async def test_the_automatic_balance_moves_what_has_caught_up(w: KafkaWorld) -> None:
    await w.leader_writes("t", 0, (2, 3, 1))
    await asyncio.sleep(6.0)
    await w.propagated()
    assert w.leaders() == {("t", 0): (1, (2, 3, 1)), ("u", 0): (1, (1, 2, 3))}


@pytest.mark.seed("S4-72", "S4-80")
@in_world()
async def test_a_controlled_shutdown_finds_the_replica_that_has_caught_up(w: KafkaWorld) -> None:
    await running_below_2_7(w, isr=(2,))
    await w.leader_writes("t", 0, (2, 3))
    reply = await w.controlled_shutdown(2)
    assert list(reply.remaining) == []
    assert w.leaders()["t", 0] == (3, (3,))


@pytest.mark.seed("S4-44", "S4-80")
@in_world(before=running_below_2_7)
async def test_a_follower_that_rejoined_and_died_leaves_the_isr(w: KafkaWorld) -> None:
    await w.leader_writes("t", 0, (2, 3, 1))
    w.die(1)
    await w.propagated()
    assert w.leaders() == {("t", 0): (2, (2, 3)), ("u", 0): (2, (2, 3))}
    assert w.wires.offline(3)["t", 0] == (1,)
    w.agreed()


@pytest.mark.seed("S4-84", "S4-80")
@in_world()
async def test_a_cancel_that_only_the_known_isr_forbids_is_done(w: KafkaWorld) -> None:
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
