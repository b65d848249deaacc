"""Decides topic deletion (Kafka ``TopicDeletionManager``), from the marker to the last StopReplica response.

A topic whose marker was seen is queued (``Cluster.deletions``). Once it starts, its partitions are NonExistent, every
broker is sent their removal, and each registered broker of a replica is sent StopReplica with deletion. A replica in
DeletionStarted waits for the response; in DeletionSuccessful it is done, whatever happens to its broker. In
DeletionIneligible its broker is gone, or refused. The topic's znodes are deleted once all replicas are successful.
Nothing is written before that: a controller that takes over starts again from the marker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct

from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.model.cluster import Cluster
from state_machines.model.decision import TopicChange
from state_machines.model.types import PartitionState, ReplicaState, Topic, TopicAssignment

DELETED: Final = "its topic is being deleted"
LOG_DELETED: Final = "its broker deleted the log"
NOT_DELETED: Final = "its broker did not delete the log"
WAITS: Final = "a broker of its replicas is gone or did not delete: it goes on when that broker starts"
MOVES: Final = "a reassignment of its topic is in progress: wait for it, or cancel it"
RESTORED: Final = "partitions that were added while the topic is being deleted are taken back"

WHOLE: Final = slice(None)
INELIGIBLE: Final = ReplicaState.DELETION_INELIGIBLE
_WAITING: Final = frozenset({ReplicaState.ONLINE, ReplicaState.NEW, ReplicaState.OFFLINE})


class Markers(Struct, frozen=True):
    """Markers in ``removed`` go at once; the topics in ``queued`` are to be deleted."""

    removed: tuple[str, ...]
    queued: tuple[str, ...]


def sort_markers(cluster: Cluster, markers: Iterable[str], *, enabled: bool | None) -> Markers:
    """Sorts children of ``/admin/delete_topics``: markers of unknown topics go, all do where deletion is switched off.

    While that is not known (``enabled`` None), markers of known topics stay and no deletion begins. Deletions that
    brokers have been sent go on in any case.
    """
    removed: list[str] = []
    queued: list[str] = []
    for name in sorted(markers):
        index = cluster.topic_index.get(name)
        if index is None or (enabled is False and index not in cluster.deletions):
            removed.append(name)
        elif enabled or index in cluster.deletions:
            queued.append(name)
    return Markers(tuple(removed), tuple(queued))


def advance(draft: Draft, topics: Iterable[int], *, retry: bool = False, part: slice = WHOLE) -> None:
    """Starts the deletion of queued topics, and of replicas that could not be sent StopReplica before.

    ``retry``: also of replicas whose brokers refused (at the return of a broker, or the end of a reassignment). A topic
    with a reassignment in progress waits for its end. ``part``: of the rows of each topic.
    """
    cluster = draft.cluster
    rows: list[int] = []
    for index in topics:
        if index in cluster.deletions:
            members = cluster.topics[index].rows
            moving = next((i for i in members if cluster.is_moving(i)), None) if cluster.reassigning else None
            if moving is None:
                rows += members[part]
            else:
                draft.refuse(moving, PartitionState.NON_EXISTENT.name, MOVES)
    _forget_partitions(draft, [i for i in rows if not draft.row(i).is_removed])
    _stop_replicas(draft, rows, _WAITING | {INELIGIBLE} if retry else _WAITING)


def _forget_partitions(draft: Draft, rows: list[int]) -> None:
    """Ends partitions, also those without a usable state znode: a deletion that was left half done deleted some.

    Brokers may know them still, and would show them in the next topic of this name.
    """
    partitions = PartitionStateMachine(draft)
    partitions.create([i for i in rows if draft.row(i).state is PartitionState.NON_EXISTENT], DELETED)
    partitions.take_offline(rows, DELETED)
    partitions.remove(rows, DELETED)


def _stop_replicas(draft: Draft, rows: Iterable[int], states: Collection[ReplicaState]) -> None:
    replicas, registered = ReplicaStateMachine(draft), draft.cluster.brokers
    by_broker: dict[int, list[int]] = {}
    for i in rows:
        for broker in draft.row(i).assignment.replicas:
            if broker in registered and draft.replica(i, broker) in states:
                by_broker.setdefault(broker, []).append(i)
    for broker, stopped in sorted(by_broker.items()):
        replicas.take_offline(broker, stopped, DELETED)
        replicas.start_deletion([(i, broker) for i in stopped], DELETED)


def answered(draft: Draft, broker: int, deleted: Iterable[int], failed: Collection[int] = ()) -> None:
    """Draws a broker's response to StopReplica with deletion. ``failed``: rows with an error.

    All rows fail where the request as a whole was refused. The broker names none then, and Kafka's controller waits.
    """
    replicas = ReplicaStateMachine(draft)
    started = [(i, broker) for i in deleted if draft.replica(i, broker) is ReplicaState.DELETION_STARTED]
    replicas.complete_deletion([replica for replica in started if replica[0] not in failed], LOG_DELETED)
    replicas.fail_deletion([replica for replica in started if replica[0] in failed], NOT_DELETED)


def under_way(cluster: Cluster, topics: Iterable[int]) -> list[int]:
    """Returns those of ``topics`` of which a replica still waits for its broker's response."""
    return [index for index in topics if index in cluster.deletions and any_waits(cluster, cluster.topics[index].rows)]


def any_waits(cluster: Cluster, rows: Sequence[int]) -> bool:
    """Checks whether a replica of these rows waits for its broker's response; the last rows are looked at first.

    Brokers respond in the order of the rows.
    """
    table, state = cluster.rows, cluster.replica_state
    return any(
        state(i, broker) is ReplicaState.DELETION_STARTED
        for i in reversed(rows)
        for broker in table[i].assignment.replicas
    )


def finished(cluster: Cluster, topics: Iterable[int]) -> list[int]:
    """Returns those of ``topics`` whose every replica is deleted: their znodes are to be deleted next."""
    return [
        index for index in topics if index in cluster.deletions and all_deleted(cluster, cluster.topics[index].rows)
    ]


def all_deleted(cluster: Cluster, rows: Iterable[int]) -> bool:
    """Checks whether every replica of these rows of a queued topic is deleted."""
    state = cluster.replica_state
    return all(state(i, broker) is ReplicaState.DELETION_SUCCESSFUL for i in rows for broker in _hosts(cluster, i))


def waiting_for(cluster: Cluster, brokers: Collection[int]) -> list[int]:
    """Returns queued topics with a replica on one of ``brokers``: their deletion goes on when those return."""
    rows, wanted = cluster.rows, frozenset(brokers)
    return [
        index
        for index in sorted(cluster.deletions)
        if any(not wanted.isdisjoint(rows[i].assignment.replicas) for i in cluster.topics[index].rows)
    ]


def ineligible(cluster: Cluster, topics: Iterable[int] | None = None) -> dict[int, str]:
    """Returns queued topics, or those of ``topics``, that wait for more than a response, with the reason."""
    waiting = cluster.deletions if topics is None else cluster.deletions.intersection(topics)
    found = ((index, waits_for(cluster, cluster.topics[index].rows)) for index in sorted(waiting))
    return {index: why for index, why in found if why is not None}


def waits_for(cluster: Cluster, rows: Sequence[int]) -> str | None:
    """Returns the reason why these rows of a queued topic wait; None where only responses are missing."""
    if any(map(cluster.is_moving, rows)):
        return MOVES
    if any(cluster.replica_state(i, b) is INELIGIBLE for i in rows for b in _hosts(cluster, i)):
        return WAITS
    return None


def awaited(cluster: Cluster, rows: Sequence[int]) -> list[int]:
    """Returns the brokers that rows of a queued topic wait for: those that are gone, and those that refused."""
    return sorted(_missed(cluster, rows) | _refusing(cluster, rows))


def _missed(cluster: Cluster, rows: Sequence[int]) -> set[int]:
    """Returns the brokers that are gone and have logs of rows which nobody has given up: one look at each row."""
    table, given_up = cluster.rows, cluster.given_up
    sought = {b for replicas in {table[i].assignment.replicas for i in rows} for b in replicas}
    sought.difference_update(cluster.brokers, cluster.daemons)
    found: set[int] = set()
    for i in rows if sought else ():
        row = table[i]
        if row.state is not PartitionState.NON_EXISTENT or sought.isdisjoint(row.assignment.replicas):
            continue
        for broker in row.assignment.replicas:
            if broker in sought and (i, broker) not in given_up:
                found.add(broker)
                sought.discard(broker)
    return found


def _refusing(cluster: Cluster, rows: Sequence[int]) -> set[int]:
    """Returns the brokers that refused to delete a row; looks through the rows or the exceptions, which are fewer."""
    states, table = cluster.replica_states, cluster.rows
    if len(states) < len(rows):
        members = frozenset(rows)
        return {broker for (i, broker), known in states.items() if known is INELIGIBLE and i in members}
    return {b for i in rows for b in table[i].assignment.replicas if states.get((i, b)) is INELIGIBLE}


def ended_waits(cluster: Cluster, topic: Topic, brokers: Collection[int]) -> str | None:
    """Returns why the wait of a deletion for brokers cannot be ended; None where it can, or has been."""
    if topic.index not in cluster.deletions:
        return f"topic {topic.name} is not being deleted: delete it first"
    here = sorted(cluster.brokers.keys() & set(brokers))
    if refused := sorted(_refusing(cluster, topic.rows).intersection(here)):
        return f"brokers {refused} are registered and refused to delete logs: restart them, or stop them first"
    if here:
        return f"brokers {here} are registered: the deletion of {topic.name} goes on there by itself"
    if any(map(cluster.is_moving, topic.rows)):
        return f"the deletion of {topic.name} has not begun: {MOVES}"
    waiting = awaited(cluster, topic.rows)
    others = sorted(b for b in set(brokers).difference(waiting) if not _is_given_up(cluster, topic, b))
    if others:
        of = f"brokers {waiting}" if waiting else "no broker that is gone"
        return f"the deletion of {topic.name} does not wait for brokers {others}: it waits for {of}"
    return None


def _is_given_up(cluster: Cluster, topic: Topic, broker: int) -> bool:
    """Checks whether the wait for a log of the topic on a broker has been ended before."""
    return any((i, broker) in cluster.given_up for i in topic.rows)


def _hosts(cluster: Cluster, i: int) -> Iterable[int]:
    """Returns the replicas on brokers: a daemon's id has no log."""
    replicas = cluster.rows[i].assignment.replicas
    return replicas if cluster.daemons.isdisjoint(replicas) else [b for b in replicas if b not in cluster.daemons]


def replicas_left(cluster: Cluster, rows: Iterable[int], *, ineligible: bool = False) -> int:
    """Returns replicas of ``rows``, of queued topics, that are not deleted yet, or those that are ineligible."""
    states = (cluster.replica_state(i, broker) for i in rows for broker in _hosts(cluster, i))
    return sum(found is INELIGIBLE if ineligible else found is not ReplicaState.DELETION_SUCCESSFUL for found in states)


def restored(cluster: Cluster, found: TopicAssignment) -> TopicChange | None:
    """Returns the rewrite that removes partitions which were added to a queued topic (KAFKA-6612), or None."""
    topic = cluster.topic(found.name)
    if topic is None or topic.index not in cluster.deletions:
        return None
    added = tuple(sorted(found.partitions.keys() - {cluster.rows[i].partition for i in topic.rows}))
    if not added:
        return None
    return TopicChange(found.name, found.version, found.czxid, {}, None, RESTORED, dropped=added)
