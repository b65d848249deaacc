"""Decides elections by request (Kafka ``processReplicaLeaderElection``) and by the automatic balance.

Preferred elections come by znode, by request, and by the automatic balance. Unclean ones come by request, and where a
setting that allows them was switched on. All partitions of a request, or of one balance, are one decision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import IntEnum
from functools import partial
from typing import Final

from msgspec import Struct

from state_machines.machines import selectors
from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine, Unclean
from state_machines.machines.selectors import Election, NoLeader, Selector
from state_machines.model.cluster import Cluster
from state_machines.model.types import PartitionState

UNKNOWN: Final = "The partition does not exist."
TO_BE_DELETED: Final = "The topic is being deleted"
LEADS_ALREADY: Final = "the preferred replica leads already"
LEADER_LIVES: Final = "its leader is live"
GIVEN_UP: Final = "another writer keeps changing its state: try again"


class ElectionType(IntEnum):
    """The type of an ElectLeaders request, with Kafka's numbers (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionError(IntEnum):
    """Kafka error codes that a partition of an ElectLeaders request can get."""

    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_TOPIC_EXCEPTION = 17
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84


FAILED: Final = {
    ElectionType.PREFERRED: ElectionError.PREFERRED_LEADER_NOT_AVAILABLE,
    ElectionType.UNCLEAN: ElectionError.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}
"""The error of an election that found no leader: the decision refuses it with the reason."""


class NotElected(Struct, frozen=True, gc=False):
    """The error of a partition without an election."""

    error: ElectionError
    why: str


_UNKNOWN: Final = NotElected(ElectionError.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN)
_TO_BE_DELETED: Final = NotElected(ElectionError.INVALID_TOPIC_EXCEPTION, TO_BE_DELETED)
_LEADS_ALREADY: Final = NotElected(ElectionError.ELECTION_NOT_NEEDED, LEADS_ALREADY)
_LEADER_LIVES: Final = NotElected(ElectionError.ELECTION_NOT_NEEDED, LEADER_LIVES)


def judge(cluster: Cluster, i: int | None, kind: ElectionType) -> NotElected | None:
    """Returns the error of a request, None where an election is to be held. The order of the checks is Kafka's."""
    if i is None:
        return _UNKNOWN
    row = cluster.rows[i]
    if row.topic in cluster.deletions:
        return _TO_BE_DELETED
    if row.state is PartitionState.NON_EXISTENT:
        return _UNKNOWN
    if kind is ElectionType.PREFERRED and row.leader == row.assignment.replicas[0] and row.has_leadership:
        return _LEADS_ALREADY
    if kind is ElectionType.UNCLEAN and row.leader in cluster.live and row.has_leadership:
        return _LEADER_LIVES
    return None


def elect(draft: Draft, rows: Iterable[int], kind: ElectionType) -> None:
    """Elects leaders for rows that were judged; rows where no replica can lead are refused with the reason.

    In a decision that a conflict repeats, a row that needs no election any more is passed over.
    """
    wanted = [i for i in rows if draft.covers(i) and judge(draft.cluster, i, kind) is None]
    partitions, rows_now = PartitionStateMachine(draft), draft.cluster.rows
    started = [i for i in wanted if rows_now[i].has_leadership]
    if len(started) < len(wanted):
        partitions.elect_leaderless(i for i in wanted if not rows_now[i].has_leadership)
    partitions.elect(started, _rule(draft.cluster, kind))


def _rule(cluster: Cluster, kind: ElectionType) -> Selector:
    if kind is ElectionType.PREFERRED:
        return selectors.never(partial(selectors.preferred, live=cluster.live), cluster.outranked)
    rule = partial(selectors.offline, live=cluster.live, unclean=True)
    return selectors.last(rule, cluster.outranked, cluster.drained)


def forecast(cluster: Cluster, i: int | None, kind: ElectionType) -> Election | NotElected:
    """Returns the election that a request would hold for a row now, or its error."""
    found = judge(cluster, i, kind)
    if found is not None or i is None:
        return found or _UNKNOWN
    row = cluster.rows[i]
    rule = _rule(cluster, kind) if row.has_leadership else partial(selectors.initial, live=cluster.live)
    chosen = rule(row.assignment.replicas, row.isr, cluster.failed(i))
    return NotElected(FAILED[kind], chosen.why) if isinstance(chosen, NoLeader) else chosen


def outcome(cluster: Cluster, i: int, kind: ElectionType) -> NotElected | None:
    """Returns the error of a row after its election; None where it has the leader that was requested.

    The selector gives the reason anew: the election may have been decided on an earlier state.
    """
    found = judge(cluster, i, kind)
    if found is not None:
        return None if found.error is ElectionError.ELECTION_NOT_NEEDED else found
    missing = forecast(cluster, i, kind)
    return missing if isinstance(missing, NotElected) else NotElected(FAILED[kind], GIVEN_UP)


def allow_unclean(draft: Draft, unclean: Unclean, topics: Collection[int] | None = None) -> None:
    """Elects leaders for leaderless partitions of ``topics`` (None: all), which now allow unclean elections."""
    rows = draft.rows
    waiting = (i for i in sorted(draft.cluster.leaderless) if topics is None or rows[i].topic in topics)
    PartitionStateMachine(draft).elect_leaderless(waiting, unclean)


class Imbalance(Struct, gc=False):
    """A broker's share: partitions that prefer it, and those of them that it does not lead."""

    preferred: int = 0
    not_led: list[int] = []

    @property
    def ratio(self) -> float:
        """The share that others lead, between 0 and 1."""
        return len(self.not_led) / self.preferred


def imbalance(
    cluster: Cluster, rows: range | None = None, found: dict[int, Imbalance] | None = None
) -> dict[int, Imbalance]:
    """Counts by preferred broker, as Kafka does: partitions with a leadership, of topics that are not to be deleted.

    ``rows`` are counted (None: all) and added to what was ``found`` before, so that a large model is counted in turns.
    """
    found = {} if found is None else found
    deletions, gone = cluster.deletions, PartitionState.NON_EXISTENT
    table = cluster.rows
    for i in range(len(table)) if rows is None else rows:
        row = table[i]
        if row.state is gone or row.topic in deletions:
            continue
        first = row.assignment.replicas[0]
        share = found.get(first)
        if share is None:
            share = found[first] = Imbalance(0, [])
        share.preferred += 1
        if row.leader != first and row.has_leadership:
            share.not_led.append(i)
    return found


def to_balance(
    cluster: Cluster,
    percentage_max: int,
    moves_max: int,
    counted: dict[int, Imbalance] | None = None,
    *,
    behind: bool = False,
) -> list[int]:
    """Returns the moves of the automatic balance, of the worst broker first (KAFKA-9866).

    Brokers above ``percentage_max`` (per cent of the partitions that prefer them and that others lead) get those that
    they can lead at once, ``moves_max`` at most. The rest waits for the next balance. Outranked and drained brokers
    get none.
    ``counted``: the present :func:`imbalance`. ``behind``: returns the rows instead that only their ISR keeps from
    moving.
    """
    able = cluster.live - cluster.outranked - cluster.drained
    shares = [
        (share.ratio, broker, share.not_led)
        for broker, share in (imbalance(cluster) if counted is None else counted).items()
        if broker in able and 100 * len(share.not_led) > percentage_max * share.preferred
    ]
    moves: list[int] = []
    for _, _, not_led in sorted(shares, key=lambda share: (-share[0], share[1])):
        moves += (i for i in not_led if _electable(cluster, i, behind=behind))
    return moves[:moves_max]


def _electable(cluster: Cluster, i: int, *, behind: bool) -> bool:
    row = cluster.rows[i]
    found = selectors.preferred(row.assignment.replicas, row.isr, cluster.failed(i), live=cluster.live)
    return found.why == selectors.PREFERRED_BEHIND if behind else isinstance(found, Election)
