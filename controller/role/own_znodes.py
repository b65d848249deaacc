"""Encodes, decodes and closes regent's own znodes of the role: role flag, queue of daemons, registry of daemon ids.

:mod:`metadata_store.own` names all paths, with what each holds. The znodes are closed where
``zookeeper.set_acl`` or ``on_absence = "hold"`` asks for it. With ``set_acl`` they get the list of the brokers' znodes:
the brokers' identity may do everything, any client may read. A daemon closes them when it queues. In mode ``hold`` the
daemons' digest alone writes them, and the term that begins closes them, as it locks ``/controller_epoch``. Their lists
come from :mod:`controller.process.zookeeper`.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from metadata_store import own, paths
from metadata_store.closing import Closed, close_tree, unfenced
from metadata_store.codecs.base import decoded
from metadata_store.errors import Code, ZkError
from metadata_store.own import REGIONS, Access
from metadata_store.port import ZooKeeper

ROOT: Final = own.ROOT
FORMAT: Final = own.FORMAT
ROLE: Final = own.ROLE
HISTORY: Final = own.HISTORY
DAEMONS: Final = own.DAEMONS
LOCKS: Final = own.LOCKS
PROCEDURES: Final = own.PROCEDURES
QUARANTINE: Final = own.QUARANTINE
ROLLBACK: Final = own.ROLLBACK
BROKER_SETTINGS: Final = own.BROKER_SETTINGS
TOPIC_IDS_BEGIN: Final = own.TOPIC_IDS_BEGIN
FORMAT_VERSION: Final = 1


class RoleFlag(msgspec.Struct, frozen=True):
    """Content of ``/regent/role``. ``holder`` is ``regent`` or ``brokers``; ``reason`` is the operator's."""

    holder: str
    version: int = 1
    reason: str = ""
    since_ms: int = 0


class Process(msgspec.Struct, frozen=True):
    """The incarnation of a daemon process that owns a lock node.

    ``clock_ms`` is the machine's clock when it queued, ``mark`` depends on its shared secret (see
    :meth:`brokers.security.shared_secret.Seals.of_daemon`), ``listener`` is host:port of its controller listener. Only
    a preflight compares these three.
    """

    id: int
    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    started: int
    nonce: str
    version: int = 1
    clock_ms: int = 0
    mark: str = ""
    listener: str = ""

    def same_machine(self, other: Process) -> bool:
        """Returns whether both processes see each other's pid."""
        return (self.host, self.boot_id, self.pid_namespace) == (other.host, other.boot_id, other.pid_namespace)


class Format(msgspec.Struct, frozen=True):
    """Content of ``/regent/format``."""

    version: int


def this_process(controller_id: int) -> Process:
    """Returns the calling process, with a fresh nonce."""
    pid = os.getpid()
    return Process(
        controller_id,
        socket.gethostname(),
        Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
        str(Path("/proc/self/ns/pid").readlink()),
        pid,
        started_ticks(pid) or 0,
        uuid.uuid4().hex,
    )


def this_user() -> str:
    """Returns the user of the calling process, as changes name their authors."""
    return f"uid {os.getuid()}"


def started_ticks(pid: int) -> int | None:
    """Returns the start time of a process in clock ticks since boot (field 22 of /proc/PID/stat); None without one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    state_on = stat.rpartition(")")[2].split()
    return None if state_on[0] in {"Z", "X"} else int(state_on[19])


def is_dead(lock: Process, me: Process) -> bool:
    """Returns whether ``lock`` belongs to an earlier incarnation of this daemon, on this machine, that has ended."""
    return lock.id == me.id and me.same_machine(lock) and started_ticks(lock.pid) != lock.started


def encode(value: msgspec.Struct) -> bytes:
    """Encodes any of the structs above as JSON."""
    return msgspec.json.encode(value)


def decode_role(data: bytes | None) -> RoleFlag:
    """Decodes the role flag; absent means ``brokers``. Raises ``msgspec.DecodeError`` where it is malformed."""
    return decoded(data, RoleFlag) if data else RoleFlag("brokers")


def decode_process(data: bytes | None) -> Process | None:
    """Decodes a lock node's content; None where it has another form."""
    try:
        return decoded(data or b"", Process)
    except msgspec.DecodeError:
        return None


def decode_format(data: bytes | None) -> int:
    """Decodes the version of the stored formats; 0 without any."""
    return decoded(data, Format).version if data else 0


UNUSED_ACL_VERSION: Final = 2**31 - 1


class WrongIdentity(Exception):
    """An identity whose znodes would be closed to the brokers; the text names cause and remedy."""


def closes(zk: ZooKeeper) -> bool:
    """Checks whether the znodes of the role are closed to other clients."""
    return zk.set_acl or Access.DAEMONS in zk.own_acls


async def close_own(zk: ZooKeeper, may_write: Callable[[], Awaitable[None]] = unfenced) -> Closed:
    """Closes znodes that were created while the cluster was open, or by an earlier release.

    Those of the regions' domain belong to another store, which closes them itself. ``may_write``: checks the epoch.
    """
    found = await close_tree(zk, ROOT, without=(REGIONS,), may_write=may_write)
    found.tell(ROOT)
    return found


async def check_identity(zk: ZooKeeper) -> None:
    """Raises :class:`WrongIdentity` where the brokers' znodes belong to another identity than this session's.

    Called before the first znode is created, because znodes of another identity would shut the brokers out.
    """
    if await zk.exists(paths.TOPICS) is not None and not await may_change_acls(zk, paths.TOPICS):
        raise WrongIdentity(
            f"zookeeper.set_acl is true, and the ACL of {paths.TOPICS} does not name this daemon's identity: set "
            "zookeeper.sasl_file to the user of the section Client in the brokers' JAAS file"
        )


async def may_change_acls(zk: ZooKeeper, path: str) -> bool:
    """Returns whether this session has the right, which ZooKeeper checks before it refuses the unused ACL version."""
    try:
        acls, _ = await zk.get_acls(path)
        await zk.set_acls(path, acls, UNUSED_ACL_VERSION)
    except ZkError as error:
        return error.code is not Code.NO_AUTH
    return True
