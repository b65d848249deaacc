"""StopReplica of a topic that was removed and recreated by hand: before the requests about the new topic, or never."""

from __future__ import annotations

from state_machines.model.types import Assignment, TopicAssignment
from tests.kit.channel_world import World, in_flight, settled, stop, world
from tests.kit.fake_broker import STOP_REPLICA
from tests.kit.model import topic_gone


def remove(w: World, rows: list[int]) -> None:
    """Removes the topic, and stops its replicas on broker 1."""
    w.channels.propagate((), [stop(i, delete=True) for i in rows])
    topic_gone(w.cluster, "t")


def recreate(w: World, partitions: int) -> None:
    """Adds the topic again, and sends its leadership to broker 1."""
    w.channels.leader_and_isr_to(1, w.add_topic("t", [(1,)] * partitions), is_new=True)


def stopped(w: World) -> list[int]:
    """Returns the partitions of the only StopReplica to broker 1."""
    (request,) = w.one.of(STOP_REPLICA)
    return [partition for _, partition in request.partitions()]


async def test_the_stop_of_a_former_incarnation_goes_before_leadership_of_the_next_one() -> None:
    """A broker that has the log of the former topic refuses the other topic id for good."""
    async with world(1) as w:
        remove(w, await w.load((1,), (1,), snapshot=False))
        recreate(w, 2)
        await settled(w)
        assert (w.one.apis(), stopped(w)) == ("SL", [0, 1])


async def test_the_stop_of_a_former_incarnation_goes_while_the_next_one_has_no_leader() -> None:
    async with world(1) as w:
        remove(w, w.add_topic("t", [(1,)]))
        w.cluster.observe_topic(TopicAssignment("t", b"\2" * 16, {0: Assignment((1,))}, 0, 99))
        await settled(w)
        assert stopped(w) == [0]


async def test_the_stop_of_a_former_incarnation_goes_before_a_turn_with_the_next_one() -> None:
    async with world(1, seal_interval_ms=60_000) as w:
        former = w.add_topic("t", [(1,)])
        w.elect(*former)
        await in_flight(w.one, "ULu")
        remove(w, former)
        recreate(w, 1)
        w.channels.snapshot()
        await in_flight(w.one, "ULu" + "SLLu")
        assert stopped(w) == [0]


async def test_a_late_stop_of_a_former_incarnation_deletes_no_log_of_the_next_one() -> None:
    """StopReplica names no topic id: after the leadership of the new replica it would hit that one."""
    async with world(1) as w:
        former = w.add_topic("t", [(1,), (1,)])
        topic_gone(w.cluster, "t")
        recreate(w, 1)
        await settled(w)
        w.channels.propagate((), [stop(i, delete=True) for i in former])
        await settled(w)
        assert stopped(w) == [1]
