"""Decides on failed log directories (KIP-112, Kafka ``processLeaderAndIsrResponseReceived``).

A broker whose log directory fails goes on running. It names itself in a notification, and responds to LeaderAndIsr with
KAFKA_STORAGE_ERROR for the lost replicas. They are offline until the broker starts anew.
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
