"""Decides what a broker's death, return and failed log directories change (Kafka ``onBrokerFailure``, KIP-112).

The caller observes the registrations first: the model then knows the live brokers.

A broker whose log directory fails goes on running. It names itself in a notification, and responds to LeaderAndIsr with
KAFKA_STORAGE_ERROR for the lost replicas. They are offline until the broker starts anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine, Unclean, never_unclean
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.model.cluster import Cluster
from state_machines.model.types import Broker, PartitionState

LEADER_DIED = "the leader's broker died"
REPLICA_DIED = "a replica's broker died"


class BrokerDelta(Struct, frozen=True):
    """Lists the differences of the registrations from the model.

    ``modified`` brokers keep their broker epoch, with other data.
    """

    new: tuple[int, ...]
    dead: tuple[int, ...]
    bounced: tuple[int, ...]
    modified: tuple[int, ...]

    @property
    def empty(self) -> bool:
        """Checks whether nothing changed."""
        return not (self.new or self.dead or self.bounced or self.modified)


def compare(known: Mapping[int, Broker], found: Mapping[int, Broker]) -> BrokerDelta:
    """Returns the new, dead, bounced (other broker epoch, KIP-380) and modified brokers in ``found``."""
    both = sorted(known.keys() & found.keys())
    return BrokerDelta(
        tuple(sorted(found.keys() - known.keys())),
        tuple(sorted(known.keys() - found.keys())),
        tuple(b for b in both if found[b].epoch != known[b].epoch),
        tuple(b for b in both if found[b].epoch == known[b].epoch and found[b] != known[b]),
    )


def touched_by_death(cluster: Cluster, dead: Collection[int]) -> list[int]:
    """Returns the rows that :func:`broker_death` may change, those first that have no leader.

    Reads the leader of every row, because a znode written by hand may name a leader outside of the assignment.
    """
    gone = PartitionState.NON_EXISTENT
    led = [
        i for i, row in enumerate(cluster.rows) if row.leader in dead and row.has_leadership and row.state is not gone
    ]
    first = dict.fromkeys((*led, *sorted(cluster.leaderless)))
    for broker in sorted(dead):
        first.update(dict.fromkeys(cluster.hosted(broker)))
    return list(first)


def broker_death(
    draft: Draft, dead: Collection[int], unclean: Unclean = never_unclean, rows: Sequence[int] | None = None
) -> None:
    """Takes the partitions that ``dead`` lead offline and elects leaders where none is left.

    Then takes all replicas on ``dead`` offline. ``rows``: some of :func:`touched_by_death`; None: all of them.
    """
    table, leaderless, gone = draft.rows, draft.cluster.leaderless, PartitionState.NON_EXISTENT
    rows = touched_by_death(draft.cluster, dead) if rows is None else rows
    partitions, replicas = PartitionStateMachine(draft), ReplicaStateMachine(draft)
    led = [i for i in rows if table[i].leader in dead and table[i].has_leadership and table[i].state is not gone]
    partitions.take_offline(led, LEADER_DIED)
    waiting = leaderless.intersection(rows).difference(led)
    partitions.elect_leaderless(led + sorted(waiting), unclean)
    for broker in sorted(dead):
        hosted = [i for i in rows if broker in table[i].assignment.replicas and table[i].state is not gone]
        replicas.take_offline(broker, sorted(hosted), REPLICA_DIED)


def touched_by_return(cluster: Cluster, returned: Collection[int]) -> list[int]:
    """Returns the rows that :func:`broker_return` may change or send, those first that have no leader."""
    first = dict.fromkeys(sorted(cluster.leaderless))
    for broker in sorted(returned):
        first.update(dict.fromkeys(cluster.hosted(broker)))
    return list(first)


def broker_return(
    draft: Draft, returned: Collection[int], unclean: Unclean = never_unclean, rows: Sequence[int] | None = None
) -> None:
    """Sends metadata of the partitions on ``returned``, then elects leaders for leaderless ones.

    The replicas on ``returned`` are online because their brokers are registered. ``rows``: some of
    :func:`touched_by_return`; None: all of them.
    """
    table, gone = draft.rows, PartitionState.NON_EXISTENT
    rows = touched_by_return(draft.cluster, returned) if rows is None else rows
    for broker in sorted(returned):
        draft.send_metadata(i for i in rows if broker in table[i].assignment.replicas and table[i].state is not gone)
    PartitionStateMachine(draft).elect_leaderless(sorted(draft.cluster.leaderless.intersection(rows)), unclean)


LEADER_FAILED = "the leader's log directory failed"
REPLICA_FAILED = "its log directory failed"


def log_directories_failed(draft: Draft, failed: Mapping[int, Sequence[int]], unclean: Unclean = never_unclean) -> None:
    """Draws failed log directories after :meth:`Cluster.observe_failed_dirs`; ``failed``: rows by broker.

    As at a broker's death, partitions that it led are elected, then the replicas go offline. Replicas of topics that
    are being deleted wait for the responses of their deletion.
    """
    partitions, replicas = PartitionStateMachine(draft), ReplicaStateMachine(draft)
    present = {
        broker: [i for i in rows if draft.row(i).state is not PartitionState.NON_EXISTENT]
        for broker, rows in failed.items()
    }
    led = sorted({i for broker, rows in present.items() for i in rows if draft.row(i).leader == broker})
    partitions.take_offline(led, LEADER_FAILED)
    partitions.elect_leaderless(sorted(draft.cluster.leaderless.union(led)), unclean)
    for broker, rows in sorted(present.items()):
        replicas.take_offline(broker, rows, REPLICA_FAILED)
