"""Names every path below ``/regent`` with the clients that may write it, and the ACL that follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from metadata_store.acl import ADMIN, CREATE, DELETE, OPEN, READ, READABLE, WRITE, Acl, default_acls, digest_id

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
DIGEST: Final = "digest"
MASK: Final = "x"
"""Stands for the hash of an identity in a list that its reader may not administer."""
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
    UNASSIGNED = "unassigned"
    """The same; servers of regions create children."""
    OPENED = "opened"
    """The same; servers of regions create and delete children."""
    MOVED = "moved"
    """The same, and servers of regions, which read and write, and no more."""


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
    OwnPath(f"{REGIONS}/daemons", _R, "parent of daemons that stand by"),
    OwnPath(f"{REGIONS}/daemons/*", _R, "such a daemon, with the level that it knows (ephemeral)"),
    OwnPath(f"{REGIONS}/procedures", _R, "the highest pid of the domain"),
    OwnPath(f"{REGIONS}/procedures/*", _R, "a record of the domain"),
    OwnPath(f"{REGIONS}/namespaces", _R, "parent of namespaces"),
    OwnPath(f"{REGIONS}/namespaces/*", _R, "a namespace"),
    OwnPath(f"{REGIONS}/tables", _R, "parent of tables"),
    OwnPath(f"{REGIONS}/tables/*", _R, "a table"),
    OwnPath(f"{REGIONS}/servers", _R, "parent of servers"),
    OwnPath(f"{REGIONS}/servers/*", _R, "a process of a server"),
    OwnPath(f"{REGIONS}/unassigned", Access.UNASSIGNED, "parent of regions in transition"),
    OwnPath(f"{REGIONS}/unassigned/*", Access.MOVED, "a region in transition, which servers move on"),
    OwnPath(f"{REGIONS}/opened", Access.OPENED, "parent of marks of servers"),
    OwnPath(f"{REGIONS}/opened/*", Access.MOVED, "a server has moved a region to OPENED (ephemeral)"),
    OwnPath(f"{REGIONS}/rs", Access.OPENED, "parent of servers that answer by znodes"),
    OwnPath(f"{REGIONS}/rs/*", Access.MOVED, "a process of a server, as long as its session lives (ephemeral)"),
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
"""The access of a child of the root, by name; those below have the same, announcements and regions apart."""
_IN_REGIONS: Final = {
    one.path.removeprefix(f"{REGIONS}/"): one.access for one in OWN if one.path.startswith(f"{REGIONS}/")
}
"""The access of what is in the regions' domain; that of the domain where this has none."""


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
    if len(names) < 2:
        return found
    if found is Access.REGIONS:
        folder, slash, _ = names[1].partition("/")
        return _IN_REGIONS.get(f"{folder}/*" if slash else folder, found)
    return Access.ANNOUNCED if found is Access.ENDPOINTS else found


OwnAcls = Mapping[Access, tuple[Acl, ...]]
"""The lists of regent's own znodes; those without one get what brokers would give them."""
NONE: Final[OwnAcls] = {}
Identities = frozenset[tuple[str, str]]
NO_IDENTITY: Final[Identities] = frozenset()
ANYONE: Final = ("world", "anyone")
CERTIFICATE: Final = "x509"
"""Scheme of an identity that a TLS certificate proves: its subject."""


def given_acls(path: str, own: OwnAcls, *, secured: bool) -> tuple[Acl, ...]:
    """Returns the list of a new znode. ``secured``: whether other znodes are closed as those of brokers are."""
    access = access_of(path)
    if access is None:
        return default_acls(path, secured=secured)
    return own.get(access) or (READABLE if secured else OPEN)


def acls_below(root: str, own: OwnAcls, *, secured: bool) -> tuple[Acl, ...]:
    """Returns the list of new znodes below one of regent's own: a store names it, so that its bytes are weighed."""
    return given_acls(f"{root}/*", own, secured=secured)


def identities_of(credentials: str | None, sasl: str | None = None, subject: str | None = None) -> Identities:
    """Returns the identities that a session proves, by scheme and id. ``subject``: of its certificate."""
    found = set[tuple[str, str]]()
    if credentials is not None:
        found.add(("digest", digest_id(*credentials.split(":", 1))))
    if sasl is not None:
        found.add(("sasl", sasl.partition(":")[0]))
    if subject is not None:
        found.add((CERTIFICATE, subject))
    return frozenset(found)


def is_open(found: Sequence[Acl], wanted: Sequence[Acl], mine: Identities = NO_IDENTITY) -> bool:
    """Checks whether any client, or an own identity, may do more than read, and than ``wanted`` permits."""
    return any(_excess(one, wanted, mine) for one in found if _is_any(one) or _is_mine(one, mine))


def strangers(found: Sequence[Acl], wanted: Sequence[Acl], mine: Identities = NO_IDENTITY) -> list[Acl]:
    """Returns entries by which some other identity may do more than read, and than ``wanted`` permits."""
    return [one for one in found if not _is_any(one) and not _is_mine(one, mine) and _excess(one, wanted, mine)]


def _is_any(acl: Acl) -> bool:
    """Checks whether an entry is about any client: the world, or all addresses."""
    return acl.scheme == "world" or (acl.scheme == "ip" and acl.id.endswith("/0"))


def _is_mine(acl: Acl, mine: Identities) -> bool:
    return (acl.scheme, acl.id) in mine


def _excess(acl: Acl, wanted: Sequence[Acl], mine: Identities) -> int:
    """Returns the permissions of an entry beyond those that ``wanted`` gives its identity, or any client."""
    given = READ
    for one in wanted:
        is_named = (one.scheme, one.id) in (ANYONE, (acl.scheme, acl.id)) or _is_masked(acl, one)
        if is_named or (one.scheme == "auth" and _is_mine(acl, mine)):
            given |= one.perms
    return acl.perms & ~given


def _is_masked(found: Acl, wanted: Acl) -> bool:
    """Checks whether an entry is the wanted one without its hash, which ZooKeeper shows to administrators alone."""
    user, _, hashed = found.id.partition(":")
    return found.scheme == wanted.scheme == DIGEST and hashed == MASK and wanted.id.partition(":")[0] == user


def shell_text(acls: Sequence[Acl], mine: Identities) -> str:
    """Returns a list as ZooKeeper's shell takes it from a session that proves its own identities."""
    own, others = list[Acl](), list[Acl]()
    for one in acls:
        (own if one.scheme == "auth" or _is_mine(one, mine) else others).append(one)
    first = [f"auth::{perms_text(own[0].perms)}"] if own else []
    return ",".join(first + [f"{one.scheme}:{one.id}:{perms_text(one.perms)}" for one in others])


def perms_text(perms: int) -> str:
    """Returns permissions as ZooKeeper's shell writes them."""
    letters = ((CREATE, "c"), (DELETE, "d"), (READ, "r"), (WRITE, "w"), (ADMIN, "a"))
    return "".join(letter for bit, letter in letters if perms & bit)
