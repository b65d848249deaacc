"""Judges the ISR that a leader requests by AlterPartition, with Kafka 3.9's precedence of errors (KIP-497, KIP-841).

The order of the checks is part of the contract (KAFKA-14144, KAFKA-14154). A leader that knows more than the model
means that this controller may be a zombie. The same content again is a success; only then older epochs are errors.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

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


INELIGIBLE: Final = frozenset({IsrError.INELIGIBLE_REPLICA, IsrError.OPERATION_NOT_ATTEMPTED})
"""Errors by which :func:`judge` refuses a replica whose broker is not live: by topic id, and by name."""


class IsrRequest(Struct, frozen=True, gc=False):
    """A leader's request for one partition. ``row`` is None where topic or partition is unknown.

    ``recovering`` is None below AlterPartition v1: the state stays. ``by_id``: the request names topics by id (v2+).
    """

    row: int | None
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    recovering: bool | None
    by_id: bool


def judge(cluster: Cluster, request: IsrRequest) -> IsrError | None:
    """Returns the error or idempotent success of one request, or None where the ISR is to be written."""
    if request.row is None or cluster.rows[request.row].state is PartitionState.NON_EXISTENT:
        return IsrError.UNKNOWN_TOPIC_ID if request.by_id else IsrError.UNKNOWN_TOPIC_OR_PARTITION
    row = cluster.rows[request.row]
    if not row.has_leadership:
        return IsrError.UNKNOWN_TOPIC_OR_PARTITION
    if request.partition_epoch > row.version or request.leader_epoch > row.leader_epoch:
        return IsrError.NOT_CONTROLLER
    if request.leader_epoch < row.leader_epoch:
        return IsrError.FENCED_LEADER_EPOCH
    return _judge_content(cluster, request, row)


def _judge_content(cluster: Cluster, request: IsrRequest, row: PartitionRow) -> IsrError | None:
    recovering = row.recovering if request.recovering is None else request.recovering
    if request.isr == row.isr and recovering == row.recovering:
        return IsrError.NONE
    if request.partition_epoch < row.version:
        return IsrError.INVALID_UPDATE_VERSION
    if recovering and (len(request.isr) > 1 or not row.recovering):
        return IsrError.INVALID_REQUEST
    if any(broker not in cluster.live for broker in request.isr):
        return IsrError.INELIGIBLE_REPLICA if request.by_id else IsrError.OPERATION_NOT_ATTEMPTED
    return None if _sound(request.isr, row) else IsrError.INVALID_REQUEST


def _sound(isr: tuple[int, ...], row: PartitionRow) -> bool:
    """Checks what Kafka leaves to its brokers: assigned replicas, each once, the leader among them (so never empty)."""
    return row.leader in isr and len(set(isr)) == len(isr) and all(r in row.assignment.replicas for r in isr)


def alter_partitions(draft: Draft, requests: list[IsrRequest]) -> None:
    """Draws the ISR of every request that :func:`judge` lets pass; the leader epoch does not move.

    Of several requests for one row the first is drawn: the others are judged again once it is committed.
    """
    for request in requests:
        if request.row is None or draft.rewritten(request.row):
            continue
        if judge(draft.cluster, request) is None:
            row = draft.rows[request.row]
            recovering = row.recovering if request.recovering is None else request.recovering
            isr = draft.cluster.intern_isr(request.isr)
            draft.change_isr(request.row, isr, recovering, ISR_CHANGED)
