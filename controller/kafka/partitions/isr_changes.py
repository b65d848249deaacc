"""Handles ISR changes of leaders (S4-80): requested by AlterPartition (KIP-497), or notified below IBP 2.7-IV2."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from brokers.wire.calls import AlterPartitionCall, IsrProposal
from brokers.wire.errors import Error
from brokers.wire.replies import AlterPartitionReply, PartitionReply
from controller.kafka.journal.report import Reason
from controller.kafka.partitions.controlled_shutdown import keep_out_of_isrs
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from controller.kafka.reassignments.reassignment import isrs_changed
from controller.kafka.requests.calls import PendingAlterPartition
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.nodes.cluster_nodes import Contended, delete_children
from metadata_store.reads import read_isr_changes
from state_machines.decisions.alter_partition import INELIGIBLE, IsrError, IsrRequest, alter_partitions, judge
from state_machines.model.cluster import Cluster
from state_machines.model.types import PartitionState
from state_machines.portions import portions

log = logging.getLogger("regent.controller")

CALLS_MAX = 200
"""Calls that one commit takes at the most."""
PROPOSALS_MAX = 10_000
"""ISR changes in the calls at which no further call is taken together with them."""
TURN_PROPOSALS: Final = 10_000
"""ISR changes of one decision, of one call or of many: some 60 ms."""


async def alter_partition(c: Controller, first: PendingAlterPartition) -> None:
    """Judges, commits once, responds to each call; refuses calls of an earlier incarnation as a whole."""
    pending = c.queue.following(EventKind.ALTER_PARTITION, first, CALLS_MAX, _proposals, PROPOSALS_MAX)
    try:
        await _answer(c, pending)
    finally:
        for call in pending:
            call.refuse()


def _proposals(pending: PendingAlterPartition) -> int:
    return len(pending.call.proposals)


class _Proposed:
    """Holds a proposal in terms of the model. ``verdict`` is None while the ISR is to be written."""

    __slots__ = ("proposal", "request", "verdict")

    def __init__(self, proposal: IsrProposal, request: IsrRequest) -> None:
        self.proposal = proposal
        self.request = request
        self.verdict: IsrError | None = None

    def judge(self, cluster: Cluster) -> None:
        """Judges on the present model, unless the verdict is known: before the write, and after it the rest."""
        if self.verdict is None:
            self.verdict = judge(cluster, self.request)


async def _answer(c: Controller, pending: list[PendingAlterPartition]) -> None:
    accepted: list[PendingAlterPartition] = []
    for one in pending:
        call = one.call
        broker = c.cluster.brokers.get(call.broker_id)
        if broker is None or broker.epoch != call.broker_epoch:
            one.answer(AlterPartitionReply(Error.STALE_BROKER_EPOCH))
        else:
            accepted.append(one)
    replies: dict[int, list[PartitionReply]] = {at: [] for at in range(len(accepted))}
    behind: set[int] = set()
    ineligible: list[IsrRequest] = []
    asked = [(at, proposal) for at, one in enumerate(accepted) for proposal in one.call.proposals]
    for some in portions(asked, TURN_PROPOSALS):
        items = [_Proposed(proposal, request(c, accepted[at].call, proposal)) for at, proposal in some]
        await _write(c, items)
        for (at, _), item in zip(some, items, strict=True):
            replies[at].append(reply(c.cluster, item))
        behind.update(row for item in items if (row := _behind(item)) is not None)
        ineligible += [item.request for item in items if item.verdict in INELIGIBLE]
        await asyncio.sleep(0)
    for at, one in enumerate(accepted):
        one.answer(AlterPartitionReply(Error.NONE, replies[at]))
    c.take_up(behind)
    await keep_out_of_isrs(c, ineligible)


async def _write(c: Controller, items: list[_Proposed]) -> None:
    """Judges proposals, writes those that are sound, and judges the others again: they met another write."""
    for item in items:
        item.judge(c.cluster)
    wanted = [item for item in items if item.verdict is None]
    if wanted:
        decide = partial(alter_partitions, requests=[item.request for item in wanted])
        await c.carry_out(decide, Reason.ISR_BY_LEADER, "ISR changes of leaders")
        isrs_changed(c, [item.request.row for item in wanted if item.request.row is not None])
        for item in wanted:
            item.judge(c.cluster)


def _behind(item: _Proposed) -> int | None:
    """Returns the row whose leader knows an older partition epoch of its leader epoch: another wrote the state znode.

    Such a leader sends no further request until it receives another leader epoch.
    """
    return item.request.row if item.verdict is IsrError.INVALID_UPDATE_VERSION else None


def request(c: Controller, call: AlterPartitionCall, proposal: IsrProposal) -> IsrRequest:
    """Translates a proposal into terms of the model. Below v1 there is no recovery state: it stays.

    An unknown partition of a known topic gets the error of a request by name: the topic's id is not unknown.
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


def reply(cluster: Cluster, item: _Proposed) -> PartitionReply:
    """Returns the response for one partition. A leader whose ISR was not written takes it back and proposes anew."""
    proposal, i = item.proposal, item.request.row
    verdict = IsrError.OPERATION_NOT_ATTEMPTED if item.verdict is None else item.verdict
    if verdict is not IsrError.NONE or i is None:
        return PartitionReply(proposal.topic, proposal.partition, int(verdict))
    row = cluster.rows[i]
    return PartitionReply(
        proposal.topic, proposal.partition, 0, row.leader, row.leader_epoch, row.isr, row.version, row.recovering
    )


async def isr_notification(c: Controller) -> None:
    """Reads the notifications, observes and propagates the named partitions, then deletes the notifications."""
    since = c.zk.last_zxid
    listed = await c.zk.children(paths.ISR_CHANGES)
    await c.zk.watch(children=[paths.ISR_CHANGES], since_zxid=since)
    names = sorted(listed[0]) if listed is not None else []
    if not names:
        return
    named: dict[int, None] = {}
    for found in await read_isr_changes(c.zk, names):
        if isinstance(found, MalformedNode):
            c.malformed(found)
            continue
        if found.unusable:
            log.error("%s: %s; the states of the others are read", paths.ISR_CHANGES, found.unusable)
        for topic, partition in found.named:
            row = c.cluster.find(topic, partition)
            if row is not None:
                named[row] = None
    if named:
        await c.reread(list(named))
        isrs_changed(c, named)
    await discard(c, [f"{paths.ISR_CHANGES}/{name}" for name in names])


async def discard(c: Controller, processed: list[str]) -> None:
    """Deletes notifications. Those that cannot be deleted stay, and are read once more with the next ones."""
    try:
        await delete_children(c.zk, processed, c.fence)
    except Contended as contended:
        log.error("%s: check the ACL of their parent", contended)
    for path in processed:
        c.counters.malformed.pop(path, None)
