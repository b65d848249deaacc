"""Encodes and decodes regent's own znodes below ``/regent``: role flag, queue for the role, registry of daemon ids.

| path | kind | content |
|---|---|---|
| /regent/format | persistent | version of the stored formats |
| /regent/role | persistent | the role flag, which assigns the role: ``regent`` or ``brokers`` |
| /regent/history | persistent | the latest changes of the role flag, each with author and reason (``role.history``) |
| /regent/rollback | persistent | the state before the last take-over, ACLs included (``handover.rollback``) |
| /regent/daemons/ID | persistent | registry of daemon ids: they host no replica, an assignment to one is repaired |
| /regent/locks/lock-N | ephemeral sequential | the queue for the role, one node per daemon process |
| /regent/broker_settings | persistent | settings that brokers last sent (:mod:`controller.engine.adoption`) |
| /regent/topic_ids_begin | persistent | marks that no topic had an id when a term began: ids are being assigned |
| /regent/cordons | persistent | brokers that get no further replica (``nodes.cordon_node``) |
| /regent/pause | persistent | automatic moves stand still (``nodes.pause_node``) |
| /regent/procedures | persistent | the highest pid of a procedure; a child for each record (``records.zookeeper``) |
| /regent/procedures_quarantine | persistent | records that a repair moved aside (``records.zookeeper_offline``) |
| /regent/endpoints/ID | ephemeral | address of a daemon's admin endpoint (``nodes.endpoint_znode``) |
"""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path
from typing import Final

import msgspec

from metadata_store.content import decoded

ROOT: Final = "/regent"
FORMAT: Final = f"{ROOT}/format"
ROLE: Final = f"{ROOT}/role"
HISTORY: Final = f"{ROOT}/history"
DAEMONS: Final = f"{ROOT}/daemons"
LOCKS: Final = f"{ROOT}/locks"
PROCEDURES: Final = f"{ROOT}/procedures"
QUARANTINE: Final = f"{ROOT}/procedures_quarantine"
"""Records that no daemon can use, where an operator had them moved there."""
ROLLBACK: Final = f"{ROOT}/rollback"
"""State before the last take-over, for a hand-back by a daemon on another machine."""
BROKER_SETTINGS: Final = f"{ROOT}/broker_settings"
TOPIC_IDS_BEGIN: Final = f"{ROOT}/topic_ids_begin"
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
    :meth:`brokers.security.attested.Seals.of_daemon`), ``listener`` is host:port of its controller listener. Only a
    preflight compares these three.
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
