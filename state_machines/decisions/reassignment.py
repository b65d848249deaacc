"""Decides reassignments of partitions (KIP-455, Kafka ``KafkaController.onPartitionReassignment``).

The topic znode is the only truth of a reassignment: it holds origin and target together until everything else is done.
Each step is over all partitions at once; between two of them ZooKeeper has all that the next needs:

1. :func:`judge` requests, :func:`rewrites`: one conditional rewrite per topic (adding and removing replicas).
2. :meth:`Cluster.observe_assignments`: the rewrites that were applied, or the assignments that were read back instead.
3. :func:`reassign`: rows whose target is in sync are completed, the others begin. Rows that began already begin again
  with ``again``: at a repeated request, at the return of a broker, and by a new controller, which enters here with
  all of ``Cluster.reassigning``. After changes of ISRs the rows that are :func:`due` are decided on.
4. Once replicas were sent StopReplica: :func:`final_rewrites` of the rows that are complete, observed as in 2. Then
  ``/admin/reassign_partitions`` keeps the :func:`unfinished` targets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from functools import partial
from typing import Final

from msgspec import Struct

from state_machines.machines import selectors
from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.machines.selectors import NoLeader, Selector
from state_machines.model.cluster import Cluster
from state_machines.model.decision import TopicChange
from state_machines.model.types import Assignment, PartitionState, ReplicaState, TopicPartition

ASKED: Final = "reassignment requested"
BEGUN: Final = "reassignment begins: added replicas follow the leader"
OVERRIDDEN: Final = "reassignment overridden: a new target replaces the one under way"
COMPLETED: Final = "reassignment complete: the target replicas are in sync"
CANCELLED: Final = "reassignment cancelled: the replicas that it added stop"
REMOVED: Final = "reassignment: it is no replica any more"
FINISHED: Final = "reassignment: what it removed has stopped"

EMPTY: Final = "Empty replica list specified in partition reassignment."
TWICE: Final = "a replica is named twice"
NEGATIVE: Final = "a broker id is negative"
NOT_LIVE: Final = "an added replica's broker is not live: start it first"
A_DAEMON: Final = "an added replica is a controller daemon, which hosts no replica"
UNKNOWN: Final = "The partition does not exist."
NOT_REASSIGNED: Final = "no reassignment of the partition is in progress"
LAST_IN_SYNC: Final = "no replica that stays is in sync: wait until one has caught up"
WAITS: Final = "REASSIGNED"
"""Target of refusals of rows that wait for a live leader among the replicas that stay."""


class ReassignError(IntEnum):
    """Kafka error codes that a partition of an AlterPartitionReassignments request can get."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_REPLICA_ASSIGNMENT = 39
    NO_REASSIGNMENT_IN_PROGRESS = 85


class ReassignmentRequest(Struct, frozen=True, gc=False):
    """A target for one partition; None cancels. ``row`` is None where the partition is unknown."""

    row: int | None
    target: tuple[int, ...] | None


class NotReassigned(Struct, frozen=True, gc=False):
    """The error of a partition that is not reassigned."""

    error: ReassignError
    why: str


def judge(
    cluster: Cluster, request: ReassignmentRequest, daemons: Collection[int] = (), *, live_only: bool = True
) -> Assignment | NotReassigned:
    """Returns the assignment that the topic znode gets, or the error, in Kafka's order of checks.

    ``live_only``: added replicas must be live, as by request; by ``/admin/reassign_partitions`` they may come later. A
    target that would leave no replica in sync is refused too (as in KRaft; Kafka's controller deletes the last good
    copy).
    """
    current = None if request.row is None else current_assignment(cluster, request.row, queued=request.target is None)
    if (target := request.target) is not None:
        added = (current or Assignment(())).reassigned_to(target).kept.adding
        if (why := _unsound(cluster, target, added, daemons, live_only=live_only)) is not None:
            return NotReassigned(ReassignError.INVALID_REPLICA_ASSIGNMENT, why)
    elif current is None or not current.kept.moving:
        return NotReassigned(ReassignError.NO_REASSIGNMENT_IN_PROGRESS, NOT_REASSIGNED)
    if current is None or request.row is None:
        return NotReassigned(ReassignError.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN)
    wanted = current.reassigned_to(current.origin if target is None else target)
    if not _in_sync(cluster.rows[request.row].isr, wanted.kept):
        return NotReassigned(ReassignError.INVALID_REPLICA_ASSIGNMENT, LAST_IN_SYNC)
    return wanted


def _unsound(
    cluster: Cluster, target: tuple[int, ...], added: tuple[int, ...], daemons: Collection[int], *, live_only: bool
) -> str | None:
    if not target:
        return EMPTY
    if len(set(target)) != len(target):
        return TWICE
    if min(target) < 0:
        return NEGATIVE
    if any(broker in daemons for broker in added):
        return A_DAEMON
    return NOT_LIVE if live_only and any(broker not in cluster.live for broker in added) else None


def current_assignment(cluster: Cluster, i: int, *, queued: bool = False) -> Assignment | None:
    """Returns the assignment that a request is about: the topic znode's; once complete, target and dropped replicas.

    None where nothing can be reassigned: the partition is gone, or its topic is queued for deletion. ``queued``: also
    of such a topic, because a deletion waits for its reassignment to end, and a cancel ends it.
    """
    row = cluster.rows[i]
    if row.state is PartitionState.NON_EXISTENT or (row.topic in cluster.deletions and not queued):
        return None
    written = cluster.reassigning.get(i, row.assignment)
    if not is_complete(cluster, i):
        return written
    return Assignment((*written.target, *written.removing), written.removing, written.removing)


def is_complete(cluster: Cluster, i: int) -> bool:
    """Checks whether nothing is missing but the final rewrite of the topic znode."""
    written = cluster.reassigning.get(i)
    return written is not None and written.moving and cluster.rows[i].assignment == Assignment(written.target)


def is_settled(cluster: Cluster, i: int) -> bool:
    """Checks whether a row is complete, or goes on once its topic znode is rewritten without dropped replicas."""
    written, assignment = cluster.reassigning.get(i), cluster.rows[i].assignment
    if written is None or not written.moving or assignment == written:
        return False
    return assignment in (written.kept, Assignment(written.target))


def leaves(cluster: Cluster, i: int) -> tuple[int, ...]:
    """Returns the replicas that the topic znode names only until they have stopped; they were sent StopReplica."""
    if not is_settled(cluster, i):
        return ()
    return tuple(r for r in cluster.reassigning[i].replicas if r not in cluster.rows[i].assignment.replicas)


def rewrites(cluster: Cluster, wanted: Mapping[int, Assignment], why: str = ASKED) -> list[TopicChange]:
    """Returns step 1: one rewrite for each topic whose znode has another assignment so far. ``wanted`` by row."""
    partitions: dict[int, dict[int, Assignment]] = {}
    for i, assignment in wanted.items():
        row = cluster.rows[i]
        if cluster.reassigning.get(i, row.assignment) != assignment:
            partitions.setdefault(row.topic, {})[row.partition] = assignment
    topics = [(cluster.topics[t], found) for t, found in partitions.items()]
    return [TopicChange(t.name, t.version, t.czxid, found, None, why) for t, found in topics]


def final_rewrites(cluster: Cluster, rows: Iterable[int]) -> list[TopicChange]:
    """Returns step 4: rewrites of those of ``rows`` that are complete, or whose dropped replicas have stopped."""
    wanted = {i: cluster.rows[i].assignment for i in rows if is_settled(cluster, i)}
    return rewrites(cluster, wanted, FINISHED)


def due(cluster: Cluster, rows: Iterable[int]) -> list[int]:
    """Returns those of ``rows`` on which :func:`reassign` would act by now."""
    return [i for i in rows if i in cluster.reassigning and not is_complete(cluster, i) and _is_due(cluster, i)]


def waiting_for(cluster: Cluster, brokers: Collection[int]) -> list[int]:
    """Returns rows whose reassignment goes on when ``brokers`` return: they are in the target."""
    wanted = frozenset(brokers)
    return [i for i, written in cluster.reassigning.items() if not wanted.isdisjoint(written.target)]


def dropped_on(cluster: Cluster, brokers: Collection[int]) -> list[int]:
    """Returns rows of which the topic znode still names replicas on ``brokers`` that are dropped."""
    gone = frozenset(brokers)
    return [i for i in cluster.reassigning if not gone.isdisjoint(leaves(cluster, i))]


def in_progress(cluster: Cluster) -> dict[int, Assignment]:
    """Returns the rows of ListPartitionReassignments: topic znodes add replicas to them or remove some from them."""
    return {i: kept for i, written in cluster.reassigning.items() if (kept := written.kept).moving}


def unfinished(
    cluster: Cluster, targets: Mapping[TopicPartition, tuple[int, ...]]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns what stays of ``/admin/reassign_partitions``; where nothing does, the znode is deleted.

    A reassignment that is complete, refused or superseded by a request is not under way to its target there.
    """
    moving = {cluster.name(i): written.target for i, written in in_progress(cluster).items()}
    return {name: target for name, target in targets.items() if moving.get(name) == target}


def _is_due(cluster: Cluster, i: int) -> bool:
    row, written = cluster.rows[i], cluster.reassigning[i]
    return row.assignment != written.kept or _caught_up(row.isr, written)


def _caught_up(isr: tuple[int, ...], written: Assignment) -> bool:
    """Checks whether the target is in sync: only then other replicas may go."""
    return set(written.target) <= set(isr)


def _in_sync(isr: tuple[int, ...], wanted: Assignment) -> bool:
    return not isr or any(r in wanted.replicas for r in isr)


class _Steps:
    """Rows of one decision by step, each drawn for all of them together. ``select``: the rule of a completion."""

    def __init__(self, select: Selector) -> None:
        self.select = select
        self.unstarted: list[int] = []
        self.elected: list[int] = []
        self.renewed: list[int] = []
        self.caught_up: list[tuple[int, int]] = []
        self.added: list[tuple[int, int]] = []
        self.sent_again: list[tuple[int, int]] = []
        self.removed: dict[int, list[int]] = {}


def reassign(draft: Draft, rows: Iterable[int], *, again: bool = False) -> None:
    """Draws step 3. Rows for which it is too early to complete or to begin are left as they are.

    So are rows whose state znode is not understood: the replicas that they drop may be the last good copy. All drawings
    of a row are one write: its leader epoch moves as often as with Kafka's controller.
    """
    cluster, select = draft.cluster, _chosen(draft)
    begun, overridden, completed, cancelled = _Steps(select), _Steps(select), _Steps(select), _Steps(select)
    for i in dict.fromkeys(rows):
        written = cluster.reassigning.get(i)
        if written is None or not draft.covers(i) or is_complete(cluster, i):
            continue
        if draft.row(i).state is PartitionState.NON_EXISTENT:
            continue
        kept = written.kept
        if not kept.moving:
            _complete(draft, i, kept, cancelled, CANCELLED)
        elif _caught_up(draft.row(i).isr, kept):
            _complete(draft, i, kept, completed, COMPLETED)
        elif (known := draft.row(i).assignment) != kept and known.moving:
            _begin(draft, i, kept, overridden, OVERRIDDEN)
        elif again or known != kept:
            _begin(draft, i, kept, begun, BEGUN)
    _draw(draft, begun, BEGUN)
    _draw(draft, overridden, OVERRIDDEN)
    _draw(draft, cancelled, CANCELLED)
    _draw(draft, completed, COMPLETED)


def drop_again(draft: Draft, rows: Iterable[int], brokers: Collection[int]) -> None:
    """Draws StopReplica of dropped replicas again, for brokers that registered anew and may have missed it."""
    replicas = ReplicaStateMachine(draft)
    for i in rows:
        for broker in leaves(draft.cluster, i):
            if broker in brokers:
                replicas.stop_again(i, broker, REMOVED)


def _begin(draft: Draft, i: int, kept: Assignment, steps: _Steps, why: str) -> None:
    """Begins: origin and target are sent the new assignment, the added replicas as new ones."""
    if not _settle_leader(draft, i, kept, steps):
        return
    for broker in kept.adding:
        known = draft.replica(i, broker)
        if known is ReplicaState.NON_EXISTENT:
            steps.added.append((i, broker))
        elif known is not ReplicaState.OFFLINE:
            steps.sent_again.append((i, broker))
    _reassigned(draft, i, kept, why, steps)


def _complete(draft: Draft, i: int, kept: Assignment, steps: _Steps, why: str) -> None:
    """Completes: the target remains alone, led by one of its replicas; the others are stopped and deleted."""
    target = Assignment(kept.target)
    if not _settle_leader(draft, i, target, steps):
        return
    steps.caught_up += [(i, b) for b in kept.adding if draft.replica(i, b) is ReplicaState.NEW]
    _reassigned(draft, i, target, why, steps)


def _settle_leader(draft: Draft, i: int, wanted: Assignment, steps: _Steps) -> bool:
    """Draws the leader under ``wanted``; False where the row has to wait for a replica that stays.

    A cancelled reassignment waits only where a live leader would have to go.
    """
    row, cluster = draft.row(i), draft.cluster
    if not row.has_leadership:
        steps.unstarted.append(i)
        return True
    if not _in_sync(row.isr, wanted):
        draft.refuse(i, WAITS, LAST_IN_SYNC, by_isr=True)
        return False
    stays, failed = row.leader in wanted.replicas, cluster.failed(i)
    leads = stays and row.leader in draft.live and row.leader not in failed
    if leads or (wanted.moving and (stays or row.leader not in cluster.brokers)):
        steps.renewed.append(i)
        return True
    found = steps.select(wanted.replicas, row.isr, failed)
    if not isinstance(found, NoLeader):
        steps.elected.append(i)
    elif cluster.reassigning[i].kept.moving or (row.leader in cluster.brokers and not stays):
        lags = steps.select(wanted.replicas, wanted.replicas, failed)
        draft.refuse(i, WAITS, found.why, by_isr=not isinstance(lags, NoLeader))
        return False
    else:
        steps.renewed.append(i)
    return True


def _chosen(draft: Draft) -> Selector:
    """Returns the rule of a completion. It waits rather than choose an outranked broker: the present leader serves."""
    rule, outranked = partial(selectors.reassigned, live=draft.live), draft.outranked
    return selectors.never(selectors.last(rule, outranked, draft.drained), outranked)


def _reassigned(draft: Draft, i: int, wanted: Assignment, why: str, steps: _Steps) -> None:
    for broker in draft.row(i).assignment.replicas:
        if broker not in wanted.replicas:
            steps.removed.setdefault(broker, []).append(i)
    draft.assign(i, wanted, why)


def _draw(draft: Draft, steps: _Steps, why: str) -> None:
    """Draws in Kafka's order: leader epoch or leader, then the replicas that go, then those that come."""
    partitions, replicas = PartitionStateMachine(draft), ReplicaStateMachine(draft)
    replicas.bring_online(steps.caught_up, why)
    for i in steps.renewed:
        row = draft.row(i)
        draft.renew(i, row.leader, row.isr, why)
    partitions.elect(steps.elected, steps.select)
    for broker, rows in sorted(steps.removed.items()):
        replicas.take_offline(broker, rows, REMOVED)
    gone = [(i, broker) for broker, rows in sorted(steps.removed.items()) for i in rows]
    replicas.start_deletion(gone, REMOVED)
    replicas.complete_deletion(gone, REMOVED)
    replicas.forget(gone, REMOVED)
    replicas.create(steps.added, why)
    for i, broker in steps.sent_again:
        row = draft.row(i)
        if row.has_leadership:  # a replica in the ISR has records: sent as new it might begin an empty log elsewhere
            replicas.send_again(i, broker, why, is_new=broker not in row.isr)
    partitions.elect_leaderless(steps.unstarted)
