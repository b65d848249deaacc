"""Names every path below ``/regent``, with the clients that may write it."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

ROOT: Final = "/regent"
FORMAT: Final = f"{ROOT}/format"
ROLE: Final = f"{ROOT}/role"
HISTORY: Final = f"{ROOT}/history"
ROLLBACK: Final = f"{ROOT}/rollback"
DAEMONS: Final = f"{ROOT}/daemons"
LOCKS: Final = f"{ROOT}/locks"
BROKER_SETTINGS: Final = f"{ROOT}/broker_settings"
TOPIC_IDS_BEGIN: Final = f"{ROOT}/topic_ids_begin"
CORDONS: Final = f"{ROOT}/cordons"
PAUSE: Final = f"{ROOT}/pause"
STRAYS: Final = f"{ROOT}/strays"
PROCEDURES: Final = f"{ROOT}/procedures"
QUARANTINE: Final = f"{ROOT}/procedures_quarantine"
ENDPOINTS: Final = f"{ROOT}/endpoints"
REGIONS: Final = f"{ROOT}/regions"
ANY: Final = "*"
"""Stands for one name in a path."""


class Access(Enum):
    """Clients that may write a znode where ``/regent`` is closed; every client may read."""

    DAEMONS = "daemons"
    RECORDS = "records"
    """Daemons alone, also where brokers may write the rest: a record is carried out."""
    ENDPOINTS = "endpoints"
    """Daemons; admin endpoints create and delete children."""
    ANNOUNCED = "announced"
    """The endpoint that created it."""
    REGIONS = "regions"
    """Daemons of the regions' domain."""


class OwnPath(NamedTuple):
    """A path, with ``*`` for any name. ``many``: its children are too many to look at each of them at every start."""

    path: str
    access: Access
    content: str
    many: bool = False


_D, _R = Access.DAEMONS, Access.REGIONS

OWN: Final = (
    OwnPath(ROOT, _D, "the parent of all"),
    OwnPath(FORMAT, _D, "version of the stored formats"),
    OwnPath(ROLE, _D, "the role flag, which assigns the role: ``regent`` or ``brokers``"),
    OwnPath(HISTORY, _D, "the latest changes of the role flag, each with author and reason"),
    OwnPath(ROLLBACK, _D, "the state before the last take-over, ACLs included"),
    OwnPath(DAEMONS, _D, "parent of the registry of daemon ids"),
    OwnPath(f"{DAEMONS}/*", _D, "a daemon's id: it hosts no replica, an assignment to it is repaired"),
    OwnPath(LOCKS, _D, "parent of the queue for the role"),
    OwnPath(f"{LOCKS}/*", _D, "a daemon process in the queue (ephemeral, sequential)"),
    OwnPath(BROKER_SETTINGS, _D, "settings that brokers last sent"),
    OwnPath(TOPIC_IDS_BEGIN, _D, "no topic had an id when a term began: ids are being assigned"),
    OwnPath(CORDONS, _D, "brokers that get no further replica, and drained ones"),
    OwnPath(PAUSE, _D, "automatic moves stand still"),
    OwnPath(STRAYS, _D, "parent of replicas whose removal their brokers missed"),
    OwnPath(f"{STRAYS}/*", _D, "such replicas of one topic on one broker"),
    OwnPath(PROCEDURES, Access.RECORDS, "the highest pid of a procedure"),
    OwnPath(f"{PROCEDURES}/*", Access.RECORDS, "a record"),
    OwnPath(QUARANTINE, Access.RECORDS, "parent of records that a repair moved aside"),
    OwnPath(f"{QUARANTINE}/*", Access.RECORDS, "such a record"),
    OwnPath(ENDPOINTS, Access.ENDPOINTS, "parent of announcements"),
    OwnPath(f"{ENDPOINTS}/*", Access.ANNOUNCED, "address of a daemon's admin endpoint (ephemeral)"),
    OwnPath(REGIONS, _R, "the regions' domain"),
    OwnPath(f"{REGIONS}/epoch", _R, "the epoch, whose version fences writes"),
    OwnPath(f"{REGIONS}/daemon", _R, "the daemon that has the domain (ephemeral)"),
    OwnPath(f"{REGIONS}/procedures", _R, "the highest pid of the domain"),
    OwnPath(f"{REGIONS}/procedures/*", _R, "a record of the domain"),
    OwnPath(f"{REGIONS}/namespaces", _R, "parent of namespaces"),
    OwnPath(f"{REGIONS}/namespaces/*", _R, "a namespace"),
    OwnPath(f"{REGIONS}/tables", _R, "parent of tables"),
    OwnPath(f"{REGIONS}/tables/*", _R, "a table"),
    OwnPath(f"{REGIONS}/servers", _R, "parent of servers"),
    OwnPath(f"{REGIONS}/servers/*", _R, "a process of a server"),
    OwnPath(f"{REGIONS}/buried", _R, "parent of fenced names"),
    OwnPath(f"{REGIONS}/buried/*", _R, "a fenced name, with its highest incarnation"),
    OwnPath(f"{REGIONS}/marks", _R, "parent of marks"),
    OwnPath(f"{REGIONS}/marks/*", _R, "a mark of an operator"),
    OwnPath(f"{REGIONS}/regions", _R, "parent of buckets"),
    OwnPath(f"{REGIONS}/regions/*", _R, "parent of 1,000 regions", many=True),
    OwnPath(f"{REGIONS}/regions/*/*", _R, "a region with its owner"),
)
"""All of them."""
_BY_PATH: Final = {one.path: one for one in OWN}
_FOLDERS: Final = {one.path.split("/")[2]: one.access for one in OWN if one.path.count("/") == 2}
"""The access of a child of the root, by name; those below have the same, announcements apart."""


def own_path(path: str) -> OwnPath | None:
    """Returns the entry of a path; None where the registry has none."""
    found = _BY_PATH.get(path)
    if found is not None or not path.startswith(f"{ROOT}/"):
        return found
    names = path.split("/")
    return next((one for one in OWN if _matches(one.path.split("/"), names)), None)


def _matches(pattern: list[str], names: list[str]) -> bool:
    return len(pattern) == len(names) and all(p in (ANY, n) for p, n in zip(pattern, names, strict=True))


def access_of(path: str) -> Access | None:
    """Returns the clients that may write a path below ``/regent``, or ``/regent``; None for any other path."""
    if not path.startswith(ROOT):
        return None
    _, root, *names = path.split("/", 3)
    if root != ROOT[1:]:
        return None
    found = _FOLDERS.get(names[0], Access.DAEMONS) if names else Access.DAEMONS
    return Access.ANNOUNCED if found is Access.ENDPOINTS and len(names) > 1 else found
