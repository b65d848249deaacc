"""Reads a store of procedures without a daemon, judges its records, and repairs it on request."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cli.exit_codes import Exit, Failure
from cli.offline import role_at
from controller.kafka.term.procedures import KINDS as KINDS_OF_KAFKA
from controller.procedures.kinds import Kind, Kinds
from controller.regions.procedures.every import KINDS as KINDS_OF_REGIONS
from metadata_store import own, paths
from metadata_store.errors import ZooKeeperError
from metadata_store.records import sqlite_offline, zookeeper_offline
from metadata_store.records.port import Content, Found, StoreFailed
from state_machines.procedures.record import Ending, Record, Unusable, family
from state_machines.procedures.recovery import NotEnded, bypassed, load, moved_aside

if TYPE_CHECKING:
    from configs.settings import Settings
    from controller.role.claim import Role

KINDS: Final[tuple[Kind[Any], ...]] = (*KINDS_OF_KAFKA, *KINDS_OF_REGIONS)
STOP: Final = "stop the daemon that has the store, then try again"


class Place(NamedTuple):
    """A store in ZooKeeper: the parent of its records, and the znode whose version fences its daemons.

    ``kinds``: those that its daemons run. ``holder``: the ephemeral znode of the daemon that has it; empty: the holder
    of the controller's role.
    """

    root: str
    epoch_path: str
    kinds: tuple[Kind[Any], ...]
    holder: str = ""


KAFKA: Final = Place(own.PROCEDURES, paths.CONTROLLER_EPOCH, KINDS_OF_KAFKA)
REGIONS: Final = Place(f"{own.REGIONS}/procedures", f"{own.REGIONS}/epoch", KINDS_OF_REGIONS, f"{own.REGIONS}/daemon")


class Judged(NamedTuple):
    """A store with the fault of each entry that no daemon of this version can use, by place; ``aside``: see repair."""

    content: Content
    unusable: Mapping[str, Unusable]
    aside: Sequence[Found]


def judged(content: Content, kinds: Sequence[Kind[Any]] = KINDS) -> Judged:
    """Judges the entries of a store as a daemon does that loads them. ``kinds``: those that it runs."""
    known: Kinds[Any] = Kinds(kinds)
    records = [one.record for one in content.entries if one.record is not None]
    unreadable = {one.pid: one.unusable for one in content.entries if one.unusable is not None and one.pid}
    found = load(records, known.unfit, unreadable).unusable
    aside = set(moved_aside(records, found))
    unusable = {
        one.place: one.unusable or found[one.pid] for one in content.entries if one.unusable or one.pid in found
    }
    return Judged(content, unusable, [one for one in content.entries if one.pid in aside])


def read_file(path: Path) -> Judged:
    """Reads a SQLite store. Raises :class:`Failure`."""
    try:
        return judged(sqlite_offline.read(path))
    except StoreFailed as error:
        raise Failure(Exit.FAILED, str(error)) from error


async def read_zookeeper(settings: Settings, place: Place = KAFKA) -> Judged:
    """Reads a store of the ensemble. Raises :class:`Failure`."""
    async with role_at(settings) as role:
        return judged(await zookeeper_offline.read(role.zk, place.root, place.epoch_path), place.kinds)


def ended(found: Judged, pid: int, reason: str) -> tuple[Record, ...]:
    """Returns the records of a procedure and its ancestors, ended as they are. Raises :class:`Failure`."""
    now_ms = time.time_ns() // 1_000_000
    ending = Ending("bypass", f"uid {os.getuid()}, offline", " ".join(reason.split()))
    try:
        return bypassed([one.record for one in found.content.entries if one.record is not None], pid, ending, now_ms)
    except NotEnded as error:
        raise Failure(Exit.REFUSED, str(error), f"'regent procedures log STORE --pid {pid}' shows it") from error


def end_in_file(path: Path, found: Judged, records: Sequence[Record]) -> None:
    """Writes ended records into a SQLite store. Raises :class:`Failure`."""
    try:
        sqlite_offline.replace(path, found.content, records)
    except StoreFailed as error:
        raise Failure(Exit.REFUSED, str(error)) from error


async def end_in_zookeeper(settings: Settings, place: Place, found: Judged, records: Sequence[Record]) -> None:
    """Writes ended records into a store of the ensemble. Raises :class:`Failure`."""
    async with role_at(settings) as role:
        await _refuse_active(role, place)
        try:
            await zookeeper_offline.replace(role.zk, place.epoch_path, found.content, records)
        except ZooKeeperError as error:
            message = f"nothing was changed ({error}): a record changed, a daemon was elected, or the ACL forbids it"
            raise Failure(Exit.FAILED, message, "repeat the command") from error


async def _refuse_active(role: Role, place: Place) -> None:
    if place.holder:
        if await role.zk.exists(place.holder) is not None:
            raise Failure(Exit.REFUSED, f"a daemon has this store ({place.holder} exists)", STOP)
    elif (active := await _active(role)) is not None:
        raise Failure(Exit.REFUSED, f"daemon {active} is active on this store", STOP)


def repair_file(path: Path, found: Judged, reason: str) -> None:
    """Moves records that no daemon can use into the table ``quarantine``. Raises :class:`Failure`."""
    try:
        sqlite_offline.move_aside(path, found.aside, reason, time.time_ns() // 1_000_000)
    except StoreFailed as error:
        raise Failure(Exit.REFUSED, str(error)) from error


async def repair_zookeeper(settings: Settings, found: Judged) -> None:
    """Moves what no daemon can use below the quarantine's znode. Raises :class:`Failure`."""
    async with role_at(settings) as role:
        await _refuse_active(role, KAFKA)
        try:
            await zookeeper_offline.move_aside(role.zk, own.QUARANTINE, found.content, found.aside)
        except ZooKeeperError as error:
            message = f"not all was moved ({error}): a record changed, a daemon was elected, or the ACL forbids it"
            raise Failure(Exit.FAILED, message, "repeat the command: what was moved stays moved") from error


async def _active(role: Role) -> int | None:
    """Returns the id of the daemon that holds the role and lives; None without one."""
    holder, _ = await role.controller()
    alive = {process.nonce: process.id for _, process in await role.queue() if process is not None}
    return alive.get(holder.nonce) if holder is not None and holder.nonce is not None else None


def copied(entries: Sequence[Found], unusable: Mapping[str, Unusable], path: Path, reason: str) -> None:
    """Writes a copy of entries into a new file, durably, before they are moved. Raises :class:`Failure`."""
    lines = [
        {
            "place": one.place,
            "pid": one.pid,
            "fault": str(unusable[one.place].fault),
            "why": unusable[one.place].why,
            "reason": reason,
            "mark": one.mark,
            "body": base64.b64encode(one.body).decode("ascii"),
        }
        for one in entries
    ]
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise Failure(Exit.REFUSED, f"no copy could be written: {error}", "name another file with --copy") from error


def items(found: Judged, pid: int | None, *, live: bool) -> list[dict[str, Any]]:
    """Returns the entries as the command shows them, in the order of pids; children with the caller of their root."""
    records = {one.pid: one for one in family(one.record for one in found.content.entries if one.record is not None)}
    return [
        _item(one._replace(record=one.record and records[one.record.pid]), found.unusable.get(one.place))
        for one in sorted(found.content.entries, key=lambda one: (one.pid, one.place))
        if (pid is None or one.pid == pid) and not (live and one.record is not None and one.record.state.is_final)
    ]


def _item(one: Found, unusable: Unusable | None) -> dict[str, Any]:
    record = one.record
    item: dict[str, Any] = {"pid": one.pid, "place": one.place, "bytes": len(one.body)}
    if record is None:
        item |= {"parent": None, "kind": "unknown", "state": "unknown", "principal": one.caller.principal}
    else:
        item |= {
            "parent": record.parent or None,
            "kind": record.kind,
            "state": record.state.name.lower(),
            "step": _step(record.kind, record.step),
            "done": list(record.done),
            "submitted": _time(record.submitted_ms),
            "updated": _time(record.updated_ms),
            "deadline": _time(record.deadline_ms),
            "expires": _time(record.expires_ms),
            "principal": record.caller.principal,
            "client": record.caller.client,
            "reason": record.caller.reason,
            "attempts": record.attempts,
            "aborted": record.aborted,
            "bypassed": record.bypassed,
            "error": record.error,
            "result": record.result.decode("utf-8", "replace"),
        }
    return item | {
        "fault": str(unusable.fault) if unusable is not None else "",
        "why": unusable.why if unusable is not None else "",
    }


def _step(kind: str, step: int) -> str:
    names = {one.name: [step.name for step in one.steps] for one in KINDS}.get(kind, [])
    return names[step] if 0 <= step < len(names) else str(step)


def _time(ms: int) -> str | None:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds") if ms else None
