"""What the Kafka store must do on every port: the same tests for memory and for a real ZooKeeper."""

from __future__ import annotations

from tests.contracts.kafka_commits import CommitContract, CreationContract
from tests.contracts.kafka_companions import CompanionContract
from tests.contracts.kafka_nodes import ClusterNodeContract, LoadContract
from tests.contracts.kafka_topics import TopicCommitContract, TopicDeletionContract


class KafkaStoreContract(
    CommitContract,
    CreationContract,
    TopicCommitContract,
    TopicDeletionContract,
    CompanionContract,
    LoadContract,
    ClusterNodeContract,
):
    """Everything."""
