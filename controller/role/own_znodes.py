"""regent's own znodes below ``/regent``: who should hold the role, who queues for it, which ids are daemons'.

| path | kind | content |
|---|---|---|
| /regent/format | persistent | version of the stored formats |
| /regent/role | persistent | who should hold the role: ``regent`` or ``brokers`` |
| /regent/rollback | persistent | what the last take-over found, old ACLs included (``handover.rollback``) |
| /regent/daemons/ID | persistent | registry of daemon ids: they host no replica, in assignments they are repaired |
| /regent/locks/lock-N | ephemeral sequential | the queue for the role, one node per daemon process |
| /regent/broker_settings | persistent | what brokers last said of their settings (:mod:`controller.engine.adoption`) |
| /regent/topic_ids_begin | persistent | no topic that ran had an id when a term began: they are being given |
| /regent/endpoints/ID | ephemeral | where the admin endpoint of a daemon is (``nodes.endpoint_znode``) |
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
DAEMONS: Final = f"{ROOT}/daemons"
LOCKS: Final = f"{ROOT}/locks"
ROLLBACK: Final = f"{ROOT}/rollback"
"""What the last take-over found, for a hand-back by a daemon on another machine."""
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
    """Which life of which process a lock node belongs to.

    ``clock_ms`` is the machine's clock when it queued, ``mark`` shows which shared secret it has (see
    :meth:`brokers.security.attested.Seals.of_daemon`), ``listener`` is host:port of its controller listener; all of
    them only for comparison by a preflight.
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
        """Whether both processes would see each other's pid."""
        return (self.host, self.boot_id, self.pid_namespace) == (other.host, other.boot_id, other.pid_namespace)


class Format(msgspec.Struct, frozen=True):
    """Content of ``/regent/format``."""

    version: int


def this_process(controller_id: int) -> Process:
    """The calling process, with a fresh nonce."""
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


def started_ticks(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot (field 22 of /proc/PID/stat); None where it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    state_on = stat.rpartition(")")[2].split()
    return None if state_on[0] in {"Z", "X"} else int(state_on[19])


def is_dead(lock: Process, me: Process) -> bool:
    """Whether ``lock`` belongs to a former life of a daemon on this machine that is certainly over."""
    return lock.id == me.id and me.same_machine(lock) and started_ticks(lock.pid) != lock.started


def encode(value: msgspec.Struct) -> bytes:
    """JSON of any of the above."""
    return msgspec.json.encode(value)


def decode_role(data: bytes | None) -> RoleFlag:
    """The role flag; absent means ``brokers``. Raises ``msgspec.DecodeError`` where it is malformed."""
    return decoded(data, RoleFlag) if data else RoleFlag("brokers")


def decode_process(data: bytes | None) -> Process | None:
    """A lock node's content, or None where it is not ours to understand."""
    try:
        return decoded(data or b"", Process)
    except msgspec.DecodeError:
        return None


def decode_format(data: bytes | None) -> int:
    """Version of the stored formats; 0 where nothing is stored."""
    return decoded(data, Format).version if data else 0
