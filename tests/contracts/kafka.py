"""What the Kafka store must do on every port: the same tests for memory and for a real ZooKeeper."""

from __future__ import annotations

from tests.contracts.kafka_commits import CommitContract, CreationContract, TopicCommitContract
from tests.contracts.kafka_nodes import ClusterNodeContract, LoadContract


class KafkaStoreContract(CommitContract, CreationContract, TopicCommitContract, LoadContract, ClusterNodeContract):
    """Everything."""
