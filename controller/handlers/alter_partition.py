"""AlterPartition (S4-80; KIP-497): ISR changes that leaders ask for, adjacent calls drained into one commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from brokers.wire.calls import AlterPartitionCall, IsrProposal
from brokers.wire.errors import Error
from brokers.wire.replies import AlterPartitionReply, PartitionReply
from controller.engine.controller import Controller
from controller.engine.event_kinds import EventKind
from controller.handlers.reassignment import isrs_changed
from controller.journal.reason import Reason
from controller.requests.calls import PendingAlterPartition
from state_machines.decisions.alter_partition import IsrError, IsrRequest, alter_partitions, judge
from state_machines.model.types import PartitionState

Item = tuple[IsrProposal, IsrRequest, IsrError | None]
"""A proposal, in terms of the model, and what was judged at first."""
CALLS_MAX = 200
"""Calls that one commit answers at the most."""
PROPOSALS_MAX = 10_000
"""ISR changes in the calls of a commit at which no further call is added: deciding on them takes some 40 ms."""


async def alter_partition(c: Controller, first: PendingAlterPartition) -> None:
    """Judges, commits once, answers each call; a call of a former life of a broker is refused as a whole."""
    pending = c.queue.following(EventKind.ALTER_PARTITION, first, CALLS_MAX, _proposals, PROPOSALS_MAX)
    try:
        await _answer(c, pending)
    finally:
        for call in pending:
            call.refuse()


def _proposals(pending: PendingAlterPartition) -> int:
    return len(pending.call.proposals)


async def _answer(c: Controller, pending: list[PendingAlterPartition]) -> None:
    accepted: list[tuple[PendingAlterPartition, list[Item]]] = []
    for one in pending:
        call = one.call
        broker = c.cluster.brokers.get(call.broker_id)
        if broker is None or broker.epoch != call.broker_epoch:
            one.answer(AlterPartitionReply(Error.STALE_BROKER_EPOCH))
            continue
        requests = [(p, request(c, call, p)) for p in call.proposals]
        accepted.append((one, [(p, asked, judge(c.cluster, asked)) for p, asked in requests]))
    wanted = [asked for _, items in accepted for _, asked, verdict in items if verdict is None]
    if wanted:
        await c.carry_out(partial(alter_partitions, requests=wanted), Reason.ISR_BY_LEADER, "ISR changes of leaders")
        isrs_changed(c, [asked.row for asked in wanted if asked.row is not None])
    answers = [[reply(c, *item) for item in items] for _, items in accepted]
    for (one, _), replies in zip(accepted, answers, strict=True):
        one.answer(AlterPartitionReply(Error.NONE, replies))
    c.take_up({row for (_, items), replies in zip(accepted, answers, strict=True) for row in _behind(items, replies)})


def _behind(items: Sequence[Item], replies: Sequence[PartitionReply]) -> Iterator[int]:
    """Rows whose leader knows an older partition epoch of its leader epoch: somebody else wrote the state znode.

    Such a leader asks for nothing more until it is told another leader epoch.
    """
    for (_, asked, _), answer in zip(items, replies, strict=True):
        if asked.row is not None and answer.error == IsrError.INVALID_UPDATE_VERSION:
            yield asked.row


def request(c: Controller, call: AlterPartitionCall, proposal: IsrProposal) -> IsrRequest:
    """The proposal in terms of the model. Below v1 there is no recovery state: it stays.

    A known topic's unknown partition is answered as if it had been asked for by name: its id is not unknown.
    """
    topic = (
        c.cluster.topic_by_id(proposal.topic) if isinstance(proposal.topic, bytes) else c.cluster.topic(proposal.topic)
    )
    row = None if topic is None else c.cluster.row_in(topic, proposal.partition)
    unknown = row is None or c.cluster.rows[row].state is PartitionState.NON_EXISTENT
    by_id = isinstance(proposal.topic, bytes) and not (unknown and topic is not None)
    return IsrRequest(
        row,
        proposal.leader_epoch,
        proposal.partition_epoch,
        proposal.isr,
        proposal.recovering if call.version >= 1 else None,
        by_id,
    )


def reply(c: Controller, proposal: IsrProposal, asked: IsrRequest, verdict: IsrError | None) -> PartitionReply:
    """The answer for one partition: what was judged at first, or what the commit made of it."""
    if verdict is None:
        verdict = judge(c.cluster, asked)
        if verdict is None:
            verdict = IsrError.OPERATION_NOT_ATTEMPTED  # the leader takes it back and proposes anew
    if verdict is not IsrError.NONE or asked.row is None:
        return PartitionReply(proposal.topic, proposal.partition, int(verdict))
    row = c.cluster.rows[asked.row]
    return PartitionReply(
        proposal.topic, proposal.partition, 0, row.leader, row.leader_epoch, row.isr, row.version, row.recovering
    )
