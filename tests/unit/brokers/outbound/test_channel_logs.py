"""StopReplica by name on one channel: judged at each attempt, retried, and answered for each log."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from brokers.outbound.delivery import LogsStopped
from brokers.wire.errors import Error
from brokers.wire.versions import Ibp
from state_machines.decisions.strays import Fate, judge_log
from state_machines.model.types import Assignment, TopicPartition
from tests.kit.deadlines import eventually
from tests.kit.kafka.brokers import STOP_REPLICA, refuse_stale
from tests.kit.kafka.channels import ChannelsWorld, in_flight, settled, stop, world
from tests.kit.wire import part

GHOST = TopicPartition("ghost", 4)


def judged_by_the_model(w: ChannelsWorld) -> None:
    """Gives the channels the judge of the core."""

    def judge(broker: int, names: Any) -> dict[TopicPartition, int]:
        found = {name: judge_log(w.cluster, broker, name) for name in names}
        return {name: one.leader_epoch for name, one in found.items() if one.fate is Fate.STOP}

    w.channels.judge_logs_by(judge)


def answers(w: ChannelsWorld) -> list[LogsStopped]:
    return [event for event in w.events if isinstance(event, LogsStopped)]


def assign(w: ChannelsWorld, replicas: tuple[int, ...], version: int = 1) -> None:
    """Writes the assignment of t-0 as a reassignment does."""
    w.cluster.observe_assignments("t", version, {0: Assignment(replicas)})


@pytest.mark.parametrize("ibp", ["2.7-IV1", "3.9"])
async def test_a_log_without_a_row_is_deleted_with_an_epoch_that_no_broker_compares(ibp: str) -> None:
    """Epoch -2 would delete the segments in remote storage where the broker takes itself for the leader."""
    async with world(1, ibp=Ibp.parse(ibp)) as w:
        judged_by_the_model(w)
        await w.load((1,))
        assert w.channels.stop_logs(1, [GHOST])
        await settled(w)
        [request] = w.one.of(STOP_REPLICA)
        [entry] = request.states().values()
        assert request.partitions() == [("ghost", 4)]
        assert (entry.leader_epoch, entry.delete_partition) == (-1, True)
        assert answers(w) == [LogsStopped(1, 101, 0, (GHOST,), {}, ())]


async def test_a_log_of_a_known_partition_is_deleted_with_the_leader_epoch_of_its_row() -> None:
    """A request that arrives late is refused by a replica that was added again meanwhile, with a higher epoch."""
    async with world(1, 2) as w:
        judged_by_the_model(w)
        await w.load((2,))
        w.channels.stop_logs(1, [TopicPartition("t", 0)])
        await settled(w)
        [entry] = w.one.of(STOP_REPLICA)[0].states().values()
        assert entry.leader_epoch == w.cluster.rows[0].leader_epoch == 3


async def test_without_a_judge_and_without_a_broker_nothing_is_sent() -> None:
    async with world(1) as w:
        await w.load((1,))
        assert w.channels.stop_logs(1, [GHOST])
        assert not w.channels.stop_logs(2, [GHOST])
        await settled(w)
        assert w.one.of(STOP_REPLICA) == []
        assert answers(w) == [LogsStopped(1, 101, 0, (), {}, (GHOST,))]


async def test_a_log_that_an_assignment_came_to_name_before_the_request_is_spared() -> None:
    async with world(1, 2) as w:
        judged_by_the_model(w)
        await w.load((2,))
        w.channels.stop_logs(1, [TopicPartition("t", 0), GHOST])
        assign(w, (2, 1))
        await settled(w)
        assert w.one.of(STOP_REPLICA)[0].partitions() == [("ghost", 4)]
        assert answers(w)[0].spared == (TopicPartition("t", 0),)


async def test_a_log_that_an_assignment_came_to_name_between_two_attempts_is_in_the_first_alone() -> None:
    async with world(1, 2) as w:
        judged_by_the_model(w)
        await w.load((2,))
        w.one.hold()
        w.channels.stop_logs(1, [TopicPartition("t", 0), GHOST])
        await in_flight(w.one, "S")
        assign(w, (2, 1))
        w.one.cut()
        w.one.let_go.set()
        await settled(w)
        first, second = w.one.of(STOP_REPLICA)
        assert first.partitions() == [("t", 0), ("ghost", 4)]
        assert second.partitions() == [("ghost", 4)]
        [answer] = answers(w)
        assert (answer.acknowledged, answer.spared) == ((GHOST,), (TopicPartition("t", 0),))


async def test_no_log_of_a_present_leader_is_ever_named() -> None:
    async with world(1, 2) as w:
        judged_by_the_model(w)
        await w.load((2, 1))
        assign(w, (2,))
        w.elect(0, leader=1)
        w.channels.stop_logs(1, [TopicPartition("t", 0)])
        await settled(w)
        assert w.one.of(STOP_REPLICA) == []


async def test_a_refused_log_is_reported_with_its_error_and_the_others_as_deleted() -> None:
    async with world(1) as w:
        judged_by_the_model(w)
        await w.load((1,))
        other = TopicPartition("ghost", 5)
        w.one.respond = refuses_ghost_4
        w.channels.stop_logs(1, [GHOST, other])
        await settled(w)
        assert answers(w) == [LogsStopped(1, 101, 0, (other,), {GHOST: Error.KAFKA_STORAGE_ERROR}, ())]


def refuses_ghost_4(api: int, _entity: Any) -> dict[str, Any]:
    if api != STOP_REPLICA:
        return {}
    entry = part(
        STOP_REPLICA,
        4,
        "StopReplicaPartitionError",
        response=True,
        topic_name="ghost",
        partition_index=4,
        error_code=ErrorCode.kafka_storage_error,
    )
    return {"partition_errors": (entry,)}


async def test_a_request_that_is_refused_as_a_whole_deleted_nothing() -> None:
    async with world(1) as w:
        judged_by_the_model(w)
        await w.load((1,))
        w.one.respond = refuse_stale
        w.channels.stop_logs(1, [GHOST])
        await settled(w)
        [answer] = answers(w)
        assert (answer.acknowledged, dict(answer.refused)) == ((), {GHOST: Error.STALE_BROKER_EPOCH})
        assert w.responses()[-1].error == Error.STALE_BROKER_EPOCH, "it is counted as any other"


async def test_a_broker_that_goes_is_not_waited_for_and_says_nothing() -> None:
    async with world(1, 2) as w:
        judged_by_the_model(w)
        await w.load((2,))
        w.one.hold()
        w.channels.stop_logs(1, [GHOST])
        await in_flight(w.one, "S")
        w.deregister(1)
        await settled(w)
        assert answers(w) == []


async def test_leaderships_go_before_logs_that_are_deleted_by_name() -> None:
    async with world(1, 2) as w:
        judged_by_the_model(w)
        await w.load((1, 2), (2,))
        w.channels.stop_logs(1, [GHOST])
        w.elect(0)
        w.cluster.observe_assignments("t", 1, {1: Assignment((2,))})
        w.channels.propagate((), [stop(1)])
        await settled(w)
        assert w.one.apis() == "LuSS"
        assert [request.partitions() for request in w.one.of(STOP_REPLICA)] == [[("t", 1)], [("ghost", 4)]]
        await eventually(lambda: len(answers(w)) == 1)
