"""AlterPartition: the whole matrix of errors, their precedence, and what is written (S4-80; KIP-497, KIP-841)."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import pytest
from msgspec.structs import replace

from state_machines.decisions.alter_partition import IsrError, IsrRequest, alter_partitions, judge
from state_machines.model.cluster import Cluster
from state_machines.model.types import NO_LEADER
from tests.kit.kafka.model import EPOCH, P, carried_out, decided, die, make_cluster, shown, topic_gone, writes_of

E = IsrError


def cluster_of() -> Cluster:
    """Makes partition 0: leader 1, ISR 1, 2 of 1, 2, 3, epochs 5 and 9; 4 is live, not assigned."""
    return make_cluster(P((1, 2, 3), 1, (1, 2), epoch=5, version=9), P((1, 2)), brokers=(1, 2, 3, 4))


GOOD = IsrRequest(0, leader_epoch=5, partition_epoch=9, isr=(1, 2, 3), recovering=False, by_id=True)


@pytest.mark.seed("S4-80")
def test_a_sound_isr_is_written_without_a_new_leader_epoch() -> None:
    cluster = cluster_of()
    assert judge(cluster, GOOD) is None
    [change] = carried_out(cluster, partial(alter_partitions, requests=[GOOD])).writes
    assert shown(change) == (1, (1, 2, 3), 5, 10)
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
def test_a_condition_alone_has_its_error(condition: str) -> None:
    cluster = cluster_of()
    request = replace(GOOD, **CONDITIONS[condition])
    assert judge(cluster, request) is ALONE[condition]
    assert decided(cluster, partial(alter_partitions, requests=[request])).empty


@pytest.mark.kafka("ControllerIntegrationTest.testAlterPartitionErrors")
@pytest.mark.seed("S4-80")
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_of_two_conditions_the_earlier_decides(first: str, second: str) -> None:
    """Only "same content" means all of it, the recovery state too."""
    request = replace(GOOD, **CONDITIONS[first], **CONDITIONS[second])
    expected = ALONE[second] if (first, second) == ("same content", "recovering again") else ALONE[first]
    assert judge(cluster_of(), request) is expected


@pytest.mark.seed("S4-80")
@pytest.mark.parametrize(
    ("proposal", "expected"),
    [
        pytest.param(replace(GOOD, row=None, by_id=False), E.UNKNOWN_TOPIC_OR_PARTITION, id="a name below version 2"),
        pytest.param(replace(GOOD, row=1), E.UNKNOWN_TOPIC_OR_PARTITION, id="no leader yet"),
        pytest.param(replace(GOOD, isr=(1, 9), by_id=False), E.OPERATION_NOT_ATTEMPTED, id="not live, below version 2"),
        pytest.param(replace(GOOD, isr=(2, 9)), E.INELIGIBLE_REPLICA, id="Kafka's error before the leader left out"),
        pytest.param(replace(GOOD, isr=(1, 4, 9)), E.INELIGIBLE_REPLICA, id="Kafka's error before not assigned"),
        pytest.param(replace(GOOD, isr=(1, 2), partition_epoch=3), E.NONE, id="carried out already (KAFKA-14144)"),
        pytest.param(replace(GOOD, isr=(1, 2), recovering=None), E.NONE, id="below AlterPartition v1"),
        pytest.param(replace(GOOD, isr=(1,), recovering=True), E.INVALID_REQUEST, id="recovering again, alone"),
        pytest.param(replace(GOOD, isr=(2, 1)), None, id="another order is other content"),
        pytest.param(replace(GOOD, isr=(1,)), None, id="the leader alone"),
    ],
)
def test_a_special_case_has_its_error(proposal: IsrRequest, expected: IsrError | None) -> None:
    assert judge(cluster_of(), proposal) is expected


@pytest.mark.kafka("ControllerIntegrationTest.testAlterPartitionErrorsAfterUncleanElection")
@pytest.mark.seed("S4-80", "S4-85")
@pytest.mark.parametrize(
    ("known", "isr", "recovering", "expected", "written"),
    [
        ((2,), (2,), True, E.NONE, []),
        ((2,), (2, 3), True, E.INVALID_REQUEST, []),
        ((2,), (2,), False, None, [False]),
        ((2,), (2, 3), False, None, [False]),
        ((2,), (2, 3), None, E.INVALID_REQUEST, []),
        ((2, 3), (2,), True, None, [True]),
        ((2, 3), (2,), None, None, [True]),
    ],
)
def test_a_recovering_leader_is_alone_in_the_isr_until_it_has_recovered(
    known: tuple[int, ...],
    isr: tuple[int, ...],
    recovering: bool | None,
    expected: IsrError | None,
    written: list[bool],
) -> None:
    cluster = make_cluster(P((1, 2, 3), 2, known, epoch=5, version=9, recovering=True))
    request = replace(GOOD, isr=isr, recovering=recovering)
    assert judge(cluster, request) is expected
    decision = carried_out(cluster, partial(alter_partitions, requests=[request]))
    assert [change.after.recovering for change in decision.writes] == written


@pytest.mark.kafka("ControllerIntegrationTest.testShutdownBrokerNotAddedToIsr")
@pytest.mark.seed("S4-80")
def test_a_broker_that_shuts_down_or_is_gone_does_not_join() -> None:
    cluster = cluster_of()
    cluster.observe_shutting_down(3)
    assert judge(cluster, GOOD) is E.INELIGIBLE_REPLICA
    assert judge(cluster, replace(GOOD, by_id=False)) is E.OPERATION_NOT_ATTEMPTED
    die(cluster, 3)
    assert judge(cluster, GOOD) is E.INELIGIBLE_REPLICA


def test_a_former_leader_changes_nothing() -> None:
    cluster = make_cluster(P((1, 2), NO_LEADER, (1,), epoch=5, version=9))
    assert judge(cluster, replace(GOOD, isr=(1, 2), leader_epoch=4)) is E.FENCED_LEADER_EPOCH
    assert judge(cluster, replace(GOOD, isr=(1, 2))) is E.INVALID_REQUEST, "this epoch has no leader"


@pytest.mark.seed("S4-80")
def test_a_refused_request_does_not_hold_up_the_batch() -> None:
    cluster = make_cluster(*[P((1, 2), 1, epoch=5, version=9)] * 3)
    known = [replace(GOOD, row=i, isr=(1,), leader_epoch=5 - i % 2) for i in range(3)]
    requests = [replace(GOOD, row=None), known[0], *known]
    assert writes_of(carried_out(cluster, partial(alter_partitions, requests=requests))) == {
        0: (1, (1,), 5, 10),
        2: (1, (1,), 5, 10),
    }


@pytest.mark.seed("S4-80")
def test_of_two_requests_for_a_partition_the_first_is_written_and_the_other_judged_afterwards() -> None:
    cluster = cluster_of()
    second, repeated = replace(GOOD, isr=(1,)), replace(GOOD)
    decision = carried_out(cluster, partial(alter_partitions, requests=[GOOD, repeated, second]))
    assert writes_of(decision) == {0: (1, (1, 2, 3), 5, 10)}
    assert judge(cluster, second) is E.INVALID_UPDATE_VERSION
    assert judge(cluster, repeated) is E.NONE
    topic_gone(cluster, "t")
    assert judge(cluster, repeated) is E.UNKNOWN_TOPIC_ID
