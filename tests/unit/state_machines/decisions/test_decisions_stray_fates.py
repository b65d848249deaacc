"""Whether a log may be deleted on a broker: the judgement over the product of all that it depends on."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from state_machines.decisions.strays import (
    DELETED,
    DOUBTED,
    IN_SYNC,
    NAMED,
    NO_EPOCH,
    NO_PARTITION,
    NO_TOPIC,
    UNREAD,
    Fate,
    LogJudgement,
    StrayReason,
    judge_log,
)
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, Leadership, TopicAssignment, TopicPartition
from tests.kit.model import EPOCH, registered

ID = b"1" * 16
CZXID, OTHER = 50, 40
LEADER_EPOCH = 7
BROKER = 3
NAMES = {
    "no": Assignment((1, 2)),
    "replica": Assignment((1, BROKER)),
    "adding": Assignment((1, 2, BROKER), adding=(BROKER,)),
    "removing": Assignment((1, 2, BROKER), removing=(BROKER,)),
    "dropped": Assignment((1, 2, BROKER), adding=(BROKER,), removing=(BROKER,)),
}


class Case(NamedTuple):
    """All that a judgement depends on. ``written``: what the topic znode has ahead of the model's ``names``."""

    topic: bool
    unread: bool
    marked: bool
    topic_id: str
    with_ids: bool
    partition: int
    names: str
    written: str
    state: str
    czxid: int | None


CASES = [
    Case(*made)
    for made in product(
        (False, True),
        (False, True),
        (False, True),
        ("known", "none", "refused"),
        (False, True),
        (0, 1),
        NAMES,
        ("same", "no", "adding"),
        ("apart", "leads", "in sync", "never led"),
        (None, CZXID, OTHER),
    )
]


def built(case: Case) -> Cluster:
    """Loads topic ``t`` with partition 0."""
    cluster = Cluster(EPOCH)
    cluster.observe_brokers(registered((1, 2, 3)))
    if not case.topic:
        return cluster
    partitions = {0: NAMES[case.names], 5: Assignment((1,))}
    topic_id = None if case.topic_id == "none" else ID
    rows = cluster.observe_topic(TopicAssignment("t", topic_id, partitions, 0, CZXID))
    leader, isr = {"leads": (BROKER, (BROKER,)), "in sync": (1, (1, BROKER))}.get(case.state, (1, (1,)))
    led = Leadership(leader, LEADER_EPOCH, isr, EPOCH - 1, 1)
    cluster.load_leadership(rows, [None if case.state == "never led" else led, Leadership(1, 1, (1,), EPOCH - 1, 1)])
    if case.written != "same":
        cluster.observe_assignments("t", 1, {0: NAMES[case.written]})
    if case.topic_id == "refused":
        cluster.observe_id_refused(2, rows)
    if case.marked:
        cluster.observe_deletions(["t"])
    return cluster


def wanted(case: Case) -> LogJudgement:
    """Returns the judgement by the rules, the one that keeps the log first."""
    if case.unread:
        return UNREAD
    if not case.topic:
        return NO_TOPIC
    if case.marked:
        return DELETED
    if case.partition == 0 and (case.names != "no" or case.written == "adding"):
        return NAMED
    if case.topic_id == "refused" or (case.topic_id == "none" and case.with_ids):
        return DOUBTED
    if case.partition == 1:
        return NO_PARTITION
    if case.state in ("leads", "in sync"):
        return IN_SYNC
    same = case.czxid != OTHER and case.state != "never led"
    return LogJudgement(Fate.STOP, StrayReason.NOT_ASSIGNED.value, LEADER_EPOCH if same else NO_EPOCH)


def test_a_log_has_the_fate_of_the_rules_in_every_case() -> None:
    seen: dict[Fate, int] = {}
    for case in CASES:
        found = judge_log(
            built(case),
            BROKER,
            TopicPartition("t", case.partition),
            ["t"] if case.unread else [],
            czxid=case.czxid,
            with_ids=case.with_ids,
        )
        assert found == wanted(case), case
        seen[found.fate] = seen.get(found.fate, 0) + 1
    assert len(CASES) == sum(seen.values()) == 17_280
    assert min(seen.values()) > 500, "each fate is well tried"


def test_no_fate_but_stop_has_an_epoch_of_its_own() -> None:
    kept = (NAMED, UNREAD, DELETED, DOUBTED, IN_SYNC)
    assert all(judgement.leader_epoch == NO_EPOCH and judgement.fate is not Fate.STOP for judgement in kept)
