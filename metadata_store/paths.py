"""Names the paths of the znodes of a Kafka cluster, relative to its chroot (Kafka's ``ZkData``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
MIGRATION: Final = "/migration"
FEATURE: Final = "/feature"
CLUSTER: Final = "/cluster"
CLUSTER_ID: Final = "/cluster/id"
PRODUCER_IDS: Final = "/latest_producer_id_block"
BROKERS: Final = "/brokers"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
ADMIN: Final = "/admin"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE_PREFIX: Final = "/config/changes/config_change_"
CONFIG_KINDS: Final = ("topics", "clients", "users", "brokers", "ips")
CONSUMERS: Final = "/consumers"
DELEGATION_TOKENS: Final = "/delegation_token/tokens"
DELEGATION_CHANGE_PREFIX: Final = "/delegation_token/token_changes/token_change_"

INT32_MAX: Final = 2**31 - 1
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")

PERSISTENT: Final = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_IDS,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{kind}" for kind in CONFIG_KINDS),
)
"""Znodes that every broker creates when it starts (``ZkData.PersistentZkPaths``), all of them with NULL data."""


def broker(broker_id: int) -> str:
    """Returns the registration of a broker."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """Returns the znode with a topic's assignments."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """Returns the parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, number: int) -> str:
    """Returns the parent of a partition's state."""
    return f"{TOPICS}/{name}/partitions/{number}"


def state(name: str, number: int) -> str:
    """Returns the znode with leader, ISR and epochs of a partition."""
    return f"{TOPICS}/{name}/partitions/{number}/state"


def states(partitions: Iterable[tuple[str, int]]) -> list[str]:
    """Returns :func:`state` of many partitions."""
    return [f"/brokers/topics/{name}/partitions/{number}/state" for name, number in partitions]


def partition_of_state(path: str) -> tuple[str, int] | None:
    """Returns the topic and partition of a path that :func:`state` made; None for any other."""
    parts = path.removeprefix(f"{TOPICS}/").split("/")
    known = path.startswith(f"{TOPICS}/") and len(parts) == 4 and (parts[1], parts[3]) == ("partitions", "state")
    at = number(parts[2]) if known else None
    return (parts[0], at) if at is not None else None


def number(name: str) -> int | None:
    """Returns the id or partition in the name of a znode; None where there is none, as in ``²`` and ``007``."""
    return int(name) if _NUMBER.fullmatch(name) is not None and int(name) <= INT32_MAX else None


def config(kind: str, name: str) -> str:
    """Returns the configuration of an entity; ``kind`` is one of ``CONFIG_KINDS``."""
    return f"{CONFIG}/{kind}/{name}"


def topic_config(name: str) -> str:
    """Returns the configuration of a topic."""
    return f"{CONFIG}/topics/{name}"


def deletion(name: str) -> str:
    """Returns the marker that a topic is to be deleted."""
    return f"{DELETE_TOPICS}/{name}"


def delegation_token(token_id: str) -> str:
    """Returns a delegation token."""
    return f"{DELEGATION_TOKENS}/{token_id}"
