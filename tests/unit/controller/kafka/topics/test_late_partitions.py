"""Partitions with a history that a term meets late: never told as new, and led on with another leader epoch."""

from __future__ import annotations

import pytest

from brokers.wire.errors import Error
from controller.kafka.path.events import EventKind
from metadata_store import paths
from metadata_store.codecs.topic import encode_state, encode_topic
from metadata_store.port import ANY_VERSION
from state_machines.decisions.deletion import advance
from state_machines.decisions.failover import TAKEN_UP, take_up
from state_machines.machines.draft import Draft
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, Leadership, TopicAssignment
from tests.kit.kafka.cluster import id_of
from tests.kit.kafka.parts import LEADER_AND_ISR
from tests.kit.kafka.world import KafkaWorld, in_world


def heard(w: KafkaWorld, broker: int, topic: str) -> list[tuple[int, int, bool]]:
    """(partition, leader epoch, is new) of all that a broker was told by LeaderAndIsr of a topic."""
    sent = w.wires.partitions(broker, LEADER_AND_ISR)
    return [(number, p.leader_epoch, p.is_new) for (name, number), p in sent if name == topic]


async def running(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2, 3), leaders=True)
    await w.serve()
    w.wires.frames.clear()


@pytest.mark.seed("S4-39", "S4-67")
@pytest.mark.parametrize("epoch", [0, 7])
@in_world(before=running)
async def test_a_topic_that_appears_with_states_gets_other_leader_epochs(w: KafkaWorld, epoch: int) -> None:
    w.server.hold_watches(w.active.zk.session_id)
    await w.topic("late", (2, 3), (7, 1), leaders=True, epoch=epoch)
    w.server.release_watches(w.active.zk.session_id)
    await w.propagated()
    assert {p: (s.leader, s.leader_epoch, s.isr) for (t, p), s in w.states.items() if t == "late"} == {
        0: (2, epoch + 1, (2, 3)),
        1: (1, epoch + 2, (1,)),
    }
    assert [heard(w, b, "late") for b in (1, 2, 3)] == [
        [(1, epoch + 2, False)],
        [(0, epoch + 1, False)],
        [(0, epoch + 1, False)],
    ]
    w.agreed()


@in_world()
async def test_a_topic_znode_that_could_not_be_read_at_the_begin_of_the_term_is_taken_up_with_its_history(
    w: KafkaWorld,
) -> None:
    await w.topic("late", (1, 2), leaders=True)
    await w.operator.set(paths.topic("late"), b"broken", -1)
    await running(w)
    await w.operator.set(paths.topic("late"), encode_topic({0: Assignment((1, 2))}, id_of("late")), -1)
    await w.propagated()
    assert w.leaders()["late", 0] == (1, (1, 2))
    assert heard(w, 1, "late") == heard(w, 2, "late") == [(0, 4, False)]
    w.agreed()


@pytest.mark.parametrize("known", [False, True])
@in_world()
async def test_a_repaired_state_gets_another_leader_epoch(w: KafkaWorld, known: bool) -> None:
    """Whether the term knew it before or not: its leader knows an older partition epoch."""
    await w.topic("late", (1, 2), leaders=True)
    path, repaired = paths.state("late", 0), encode_state(1, 3, (1, 2), 0)
    await w.operator.set(path, repaired if known else b"{", 0)
    await running(w)
    await w.operator.set(path, repaired, 1)
    if known:
        w.term.queue.signal(EventKind.REPAIRED_STATE, path)
    await w.propagated()
    assert w.states["late", 0] == Leadership(1, 4, (1, 2), w.term.cluster.epoch, 3)
    assert heard(w, 1, "late")[-1] == (0, 4, False)
    w.agreed()


@in_world(before=running)
async def test_a_state_znode_that_another_client_creates_first_gets_another_leader_epoch(w: KafkaWorld) -> None:
    async def foreign() -> None:
        for path in (paths.partitions("late"), paths.partition("late", 0)):
            await w.operator.create(path, None)
        await w.operator.create(paths.state("late", 0), encode_state(3, 0, (3, 1), 0))

    w.active.script.at("late/partitions/0/state", foreign)
    await w.topic("late", (1, 3))
    await w.propagated()
    assert w.leaders()["late", 0] == (3, (3, 1))
    assert heard(w, 1, "late") == heard(w, 3, "late") == [(0, 1, False)]
    w.agreed()


@in_world(before=running)
async def test_a_term_that_ends_before_it_took_a_partition_up_leaves_it_to_the_next_one(w: KafkaWorld) -> None:
    w.active.script.kill_at(1, "before")
    w.server.hold_watches(w.active.zk.session_id)
    await w.topic("late", (2, 3), leaders=True)
    w.server.release_watches(w.active.zk.session_id)
    await w.settle()
    assert heard(w, 2, "late") == [], "nothing is told before it is written"
    await w.active.crash()
    await w.serve()
    assert w.leaders()["late", 0] == (2, (2, 3))
    w.agreed()


@in_world(before=running)
async def test_partitions_that_come_late_while_others_are_taken_up_are_taken_up_after_them(w: KafkaWorld) -> None:
    controller, row = w.term.controller, w.term.cluster.find("t", 0)
    assert row is not None
    w.active.script.at("late/partitions/0/state", lambda: controller.take_up([row]))
    w.server.hold_watches(w.active.zk.session_id)
    await w.topic("late", (2, 3), leaders=True)
    w.server.release_watches(w.active.zk.session_id)
    await w.propagated()
    assert {name: state.leader_epoch for name, state in w.states.items()} == {("t", 0): 4, ("late", 0): 4}
    assert not controller.late


@pytest.mark.seed("S4-80")
@in_world(before=running)
async def test_a_leader_whose_state_another_client_wrote_is_sent_another_leader_epoch(
    w: KafkaWorld,
) -> None:
    """A broker whose partition epoch is refused waits for the next leader epoch, for ever."""
    held = w.states["t", 0]
    for data in (b"{", encode_state(held.leader, held.leader_epoch, held.isr, held.controller_epoch)):
        await w.operator.set(paths.state("t", 0), data, ANY_VERSION)
    stale = w.proposal("t", 0, (1, 2), partition_epoch=held.version)
    [refused] = (await w.alter_partition(1, stale)).partitions
    assert refused.error == Error.INVALID_UPDATE_VERSION
    await w.propagated()
    assert heard(w, 1, "t")[-1] == (0, held.leader_epoch + 1, False)
    [granted] = (await w.alter_partition(1, w.proposal("t", 0, (1, 2)))).partitions
    assert (granted.error, granted.isr) == (0, (1, 2))
    w.agreed()


def test_what_is_being_deleted_and_what_has_no_state_is_not_taken_up() -> None:
    """A topic whose deletion has not begun is served like any other: it may wait for a reassignment."""
    cluster = Cluster(5)
    cluster.observe_topic(TopicAssignment("new", None, {0: Assignment((1,))}, 0, 1))
    cluster.observe_topic(TopicAssignment("doomed", None, {0: Assignment((1,))}, 0, 2))
    cluster.observe_topic(TopicAssignment("marked", None, {0: Assignment((1,))}, 0, 3))
    for row in (1, 2):
        cluster.observe_leadership(row, Leadership(1, 3, (1,), 4, 2))
    cluster.observe_deletions(["doomed", "marked"])
    begun = Draft(cluster)
    advance(begun, [1])
    cluster.apply(begun.finish().moves)
    draft = Draft(cluster)
    take_up(draft, [0, 1, 2])
    assert [change.entity for change in draft.finish().writes] == [2]


def test_a_partition_without_a_leader_gets_another_leader_epoch_too() -> None:
    cluster = Cluster(5)
    cluster.observe_topic(TopicAssignment("t", None, {0: Assignment((1, 2))}, 0, 1))
    cluster.observe_leadership(0, Leadership(-1, 3, (1,), 4, 2))
    draft = Draft(cluster)
    take_up(draft, [0])
    [change] = draft.finish().writes
    assert (change.after.leader, change.after.leader_epoch, change.after.isr, change.why) == (-1, 4, (1,), TAKEN_UP)
