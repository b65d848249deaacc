"""StopReplica of a topic that somebody removed and recreated by hand: before the word of the next one, or never."""

from __future__ import annotations

from state_machines.model.decision import ReplicaMove
from state_machines.model.types import Assignment, ReplicaState, TopicAssignment
from tests.core.channel_world import World, settled, world
from tests.core.fake_broker import STOP_REPLICA
from tests.polling import eventually


async def test_the_stop_of_a_former_incarnation_goes_before_the_word_of_the_one_made_by_hand() -> None:
    """A broker that has the log of the former topic refuses the other topic id for good."""
    async with world(1) as w:
        former = w.add_topic("t", [(1,), (1,)])
        await settled(w)
        stops = [ReplicaMove(i, 1, ReplicaState.DELETION_STARTED, "x", stop=True, delete=True) for i in former]
        w.channels.propagate((), stops)
        w.cluster.observe_topic_gone("t")
        present = w.add_topic("t", [(1,), (1,)])
        w.channels.leader_and_isr_to(1, present, is_new=True)
        await settled(w)
        assert w.brokers[1].apis() == "U" + "SL"
        assert stopped(w) == [0, 1]


async def test_it_goes_while_the_next_one_has_no_leader_yet() -> None:
    async with world(1) as w:
        former = w.add_topic("t", [(1,)])
        w.channels.propagate(
            (), [ReplicaMove(former[0], 1, ReplicaState.DELETION_STARTED, "x", stop=True, delete=True)]
        )
        w.cluster.observe_topic_gone("t")
        w.cluster.observe_topic(TopicAssignment("t", b"\2" * 16, {0: Assignment((1,))}, 0, 99))
        await settled(w)
        assert stopped(w) == [0]


async def test_a_snapshot_does_not_go_ahead_of_it_either() -> None:
    async with world(1, seal_interval_ms=60_000) as w:
        former = w.add_topic("t", [(1,)])
        w.elect(former[0])
        await eventually(lambda: w.brokers[1].apis().endswith("Lu"))
        w.channels.propagate(
            (), [ReplicaMove(former[0], 1, ReplicaState.DELETION_STARTED, "x", stop=True, delete=True)]
        )
        w.cluster.observe_topic_gone("t")
        present = w.add_topic("t", [(1,)])
        w.channels.leader_and_isr_to(1, present, is_new=True)
        w.channels.snapshot()
        await eventually(lambda: w.brokers[1].apis().endswith("SLLu"))
        assert stopped(w) == [0]


async def test_what_was_told_already_is_not_deleted_by_the_stop_of_its_former_incarnation() -> None:
    """StopReplica names no topic id: after the word of the new replica it would hit that one."""
    async with world(1) as w:
        former = w.add_topic("t", [(1,), (1,)])
        w.cluster.observe_topic_gone("t")
        present = w.add_topic("t", [(1,)])
        w.channels.leader_and_isr_to(1, present, is_new=True)
        await settled(w)
        stops = [ReplicaMove(i, 1, ReplicaState.DELETION_STARTED, "x", stop=True, delete=True) for i in former]
        w.channels.propagate((), stops)
        await settled(w)
        assert stopped(w) == [1]


def stopped(w: World) -> list[int]:
    """Partitions of the only StopReplica that broker 1 heard."""
    (stop,) = w.brokers[1].of(STOP_REPLICA)
    return [s.partition_index for s in stop.entity.topic_states[0].partition_states]
