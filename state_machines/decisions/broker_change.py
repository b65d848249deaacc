"""Broker death and return (Kafka ``onBrokerFailure``, ``onBrokerStartup``).

Both are decided after the registrations were observed: liveness is the model's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine, Unclean, never_unclean
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.model.types import Broker, PartitionState

LEADER_DIED = "the leader's broker died"
REPLICA_DIED = "a replica's broker died"


class BrokerDelta(Struct, frozen=True):
    """A snapshot of the registrations against the model. ``modified``: same incarnation, other data."""

    new: tuple[int, ...]
    dead: tuple[int, ...]
    bounced: tuple[int, ...]
    modified: tuple[int, ...]

    @property
    def empty(self) -> bool:
        """Checks whether nothing changed."""
        return not (self.new or self.dead or self.bounced or self.modified)


def compare(known: Mapping[int, Broker], found: Mapping[int, Broker]) -> BrokerDelta:
    """Returns the new, dead, bounced (other broker epoch, KIP-380) and modified brokers of one snapshot."""
    both = sorted(known.keys() & found.keys())
    return BrokerDelta(
        tuple(sorted(found.keys() - known.keys())),
        tuple(sorted(known.keys() - found.keys())),
        tuple(b for b in both if found[b].epoch != known[b].epoch),
        tuple(b for b in both if found[b].epoch == known[b].epoch and found[b] != known[b]),
    )


def broker_death(draft: Draft, dead: Collection[int], unclean: Unclean = never_unclean) -> None:
    """Takes partitions led by ``dead`` offline, elects missing leaders, then takes the dead replicas offline.

    Checks the leader of every row: a znode written by hand may name a leader outside of the assignment.
    """
    partitions, replicas = PartitionStateMachine(draft), ReplicaStateMachine(draft)
    gone = PartitionState.NON_EXISTENT
    led = [i for i, row in enumerate(draft.rows) if row.leader in dead and row.has_leadership and row.state is not gone]
    partitions.take_offline(led, LEADER_DIED)
    waiting = draft.cluster.leaderless.difference(led)
    partitions.elect_leaderless(led + sorted(waiting), unclean)
    for broker in sorted(dead):
        replicas.take_offline(broker, draft.cluster.hosted(broker), REPLICA_DIED)


def broker_return(draft: Draft, returned: Collection[int], unclean: Unclean = never_unclean) -> None:
    """Elects leaders for leaderless partitions; replicas on ``returned`` are online by implication."""
    for broker in sorted(returned):
        draft.send_metadata(draft.cluster.hosted(broker))
    PartitionStateMachine(draft).elect_leaderless(sorted(draft.cluster.leaderless), unclean)
