"""Lists the watched znodes by the event that each raises: handlers read what changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Final

from metadata_store import paths
from metadata_store.nodes.acl_nodes import CHANGES as ACL_CHANGES
from metadata_store.nodes.cordon_node import PATH as CORDONS
from metadata_store.nodes.endpoint_znode import endpoint_path
from metadata_store.nodes.pause_node import PATH as PAUSE
from metadata_store.port import WatchEvent, WatchKind


class Watched(Enum):
    """Groups znodes whose changes raise the same event."""

    BROKERS = auto()
    TOPICS = auto()
    TOPIC = auto()
    DELETIONS = auto()
    ISR_CHANGES = auto()
    REASSIGNMENT = auto()
    LOG_DIR_EVENTS = auto()
    PREFERRED_ELECTION = auto()
    CONFIG = auto()
    ENDPOINT = auto()
    CORDONS = auto()
    PAUSE = auto()
    ACL_CHANGES = auto()
    STATE = auto()
    MALFORMED_STATE = auto()


STATES: Final = frozenset({Watched.STATE, Watched.MALFORMED_STATE})
_SINGLE: Final[Mapping[str, Watched]] = {
    paths.TOPICS: Watched.TOPICS,
    paths.DELETE_TOPICS: Watched.DELETIONS,
    paths.ISR_CHANGES: Watched.ISR_CHANGES,
    paths.REASSIGN_PARTITIONS: Watched.REASSIGNMENT,
    paths.LOG_DIR_EVENTS: Watched.LOG_DIR_EVENTS,
    paths.PREFERRED_ELECTION: Watched.PREFERRED_ELECTION,
    CORDONS: Watched.CORDONS,
    PAUSE: Watched.PAUSE,
}


def changed(event: WatchEvent, me: int, *, repaired: bool) -> Iterator[tuple[Watched, str | None]]:
    """Yields the meaning of a watch, and the detail of the event that it raises.

    ``me``: the daemon's id. ``repaired``: the znode could not be understood before.
    """
    path, kind = event
    if (found := _SINGLE.get(path)) is not None:
        yield found, None
    elif path == endpoint_path(me):
        yield Watched.ENDPOINT, None
    elif path in ACL_CHANGES:
        yield Watched.ACL_CHANGES, path
    elif path.startswith(paths.CONFIG):
        yield Watched.CONFIG, None
    elif path.startswith(paths.BROKER_IDS):
        yield Watched.BROKERS, None
    elif paths.partition_of_state(path) is not None:
        yield (Watched.MALFORMED_STATE, path) if repaired else (Watched.STATE, None)
    elif path.startswith(f"{paths.TOPICS}/"):
        if kind is WatchKind.DELETED:
            yield Watched.TOPICS, None
        yield Watched.TOPIC, path.rpartition("/")[2]
