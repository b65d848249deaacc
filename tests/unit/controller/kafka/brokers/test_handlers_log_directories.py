"""Failed log directories: the note of a broker, its answers with error 56, replicas offline and back (S4-29, S4-81)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from controller.kafka.brokers.log_directories import Failed
from controller.kafka.path.events import EventKind
from metadata_store import paths
from state_machines.model.types import ReplicaState
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.parts import LEADER_AND_ISR
from tests.kit.kafka.world import KafkaWorld, in_world, world


async def running(w: KafkaWorld) -> None:
    """t-0 and t-2 are led by 1, t-1 by 2; u has one replica, on 1."""
    await w.topic("t", (1, 2, 3), (2, 1, 3), (1, 3, 2), leaders=True)
    await w.topic("u", (1,), leaders=True)
    await w.serve()
    w.forget()


async def fail(w: KafkaWorld, broker: int, *lost: tuple[str, int]) -> None:
    """A log directory with these replicas fails, and the broker says so."""
    w.wires.lost[broker] = set(lost)
    await w.log_directory_fails(broker)
    await w.propagated()
    await w.propagated()


@pytest.mark.kafka("LogDirFailureTest.testProduceErrorFromFailureOn*", "LogDirFailureTest.testIOExceptionDuring*")
@pytest.mark.seed("S4-29", "S4-81")
@in_world(before=running)
async def test_a_failed_log_directory_moves_leaders_shrinks_isrs_and_is_sent_to_every_broker(w: KafkaWorld) -> None:
    await fail(w, 1, ("t", 0), ("t", 1), ("u", 0))
    assert w.leaders() == {
        ("t", 0): (2, (2, 3)), ("t", 1): (2, (2, 3)), ("t", 2): (1, (1, 3, 2)), ("u", 0): (-1, (1,)),
    }  # fmt: skip
    assert w.children(paths.LOG_DIR_EVENTS) == []
    assert w.wires.offline(3) == {("t", 0): (1,), ("t", 1): (1,), ("u", 0): (1,)}
    assert w.wires.stopped(1) == {("t", 0), ("t", 1), ("u", 0)}
    row = w.term.cluster.find("t", 0)
    assert row is not None
    assert w.term.cluster.replica_state(row, 1) is ReplicaState.OFFLINE
    w.agreed()


@pytest.mark.seed("S4-81")
@in_world()
async def test_the_broker_of_a_failed_log_directory_alone_is_sent_all_its_partitions(w: KafkaWorld) -> None:
    await w.topic("elsewhere", (2, 3), leaders=True)
    await running(w)
    await fail(w, 1)
    assert w.wires.last_sent(1, LEADER_AND_ISR).keys() == {("t", 0), ("t", 1), ("t", 2), ("u", 0)}
    assert not w.wires.requests(2, LEADER_AND_ISR)
    assert not w.wires.requests(3, LEADER_AND_ISR)
    assert [multi for multi in w.active.script.writes if "/state" in str(multi)] == [], "all is well after all"


@pytest.mark.seed("S4-29", "S4-81")
@in_world(before=running)
async def test_a_restart_brings_the_replicas_back(w: KafkaWorld) -> None:
    await fail(w, 1, ("t", 0), ("u", 0))
    w.wires.lost.clear()
    w.wires.frames.clear()
    await w.bounce(1)
    await w.propagated()
    assert w.leaders()["u", 0] == (1, (1,))
    assert w.leaders()["t", 0] == (2, (2, 3))
    assert w.wires.last_sent(1, LEADER_AND_ISR)["t", 0][0] == 2, "it follows, and may join the ISR"
    assert w.wires.offline(3)["t", 0] == ()
    found = await w.alter_partition(2, w.proposal("t", 0, (2, 3, 1)))
    assert [one.error for one in found.partitions] == [0]


@pytest.mark.seed("S4-81")
@in_world(before=running)
async def test_a_restart_with_the_directory_still_broken_fails_its_replicas_again(w: KafkaWorld) -> None:
    await fail(w, 1, ("t", 0), ("u", 0))
    await w.bounce(1)
    await w.propagated()
    await w.propagated()
    assert w.leaders()["u", 0] == (-1, (1,))
    assert w.leaders()["t", 0] == (2, (2, 3))
    assert w.leaders()["t", 2][0] == 3, "led elsewhere since its restart"


@pytest.mark.seed("S4-81")
@in_virtual_time
async def test_a_controller_that_takes_over_finds_it_out_by_its_snapshot() -> None:
    """The note is gone, or was never handled: what every broker is told first asks it, too."""
    for noted in (False, True):
        async with world() as w:
            await w.topic("t", (1, 2, 3), (2, 1, 3), leaders=True)
            w.wires.lost[1] = {("t", 0)}
            if noted:
                await w.log_directory_fails(1)
            await w.serve()
            await w.propagated()
            assert w.leaders() == {("t", 0): (2, (2, 3)), ("t", 1): (2, (2, 1, 3))}
            assert w.children(paths.LOG_DIR_EVENTS) == []


@pytest.mark.kafka("KafkaZkClientTest.testLogDirEventNotificationsDeletion")
@pytest.mark.seed("S4-81")
@in_world(before=running)
async def test_notifications_without_a_live_broker_are_deleted(w: KafkaWorld) -> None:
    for data in (b"", b"{}", b'{"version":1,"broker":2,"event":7}', b'{"version":1,"broker":9,"event":1}'):
        await w.operator.create(f"{paths.LOG_DIR_EVENTS}/log_dir_event_", data, sequential=True)
    await w.propagated()
    assert w.children(paths.LOG_DIR_EVENTS) == []
    assert not w.wires.requests(2, LEADER_AND_ISR)
    assert not w.counters.malformed
    assert not w.term.gate.ended


@pytest.mark.seed("S4-81")
@in_world(before=running)
async def test_log_directory_failures_of_a_former_incarnation_are_ignored(w: KafkaWorld) -> None:
    former = w.broker_epoch(1)
    row = w.term.cluster.find("t", 0)
    assert row is not None
    await w.bounce(1)
    await w.propagated()
    before = w.leaders()
    w.term.queue.signal(EventKind.REPLICAS_FAILED, _failed(1, former, row))
    w.term.queue.signal(EventKind.REPLICAS_FAILED, _failed(9, 1, row))
    await w.propagated()
    assert (w.leaders(), w.term.cluster.failed_dirs) == (before, {})


def _failed(broker: int, epoch: int, *rows: int) -> Failed:
    return Failed(broker, epoch, rows)


@pytest.mark.seed("S4-81")
@in_world(before=running)
async def test_log_directory_failures_of_several_brokers_are_one_decision(w: KafkaWorld) -> None:
    rows = [w.term.cluster.find("t", partition) for partition in (0, 1)]
    for broker, row in zip((1, 2), rows, strict=True):
        assert row is not None
        w.term.queue.signal(EventKind.REPLICAS_FAILED, _failed(broker, w.broker_epoch(broker), row))
    await w.propagated()
    assert [len(multi) for multi in w.active.script.writes] == [3], "the check of the epoch, and both partitions"
    assert w.leaders()["t", 0] == (2, (2, 3))
    assert w.leaders()["t", 1] == (1, (1, 3))


@pytest.mark.seed("S4-81", "S4-82")
@in_world()
async def test_an_unclean_election_follows_where_the_topic_allows_it(w: KafkaWorld) -> None:
    await w.topic("lagging", (1, 2), leaders=True, isr=(1,))
    await w.configure("topics", "lagging", unclean_leader_election_enable="true")
    await running(w)
    await fail(w, 1, ("lagging", 0))
    assert w.leaders()["lagging", 0] == (2, (2,))
    assert w.counters.unclean_elections == 1


@pytest.mark.seed("S4-81")
@in_world(before=running)
async def test_a_broker_that_shuts_down_is_not_started_anew(w: KafkaWorld) -> None:
    """What it was told to stop stays stopped."""
    await w.controlled_shutdown(1)
    await w.propagated()
    w.wires.frames.clear()
    await fail(w, 1)
    assert ("t", 1) not in w.wires.last_sent(1, LEADER_AND_ISR)


@pytest.mark.seed("S4-81")
@in_world(before=running)
async def test_a_note_while_suspended_is_read_afterwards(w: KafkaWorld) -> None:
    w.server.suspend(w.active.zk.session_id)
    w.wires.lost[1] = {("t", 0)}
    await w.log_directory_fails(1)
    await asyncio.sleep(1.0)
    w.server.resume(w.active.zk.session_id)
    await w.propagated()
    await w.propagated()
    assert w.leaders()["t", 0] == (2, (2, 3))
    assert w.children(paths.LOG_DIR_EVENTS) == []


@in_world(before=running)
async def test_a_failed_log_directory_is_logged_once_with_the_remedy(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await fail(w, 1, ("t", 0), ("t", 2))
    [line] = [r.getMessage() for r in caplog.records if "replicas with a log directory" in r.getMessage()]
    assert line == (
        "broker 1 lost 2 replicas with a log directory, the first is t-0: they are offline until it is restarted"
    )
