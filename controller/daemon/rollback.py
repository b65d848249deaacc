"""Saves the state before a take-over: a roll-back file on this machine, and a copy in ZooKeeper for the other daemons.

The part that a hand-back needs is the ACL of ``/controller_epoch``, which ``on_absence = "hold"`` replaces. Files are
written atomically, synced, and never overwritten.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from controller.journal.segments import sync_folder
from controller.role import own_znodes as own
from controller.role.claim import Role
from controller.role.epoch_acls import are_lock, saved_acls, unsaved_acls
from controller.role.own_znodes import RoleFlag
from metadata_store import paths
from metadata_store.acl import ADMIN, CREATE, DELETE, READ, WRITE, Acl
from metadata_store.codecs.controller import controller_fields
from metadata_store.errors import Code, ZkError

_PERMS: Final = {READ: "r", WRITE: "w", CREATE: "c", DELETE: "d", ADMIN: "a"}


class Rollback(msgspec.Struct, frozen=True):
    """State before a take-over. ``controller``: the fields of that znode; ``epoch``: None before the first election."""

    taken_ms: int
    controller: dict[str, object] | None
    epoch: int | None
    acls: list[Acl]
    role: RoleFlag
    reason: str = ""
    version: int = 1


async def present(role: Role, reason: str) -> Rollback:
    """Reads the present state. ACLs that are our own lock (an interrupted hand-back) give way to those saved before."""
    controller, _ = await role.controller()
    node = await role.zk.get(paths.CONTROLLER_EPOCH)
    flag, _ = await role.flag()
    acls = unsaved_acls(role.zk) if node is None else (await role.zk.get_acls(paths.CONTROLLER_EPOCH))[0]
    if are_lock(acls, role.lock_out_acls()):
        acls = await saved_acls(role.zk)
    epoch = None if node is None else int(node.data or b"0")
    fields = controller_fields(controller) if controller is not None else None
    return Rollback(int(time.time() * 1000), fields, epoch, acls, flag, reason)


async def keep_in_zookeeper(role: Role, found: Rollback) -> None:
    """Replaces the roll-back of the previous take-over."""
    data = msgspec.json.encode(found)
    node = await role.zk.get(own.ROLLBACK)
    if node is not None:
        await role.zk.set(own.ROLLBACK, data, node.stat.version)
        return
    for path, content in ((own.ROOT, b""), (own.ROLLBACK, data)):
        try:
            await role.zk.create(path, content)
        except ZkError as error:
            if error.code is not Code.NODE_EXISTS:
                raise


def save(folder: Path, found: Rollback) -> Path:
    """Writes a new file and returns its path; raises OSError. A file with its name is complete and on the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(found.taken_ms / 1000))
    draft = folder / f".rollback-{os.getpid()}.tmp"
    with suppress(FileNotFoundError):
        draft.unlink()
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return _named(draft, folder, f"rollback-{stamp}-epoch-{found.epoch if found.epoch is not None else 'none'}")
    finally:
        draft.unlink()
        sync_folder(folder)


def _named(draft: Path, folder: Path, stem: str) -> Path:
    """Gives the file its name without replacing another file."""
    number = 0
    while True:
        final = folder / f"{stem}{f'-{number}' if number else ''}.json"
        try:
            os.link(draft, final)
        except FileExistsError:
            number += 1
        else:
            return final


def shell_acls(acls: Sequence[Acl]) -> str:
    """Returns the ACLs in the form that ZooKeeper's shell reads: ``scheme:id:cdrwa``."""
    return ",".join(
        f"{acl.scheme}:{acl.id}:{''.join(letter for perm, letter in _PERMS.items() if acl.perms & perm)}"
        for acl in acls
    )
