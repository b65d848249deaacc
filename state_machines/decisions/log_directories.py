"""Failed log directories (S4-29, S4-81; KIP-112, Kafka ``processLeaderAndIsrResponseReceived``).

A broker whose log directory fails lives on. It names itself in a notification; asked by LeaderAndIsr it answers
KAFKA_STORAGE_ERROR for the replicas that are lost to it. They are offline until the broker starts anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine, Unclean, never_unclean
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.model.types import PartitionState

LEADER_FAILED = "the leader's log directory failed"
REPLICA_FAILED = "its log directory failed"


def log_directories_failed(draft: Draft, failed: Mapping[int, Sequence[int]], unclean: Unclean = never_unclean) -> None:
    """Decided after it was observed (:meth:`Cluster.observe_failed_dirs`); ``failed``: rows by broker.

    As at a broker's death: what they led is elected, then the replicas go offline. Replicas of topics that are being
    deleted are left to the answers of their deletion.
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
