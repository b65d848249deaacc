"""Facts: what each one changes, what it has journal and brokers told, and that an ended term enters none."""

from __future__ import annotations

import pytest

from controller.kafka.path.events import EventKind
from controller.kafka.path.gate import TermEnded
from state_machines.model.facts import (
    NOTHING,
    BouncedBack,
    BrokersRead,
    Fact,
    HigherEpochTold,
    MarksRead,
    MinIsrRead,
    ReplicasFailed,
)
from state_machines.model.min_isr import MinIsr
from state_machines.model.topic_facts import (
    GhostsFound,
    MarkersRead,
    RowsEnded,
    StatesRead,
    TopicGone,
    TopicIdRead,
    TopicRead,
    WritesGivenUp,
)
from state_machines.model.types import Leadership, PartitionState
from tests.kit.kafka.model import EPOCH, P, broker, die, make_cluster, topic
from tests.kit.kafka.world import KafkaWorld, in_world


def test_registrations_that_are_read_again_tell_who_went_and_who_came() -> None:
    cluster = make_cluster(P((1, 2), 1), brokers=(1, 2, 3, 4))
    found = {1: broker(1), 2: broker(2, 200), 3: broker(3, rack="a"), 5: broker(5)}
    entered = BrokersRead(found, bounced=(2,)).enter(cluster)
    assert set(cluster.brokers) == {1, 3, 5}, "the bounced broker counts as gone"
    assert [(b.id, b.epoch) for b in entered.gone] == [(4, 100), (2, 100)]
    assert [(b.id, b.epoch) for b in entered.back] == [(5, 100), (2, 200)]
    assert [b.id for b in entered.connected] == [5, 3]
    entered = BouncedBack(found, (2,)).enter(cluster)
    assert (set(cluster.brokers), entered.connected) == ({1, 2, 3, 5}, [found[2]])
    assert not entered.back, "its row was written when it went"


def test_a_state_that_the_model_has_is_no_news() -> None:
    cluster = make_cluster(P((1, 2), 1))
    known = Leadership(1, 0, (1, 2), EPOCH - 1, 0)
    assert StatesRead([(0, known)]).enter(cluster) is NOTHING
    [change] = StatesRead([(0, Leadership(1, 0, (1,), EPOCH - 1, 1))]).enter(cluster).changes
    assert (change.entity, change.before.isr, change.after.isr) == (0, (1, 2), (1,))


def test_a_write_that_was_given_up_changes_the_state_alone_and_has_all_rows_sent() -> None:
    cluster = make_cluster(P((1, 2), 1), P((2, 3), 2))
    die(cluster, 1)
    entered = WritesGivenUp([0, 1]).enter(cluster)
    assert [(c.entity, c.before.state, c.after.state) for c in entered.changes] == [
        (0, PartitionState.ONLINE, PartitionState.OFFLINE)
    ]
    assert entered.metadata == [0, 1]


def test_a_topic_is_new_once_and_gone_once() -> None:
    cluster = make_cluster(P((1, 2), 1))
    first = TopicRead(topic("new", [(1,)])).enter(cluster)
    assert (first.topics, first.rows) == ((1,), [1])
    more = TopicRead(topic("new", [(1,), (2,)])).enter(cluster)
    assert (more.topics, more.rows) == ((), [2]), "a partition was added"
    RowsEnded([1, 2]).enter(cluster)
    gone = TopicGone("new").enter(cluster)
    assert (gone.topics, gone.rows) == ([1], [1, 2])
    assert TopicGone("new").enter(cluster) is NOTHING


def test_an_id_is_news_only_where_it_is_another_one_and_may_be_taken() -> None:
    cluster = make_cluster(P((1, 2), 1))
    known = cluster.topics[0].topic_id
    other = bytes(range(16))
    assert TopicIdRead("t", known).enter(cluster) is NOTHING
    assert TopicIdRead("t", None).enter(cluster) is NOTHING
    assert TopicIdRead("t", other).enter(cluster) is NOTHING, "the known one is in use"
    assert TopicIdRead("u", other).enter(cluster) is NOTHING
    cluster.observe_id_refused(2, [0])
    entered = TopicIdRead("t", other).enter(cluster)
    assert (entered.topics, list(entered.rows), cluster.topics[0].topic_id) == ([0], [0], other)


@pytest.mark.parametrize(
    ("fact", "of"),
    [(MarkersRead(["t", "u"]), "topics"), (ReplicasFailed(2, [0, 1]), "rows")],
    ids=["markers", "failed replicas"],
)
def test_what_is_read_twice_is_new_once(fact: Fact, of: str) -> None:
    cluster = make_cluster(P((1, 2), 1), P((1, 3), 1))
    assert getattr(fact.enter(cluster), of) == [0]
    assert getattr(fact.enter(cluster), of) == []


def test_a_higher_epoch_is_news_once_for_each_incarnation() -> None:
    cluster = make_cluster(P((1, 2), 1))
    assert HigherEpochTold(2, 100).enter(cluster) is not NOTHING
    assert HigherEpochTold(2, 100).enter(cluster) is NOTHING
    assert HigherEpochTold(3, 99).enter(cluster) is NOTHING, "of an earlier incarnation"


def test_ghosts_are_sent_as_removed() -> None:
    cluster = make_cluster(P((1, 2), 1))
    entered = GhostsFound({"t": [0, 4], "old": [1]}).enter(cluster)
    assert entered.metadata == entered.rows == [1, 2], "the model has partition 0"
    assert all(cluster.rows[i].is_removed for i in entered.rows)


async def running(w: KafkaWorld) -> None:
    """Topic t led by broker 1, and a term that has told everything."""
    await w.topic("t", (1, 2, 3), leaders=True)
    await w.serve()


@in_world(before=running)
async def test_a_late_partition_is_sent_once_it_is_taken_up(w: KafkaWorld) -> None:
    """Brokers may know its leader epoch with another content, and would ignore what they know."""
    c = w.term.controller
    [row] = c.enter(TopicRead(topic("late", [(1, 2)]))).rows
    entered = c.enter(StatesRead([(row, Leadership(1, 4, (1, 2), EPOCH - 1, 9))]))
    assert entered.changes[0].is_late
    assert c.late == {row}
    assert c.channels.quiet, "nothing is sent"
    assert len(c.queue) == 1
    assert (await c.queue.next()).kind is EventKind.LATE_PARTITIONS


def test_a_default_of_min_isr_stays_known_where_no_broker_sends_it() -> None:
    cluster = make_cluster(P((1, 2), 1))
    for found, known in (
        (MinIsr(None, {"a": 1}), MinIsr(None, {"a": 1})),
        (MinIsr(2, {"a": 1}), MinIsr(2, {"a": 1})),
        (MinIsr(None, {"b": 3}), MinIsr(2, {"b": 3})),
        (MinIsr(1, {}), MinIsr(1, {})),
    ):
        MinIsrRead(found).enter(cluster)
        assert cluster.min_isr == known


@in_world(before=running)
async def test_an_ended_term_enters_no_fact(w: KafkaWorld) -> None:
    term = w.term
    term.gate.end("a test")
    with pytest.raises(TermEnded, match="a test"):
        term.controller.enter(MarksRead({1}, {1}))
    assert term.enter(MarksRead({1}, {1})) is NOTHING, "responses of brokers may still come"
    assert not term.cluster.cordoned
