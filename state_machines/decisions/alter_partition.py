"""AlterPartition: the ISR that a leader asks for, with Kafka 3.9's precedence of errors (S4-80; KIP-497, KIP-841).

The order of the checks is part of the contract (facts of KAFKA-14144, KAFKA-14154): a leader that knows more than we
do means that we may be a zombie; the same content again is a success; only then older epochs are errors.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from state_machines.machines.draft import Draft
from state_machines.model.cluster import Cluster
from state_machines.model.types import PartitionRow, PartitionState

ISR_CHANGED = "the leader changed its ISR"


class IsrError(IntEnum):
    """Kafka error codes that a partition of an AlterPartition request can get."""

    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    FENCED_LEADER_EPOCH = 74
    OPERATION_NOT_ATTEMPTED = 55
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    INELIGIBLE_REPLICA = 107


class IsrRequest(Struct, frozen=True, gc=False):
    """What a leader asks for one partition. ``row`` is None where topic or partition is unknown.

    ``recovering`` is None below AlterPartition v1: the state stays. ``by_id``: the request names topics by id (v2+).
    """

    row: int | None
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    recovering: bool | None
    by_id: bool


def judge(cluster: Cluster, asked: IsrRequest) -> IsrError | None:
    """The error or idempotent success of one request, or None where the ISR is to be written."""
    if asked.row is None or cluster.rows[asked.row].state is PartitionState.NON_EXISTENT:
        return IsrError.UNKNOWN_TOPIC_ID if asked.by_id else IsrError.UNKNOWN_TOPIC_OR_PARTITION
    row = cluster.rows[asked.row]
    if not row.has_leadership:
        return IsrError.UNKNOWN_TOPIC_OR_PARTITION
    if asked.partition_epoch > row.version or asked.leader_epoch > row.leader_epoch:
        return IsrError.NOT_CONTROLLER
    if asked.leader_epoch < row.leader_epoch:
        return IsrError.FENCED_LEADER_EPOCH
    return _judge_content(cluster, asked, row)


def _judge_content(cluster: Cluster, asked: IsrRequest, row: PartitionRow) -> IsrError | None:
    recovering = row.recovering if asked.recovering is None else asked.recovering
    if asked.isr == row.isr and recovering == row.recovering:
        return IsrError.NONE
    if asked.partition_epoch < row.version:
        return IsrError.INVALID_UPDATE_VERSION
    if recovering and (len(asked.isr) > 1 or not row.recovering):
        return IsrError.INVALID_REQUEST
    if any(broker not in cluster.live for broker in asked.isr):
        return IsrError.INELIGIBLE_REPLICA if asked.by_id else IsrError.OPERATION_NOT_ATTEMPTED
    return None if _sound(asked.isr, row) else IsrError.INVALID_REQUEST


def _sound(isr: tuple[int, ...], row: PartitionRow) -> bool:
    """What Kafka leaves to its brokers: assigned replicas, each once, the leader among them (so never empty)."""
    return row.leader in isr and len(set(isr)) == len(isr) and all(r in row.assignment.replicas for r in isr)


def alter_partitions(draft: Draft, asked: list[IsrRequest]) -> None:
    """Draws the ISR of every request that :func:`judge` lets pass; the leader epoch does not move.

    Of several requests for one row the first is drawn: the others are judged again once it is committed.
    """
    for request in asked:
        if request.row is None or draft.rewritten(request.row):
            continue
        if judge(draft.cluster, request) is None:
            row = draft.rows[request.row]
            recovering = row.recovering if request.recovering is None else request.recovering
            isr = draft.cluster.intern_isr(request.isr)
            draft.change_isr(request.row, isr, recovering, ISR_CHANGED)
