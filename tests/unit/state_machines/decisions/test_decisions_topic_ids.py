"""Lost topic ids: the evidence that responses of brokers are, and the topics that lack an id."""

from __future__ import annotations

import pytest

from state_machines.decisions.topic_ids import Evidence, TopicIds, any_has_id, id_changes
from state_machines.model.types import Assignment, TopicAssignment
from tests.kit.model import P, broker, make_cluster, topic, topic_gone

ID, OTHER = b"a" * 16, b"b" * 16


@pytest.mark.parametrize(
    ("known", "flags", "ids", "sent_none", "responded"),
    [
        pytest.param({"t": ID, "u": OTHER}, {}, {"t": {ID}}, False, True, id="an id"),
        pytest.param({"t": None}, {}, {}, True, True, id="none"),
        pytest.param({}, {}, {}, False, True, id="no such topic"),
        pytest.param({"u": None}, {}, {}, False, True, id="none of another topic"),
        pytest.param({"t": None}, {"sent": True}, {}, False, True, id="none, as a daemon sent it"),
        pytest.param({"t": None}, {"late": True}, {}, True, False, id="none, sent before the response"),
        pytest.param({"t": ID}, {"late": True}, {"t": {ID}}, False, True, id="an id, although others were sent late"),
    ],
)
def test_a_response_is_evidence_of_an_id_of_none_or_is_still_missing(
    known: TopicIds, flags: dict[str, bool], ids: dict[str, set[bytes]], sent_none: bool, responded: bool
) -> None:
    evidence, one = Evidence(), broker(1)
    evidence.add(one, known, ["t"], **flags)
    assert (evidence.ids, evidence.sent_none, evidence.lacks(one)) == (ids, sent_none, not responded)
    assert evidence.lacks(broker(1, epoch=101)), "its next incarnation has not responded"
    assert [evidence.complete(live) for live in ({1: one}, {1: one, 2: broker(2)}, {})] == [responded, False, False]
    later = Evidence(evidence)
    assert (later.ids, later.sent_none, later.lacks(one)) == (ids, sent_none, True)


def test_ids_are_written_to_topics_that_exist_and_have_none() -> None:
    cluster = make_cluster()
    for name, topic_id in (("has", OTHER), ("lacks", None), ("gone", None)):
        cluster.observe_topic(TopicAssignment(name, topic_id, {0: Assignment((1,))}, 3, 60))
    topic_gone(cluster, "gone")
    [change] = id_changes(cluster, dict.fromkeys(("has", "lacks", "gone", "never"), ID))
    assert (change.topic, change.version, change.partitions, change.topic_id, change.czxid) == ("lacks", 3, {}, ID, 60)


def test_a_topic_with_an_id_counts_once_it_runs_and_while_it_exists() -> None:
    cluster = make_cluster()
    [row] = cluster.observe_topic(topic("t", [(1, 2)]))
    assert not any_has_id(cluster), "a new one has its id from this term"
    cluster.load_leadership([row], [P((1, 2), 1).leadership()])
    assert any_has_id(cluster)
    cluster.observe_deletions(["t"])
    topic_gone(cluster, "t")
    assert not any_has_id(cluster)
