"""Derives request versions and cluster features from ``inter.broker.protocol.version`` (IBP).

Sources: Kafka ``MetadataVersion`` and ``ControllerChannelManager`` (their tests pin the request versions). A 3.9
broker accepts every version here whatever its own IBP: the IBP only determines the fields that the whole cluster knows.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple


class Api(IntEnum):
    """API keys that the controller or the admin endpoint sends or serves (Kafka ``ApiKeys``)."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    ALTER_USER_SCRAM_CREDENTIALS = 51
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67


INTERNAL_VERSIONS: Final = {
    "2.4": (1, 1),
    "2.5": (0, 0),
    "2.6": (0, 0),
    "2.7": (0, 2),
    "2.8": (0, 1),
    "3.0": (0, 1),
    "3.1": (0, 0),
    "3.2": (0, 0),
    "3.3": (0, 3),
    "3.4": (0, 0),
    "3.5": (0, 2),
    "3.6": (0, 2),
    "3.7": (0, 4),
    "3.8": (0, 0),
    "3.9": (0, 0),
}
"""First and last accepted internal version (IV) of each release. 2.4-IV1 made these requests flexible."""


class UnknownIbp(ValueError):
    """Raised for an ``inter.broker.protocol.version`` that the controller does not support."""


class Ibp(NamedTuple):
    """An IBP as an ordered value. A short string ("2.7") means the last internal version of that release."""

    major: int
    minor: int
    internal: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}-IV{self.internal}"

    @classmethod
    def parse(cls, text: str) -> Ibp:
        """Reads "3.9", "3.9-IV0", "2.7-IV1"; raises :class:`UnknownIbp` naming the accepted values."""
        release, dash, internal = text.partition("-IV")
        known = INTERNAL_VERSIONS.get(release)
        if known is not None and (not dash or text in accepted()):
            major, minor = release.split(".")
            return cls(int(major), int(minor), int(internal) if dash else known[1])
        raise UnknownIbp(
            f"inter.broker.protocol.version {text!r} is not known; give the brokers' value, one of "
            f"{', '.join(accepted())} (a release alone, as in 3.9, means its last one)"
        )

    @property
    def alter_partition(self) -> bool:
        """Returns whether leaders send ISR changes to the controller instead of writing them (KIP-497)."""
        return self >= ALTER_PARTITION

    @property
    def topic_ids(self) -> bool:
        """Returns whether topic znodes have an id; the controller adds a missing one (KIP-516)."""
        return self >= TOPIC_IDS

    @property
    def producer_ids(self) -> bool:
        """Returns whether brokers request blocks of producer ids from the controller (KIP-730)."""
        return self >= PRODUCER_IDS

    @property
    def recovery_state(self) -> bool:
        """Returns whether leaderships have a recovery state, RECOVERING after an unclean election (KIP-704)."""
        return self >= RECOVERY_STATE

    @property
    def features_enabled(self) -> bool:
        """Returns whether the status in ``/feature`` is enabled (KIP-584)."""
        return self >= FEATURES

    @property
    def feature_znode_version(self) -> int:
        """Returns the version of the JSON in ``/feature`` (KIP-778)."""
        return 2 if self >= FEATURES_V2 else 1

    @property
    def leader_and_isr_version(self) -> int:
        """Returns the version of LeaderAndIsr: 5 has topic ids, 6 the recovery state, 7 ``isKRaftController``."""
        return 7 if self >= KRAFT_FIELD else 6 if self >= RECOVERY_STATE else 5 if self >= TOPIC_IDS_SENT else 4

    @property
    def update_metadata_version(self) -> int:
        """Returns the version of UpdateMetadata: 7 has topic ids, 8 ``isKRaftController``."""
        return 8 if self >= KRAFT_FIELD else 7 if self >= TOPIC_IDS_SENT else 6

    @property
    def stop_replica_version(self) -> int:
        """Returns the version of StopReplica: 3 (leader epochs, KIP-570) even below IBP 2.6: 3.9 brokers know it."""
        return 4 if self >= KRAFT_FIELD else 3


ALTER_PARTITION: Final = Ibp(2, 7, 2)
FEATURES: Final = Ibp(2, 7, 0)
FEATURES_V2: Final = Ibp(3, 3, 0)
TOPIC_IDS: Final = Ibp(2, 8, 0)
TOPIC_IDS_SENT: Final = Ibp(2, 8, 1)
PRODUCER_IDS: Final = Ibp(3, 0, 0)
RECOVERY_STATE: Final = Ibp(3, 2, 0)
KRAFT_FIELD: Final = Ibp(3, 4, 0)
LOWEST: Final = Ibp(2, 4, 1)
DEFAULT: Final = Ibp(3, 9, 0)
"""Default of ``inter.broker.protocol.version`` in Kafka 3.9."""


def accepted() -> list[str]:
    """Returns every accepted IBP in full, lowest first."""
    return [f"{release}-IV{iv}" for release, (low, high) in INTERNAL_VERSIONS.items() for iv in range(low, high + 1)]
