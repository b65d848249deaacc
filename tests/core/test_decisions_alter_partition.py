"""AlterPartition: the whole matrix of errors, their precedence, and what is written (S4-80; KIP-497, KIP-841)."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import pytest
from msgspec.structs import replace

from state_machines.decisions.alter_partition import IsrError, IsrRequest, alter_partitions, judge
from state_machines.model.cluster import Cluster
from state_machines.model.types import NO_LEADER
from tests.core.model import EPOCH, P, carried_out, decided, die, make_cluster, shown, writes_of

E = IsrError


def cluster_of() -> Cluster:
    """Partition 0: leader 1, ISR 1, 2 of 1, 2, 3, leader epoch 5, partition epoch 9; 4 is live and not assigned."""
    return make_cluster(P((1, 2, 3), 1, (1, 2), epoch=5, version=9), P((1, 2)), brokers=(1, 2, 3, 4))


GOOD = IsrRequest(0, leader_epoch=5, partition_epoch=9, isr=(1, 2, 3), recovering=False, by_id=True)


@pytest.mark.seed("S4-80")
def test_what_is_good_is_written() -> None:
    cluster = cluster_of()
    assert judge(cluster, GOOD) is None
    [change] = carried_out(cluster, partial(alter_partitions, requests=[GOOD])).writes
    assert shown(change) == (1, (1, 2, 3), 5, 10), "the leader epoch does not move"
    assert change.after.controller_epoch == EPOCH
    assert change.after.isr is cluster.intern_isr((1, 2, 3))


CONDITIONS: dict[str, dict[str, object]] = {
    "unknown": {"row": None},
    "partition epoch ahead": {"partition_epoch": 10},
    "leader epoch ahead": {"leader_epoch": 6},
    "leader epoch behind": {"leader_epoch": 4},
    "same content": {"isr": (1, 2)},
    "partition epoch behind": {"partition_epoch": 8},
    "recovering again": {"recovering": True},
    "member is not live": {"isr": (1, 2, 9)},
    "empty ISR": {"isr": ()},
    "leader left out": {"isr": (2, 3)},
    "member is not assigned": {"isr": (1, 2, 4)},
    "member twice": {"isr": (1, 2, 2)},
}
"""Each condition alone, in the order in which the first that holds decides."""

ALONE = {
    "unknown": E.UNKNOWN_TOPIC_ID,
    "partition epoch ahead": E.NOT_CONTROLLER,
    "leader epoch ahead": E.NOT_CONTROLLER,
    "leader epoch behind": E.FENCED_LEADER_EPOCH,
    "same content": E.NONE,
    "partition epoch behind": E.INVALID_UPDATE_VERSION,
    "recovering again": E.INVALID_REQUEST,
    "member is not live": E.INELIGIBLE_REPLICA,
    "empty ISR": E.INVALID_REQUEST,
    "leader left out": E.INVALID_REQUEST,
    "member is not assigned": E.INVALID_REQUEST,
    "member twice": E.INVALID_REQUEST,
}

PAIRS = [
    (first, second)
    for first, second in combinations(CONDITIONS, 2)
    if not set(CONDITIONS[first]) & set(CONDITIONS[second])
]


@pytest.mark.kafka("ControllerIntegrationTest.testAlterPartitionErrors")
@pytest.mark.seed("S4-80")
@pytest.mark.parametrize("condition", CONDITIONS)
def test_each_error_alone(condition: str) -> None:
    cluster = cluster_of()
    asked = replace(GOOD, **CONDITIONS[condition])
    assert judge(cluster, asked) is ALONE[condition]
    assert decided(cluster, partial(alter_partitions, requests=[asked])).empty


@pytest.mark.kafka("ControllerIntegrationTest.testAlterPartitionErrors")
@pytest.mark.seed("S4-80")
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_precedence_of_every_pair(first: str, second: str) -> None:
    """Of two conditions the earlier one decides; only "same content" asks for all of it, the recovery state too."""
    asked = replace(GOOD, **CONDITIONS[first], **CONDITIONS[second])
    expected = ALONE[second] if (first, second) == ("same content", "recovering again") else ALONE[first]
    assert judge(cluster_of(), asked) is expected


@pytest.mark.seed("S4-80")
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (replace(GOOD, row=None, by_id=False), E.UNKNOWN_TOPIC_OR_PARTITION),
        (replace(GOOD, row=1), E.UNKNOWN_TOPIC_OR_PARTITION),
        (replace(GOOD, isr=(1, 9), by_id=False), E.OPERATION_NOT_ATTEMPTED),
        (replace(GOOD, isr=(2, 9)), E.INELIGIBLE_REPLICA),
        (replace(GOOD, isr=(1, 4, 9)), E.INELIGIBLE_REPLICA),
        (replace(GOOD, isr=(1, 2), partition_epoch=3), E.NONE),
        (replace(GOOD, isr=(1, 2), recovering=None), E.NONE),
        (replace(GOOD, isr=(2, 1)), None),
        (replace(GOOD, isr=(1,)), None),
    ],
)
def test_versions_and_special_cases(asked: IsrRequest, expected: IsrError | None) -> None:
    """Names below version 2, ids from it on; a partition without a leader yet; Kafka's errors before our own; a
    request that was carried out is a success when it comes again (KAFKA-14144); the order of an ISR is content."""
    assert judge(cluster_of(), asked) is expected


@pytest.mark.kafka("ControllerIntegrationTest.testAlterPartitionErrorsAfterUncleanElection")
@pytest.mark.seed("S4-80", "S4-85")
@pytest.mark.parametrize(
    ("isr", "recovering", "expected"),
    [
        ((2,), True, E.NONE),
        ((2, 3), True, E.INVALID_REQUEST),
        ((2,), False, None),
        ((2, 3), False, None),
        ((2, 3), None, E.INVALID_REQUEST),
    ],
)
def test_recovery_state(isr: tuple[int, ...], recovering: bool | None, expected: IsrError | None) -> None:
    """After an unclean election the leader recovers alone, says so once, and never begins again by itself."""
    cluster = make_cluster(P((1, 2, 3), 2, (2,), epoch=5, version=9, recovering=True))
    asked = replace(GOOD, isr=isr, recovering=recovering)
    assert judge(cluster, asked) is expected
    decision = carried_out(cluster, partial(alter_partitions, requests=[asked]))
    assert [change.after.recovering for change in decision.writes] == ([False] if expected is None else [])


@pytest.mark.kafka("ControllerIntegrationTest.testShutdownBrokerNotAddedToIsr")
@pytest.mark.seed("S4-80")
def test_brokers_that_are_leaving_or_gone_do_not_join() -> None:
    cluster = cluster_of()
    cluster.observe_shutting_down(3)
    assert judge(cluster, GOOD) is E.INELIGIBLE_REPLICA
    assert judge(cluster, replace(GOOD, by_id=False)) is E.OPERATION_NOT_ATTEMPTED
    die(cluster, 3)
    assert judge(cluster, GOOD) is E.INELIGIBLE_REPLICA


def test_a_leader_that_was_fenced_changes_nothing() -> None:
    cluster = make_cluster(P((1, 2), NO_LEADER, (1,), epoch=5, version=9))
    assert judge(cluster, replace(GOOD, isr=(1, 2), leader_epoch=4)) is E.FENCED_LEADER_EPOCH
    assert judge(cluster, replace(GOOD, isr=(1, 2))) is E.INVALID_REQUEST, "nobody leads in this epoch"


def test_a_vanished_topic_is_unknown() -> None:
    cluster = cluster_of()
    cluster.observe_topic_gone("t")
    assert judge(cluster, GOOD) is E.UNKNOWN_TOPIC_ID


@pytest.mark.seed("S4-80")
def test_one_bad_request_does_not_hold_up_the_batch() -> None:
    cluster = make_cluster(*[P((1, 2), 1, epoch=5, version=9)] * 3)
    asked = [replace(GOOD, row=i, isr=(1,), leader_epoch=5 - i % 2) for i in range(3)]
    assert writes_of(carried_out(cluster, partial(alter_partitions, requests=asked))) == {
        0: (1, (1,), 5, 10),
        2: (1, (1,), 5, 10),
    }


@pytest.mark.seed("S4-80")
def test_two_requests_for_one_partition_in_a_batch() -> None:
    """The first is written; once it is, the second is an older version, or a success if it asks for the same."""
    cluster = cluster_of()
    second, repeated = replace(GOOD, isr=(1,)), replace(GOOD)
    decision = carried_out(cluster, partial(alter_partitions, requests=[GOOD, repeated, second]))
    assert writes_of(decision) == {0: (1, (1, 2, 3), 5, 10)}
    assert judge(cluster, second) is E.INVALID_UPDATE_VERSION
    assert judge(cluster, repeated) is E.NONE
