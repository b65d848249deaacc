"""Strays: logs on brokers that no assignment names, and whether one may be deleted."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    Stray,
    StrayReason,
    judge_log,
    strays,
)
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, Leadership, LogDirectory, ReplicaLog, TopicAssignment, TopicPartition
from tests.kit.kafka.model import EPOCH, P, make_cluster, registered, topic_gone

UNKNOWN, NOT_ASSIGNED = StrayReason.TOPIC_UNKNOWN, StrayReason.NOT_ASSIGNED
OFFLINE = StrayReason.DIRECTORY_OFFLINE
ID = b"1" * 16
MOVING = Assignment((1, 2, 3), adding=(3,), removing=(1,))
PLAIN = Assignment((1, 2))
DROPPED = Assignment((1, 2, 3), adding=(3,), removing=(3,))
"""Broker 3 was to be added by a reassignment that was cancelled."""
STRANGE = Assignment((1,), adding=(3,), removing=(4,))
"""A foreign tool wrote it: its replicas lack those that it adds and removes."""


def loaded(assignment: Assignment, topic_id: bytes | None = ID, *, led: bool = True) -> Cluster:
    """Loads topic ``t`` with partition 0."""
    cluster = Cluster(EPOCH)
    cluster.observe_brokers(registered((1, 2, 3, 4)))
    rows = cluster.observe_topic(TopicAssignment("t", topic_id, {0: assignment}, 0, 50))
    cluster.load_leadership(rows, [Leadership(2, 3, (2,), EPOCH - 1, 1) if led else None])
    return cluster


def report(topic: str = "t", partition: int = 0, *, error: int = 0, is_future: bool = False) -> LogDirectory:
    return LogDirectory("/a", error, (ReplicaLog(topic, partition, 5, 0, is_future),))


def reasons(cluster: Cluster, directory: LogDirectory, unread: Iterable[str] = ()) -> dict[int, StrayReason]:
    """Returns the reason on each of brokers 1 to 4 where the log of the directory is a stray."""
    reported = {broker: [directory] for broker in (1, 2, 3, 4)}
    return {stray.broker: stray.reason for stray in strays(reported, cluster, set(unread))}


@pytest.mark.parametrize("is_future", [False, True])
@pytest.mark.parametrize("error", [0, 56])
@pytest.mark.parametrize(
    ("assignment", "on"),
    [(PLAIN, {3, 4}), (MOVING, {4}), (DROPPED, {4}), (Assignment((4,)), {1, 2, 3}), (STRANGE, {2})],
    ids=["plain", "moving", "dropped", "elsewhere", "strange"],
)
def test_a_log_is_a_stray_where_the_assignment_does_not_name_its_broker(
    assignment: Assignment, on: set[int], error: int, is_future: bool
) -> None:
    found = reasons(loaded(assignment), report(error=error, is_future=is_future))
    assert found == dict.fromkeys(on, OFFLINE if error else NOT_ASSIGNED)


@pytest.mark.parametrize("error", [0, 56])
def test_a_log_of_an_unknown_topic_is_a_stray_on_every_broker(error: int) -> None:
    found = reasons(loaded(PLAIN), report("other", error=error))
    assert found == dict.fromkeys((1, 2, 3, 4), OFFLINE if error else UNKNOWN)


def test_a_log_of_a_partition_that_the_topic_lacks_is_a_stray_on_every_broker() -> None:
    assert reasons(loaded(PLAIN), report(partition=1)) == dict.fromkeys((1, 2, 3, 4), NOT_ASSIGNED)


@pytest.mark.parametrize("partition", [0, 1])
def test_no_log_of_a_topic_that_is_being_deleted_is_a_stray(partition: int) -> None:
    cluster = loaded(PLAIN)
    cluster.observe_deletions(["t"])
    assert reasons(cluster, report(partition=partition)) == {}
    topic_gone(cluster, "t")
    assert reasons(cluster, report(partition=partition)) == dict.fromkeys((1, 2, 3, 4), UNKNOWN)


@pytest.mark.parametrize("partition", [0, 1])
def test_no_log_of_a_topic_is_a_stray_while_its_id_is_unknown_or_in_doubt(partition: int) -> None:
    directory = report(partition=partition)
    without = loaded(PLAIN, None)
    assert reasons(without, directory) == {}
    without.observe_topic_id("t", ID)
    assert reasons(without, directory).keys() >= {3, 4}
    refused = loaded(PLAIN)
    refused.observe_id_refused(2, [0])
    assert reasons(refused, directory) == {}
    assert reasons(loaded(PLAIN, led=False), directory) == {}, "no broker was sent any partition of it"


def test_no_log_of_a_topic_whose_znode_cannot_be_read_is_a_stray() -> None:
    cluster = loaded(PLAIN)
    assert reasons(cluster, report("other"), unread=["other"]) == {}
    assert reasons(cluster, report(), unread=["t"]) == {}
    assert reasons(cluster, report(), unread=["other"]).keys() == {3, 4}


def test_no_log_is_a_stray_that_the_topic_znode_names_ahead_of_the_row() -> None:
    cluster = loaded(PLAIN)
    cluster.observe_assignments("t", 1, {0: PLAIN.reassigned_to((2, 3))})
    assert reasons(cluster, report()).keys() == {4}
    cluster.observe_assignments("t", 2, {0: Assignment((2, 4))})
    assert reasons(cluster, report()).keys() == {3}, "broker 1 is still in the row's assignment"


def test_a_stray_names_its_place_and_size() -> None:
    cluster = make_cluster(P((1, 2), 1))
    [found] = strays({3: [report(is_future=True), LogDirectory("/b", 0)], 1: [report()]}, cluster, ())
    assert found == Stray(3, "/a", "t", 0, 5, True, NOT_ASSIGNED)


LOGS = st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 2), st.booleans())
BROKERS = st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True).map(tuple)


@given(
    replicas=st.lists(BROKERS, min_size=1, max_size=3),
    targets=st.lists(BROKERS, min_size=3, max_size=3),
    reported=st.dictionaries(st.integers(1, 5), st.lists(st.lists(LOGS, max_size=4), max_size=2)),
    error=st.sampled_from([0, 56]),
)
def test_every_reported_log_is_assigned_or_a_stray(
    replicas: list[tuple[int, ...]],
    targets: list[tuple[int, ...]],
    reported: dict[int, list[list[tuple[str, int, bool]]]],
    error: int,
) -> None:
    cluster = make_cluster(*(P(r, r[0]) for r in replicas), brokers=range(1, 6))
    written = {p: Assignment(r).reassigned_to(targets[p]) for p, r in enumerate(replicas)}
    cluster.observe_assignments("t", 1, written)
    listed = {
        broker: [
            LogDirectory(f"/{n}", error, tuple(ReplicaLog(t, p, 1, 0, f) for t, p, f in logs))
            for n, logs in enumerate(found)
        ]
        for broker, found in reported.items()
    }
    assigned = {("t", p, broker) for p, one in written.items() for broker in one.replicas}
    wanted = [
        (broker, log.topic, log.partition)
        for broker, directories in sorted(listed.items())
        for directory in directories
        for log in directory.logs
        if (log.topic, log.partition, broker) not in assigned
    ]
    assert [(found.broker, found.topic, found.partition) for found in strays(listed, cluster, ())] == wanted


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
