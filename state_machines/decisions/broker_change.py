"""Decides what a broker's death and return change (Kafka ``onBrokerFailure``, ``onBrokerStartup``).

The caller observes the registrations first: the model then knows the live brokers.
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


def broker_death(draft: Draft, dead: Collection[int], unclean: Unclean = never_unclean) -> None:
    """Takes the partitions that ``dead`` lead offline and elects leaders where none is left.

    Then takes all replicas on ``dead`` offline.
    Reads the leader of every row, because a znode written by hand may name a leader outside of the assignment.
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
    """Sends metadata of the partitions on ``returned``, then elects leaders for leaderless ones.

    The replicas on ``returned`` are online because their brokers are registered.
    """
    for broker in sorted(returned):
        draft.send_metadata(draft.cluster.hosted(broker))
    PartitionStateMachine(draft).elect_leaderless(sorted(draft.cluster.leaderless), unclean)
