"""Which events of the queue a watch raises. Watches only say that something changed: handlers read what it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from metadata_store import paths
from metadata_store.nodes.acl_nodes import CHANGES as ACL_CHANGES
from metadata_store.nodes.endpoint_znode import endpoint_path
from metadata_store.port import WatchEvent, WatchKind

PARENTS: Final = (
    paths.BROKER_IDS,
    paths.TOPICS,
    paths.DELETE_TOPICS,
    paths.ISR_CHANGES,
    paths.LOG_DIR_EVENTS,
    paths.CONFIG_CHANGES,
)
"""Znodes whose children are watched; the controller cannot work without them."""
REREAD: Final = (
    "broker_change",
    "topic_change",
    "topic_deletion",
    "isr_notification",
    "reassign_partitions",
    "reassigned_states",
    "log_dir_event",
    "preferred_election",
    "config_change",
    "endpoint_change",
    "acl_change",
)
"""Events that read what changed while there was no connection, and watch it again."""
_SIGNALS: Final[Mapping[str, str]] = {
    paths.TOPICS: "topic_change",
    paths.DELETE_TOPICS: "topic_deletion",
    paths.ISR_CHANGES: "isr_notification",
    paths.REASSIGN_PARTITIONS: "reassign_partitions",
    paths.LOG_DIR_EVENTS: "log_dir_event",
    paths.PREFERRED_ELECTION: "preferred_election",
}


def signals_of(event: WatchEvent, me: int, *, repaired: bool) -> Iterator[tuple[str, str | None]]:
    """Kinds of events with their details; ``repaired``: the znode could not be understood before.

    ``me``: the daemon's id.
    """
    path, kind = event
    if (found := _SIGNALS.get(path)) is not None:
        yield found, None
    elif path == endpoint_path(me):
        yield "endpoint_change", None
    elif path in ACL_CHANGES:
        yield "acl_change", path
    elif path.startswith(paths.CONFIG):
        yield "config_change", None
    elif path.startswith(paths.BROKER_IDS):
        yield "broker_change", None
    elif paths.partition_of_state(path) is not None:
        yield ("mended_state", path) if repaired else ("reassigned_state", None)
    elif path.startswith(f"{paths.TOPICS}/"):
        if kind is WatchKind.DELETED:
            yield "topic_change", None
        yield "partition_modifications", path.rpartition("/")[2]
