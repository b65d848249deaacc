"""Reads a ZooKeeper store without a daemon, moves aside what no daemon can use, and has procedures end."""

from __future__ import annotations

from collections.abc import Sequence

from metadata_store import paths
from metadata_store.port import ANY_VERSION, Check, Create, Delete, Op, SetData, ZooKeeper
from metadata_store.records import codec, znodes
from metadata_store.records.port import Content, Found
from state_machines.procedures.record import Record


async def read(zk: ZooKeeper, root: str, epoch_path: str = paths.CONTROLLER_EPOCH) -> Content:
    """Reads all of a store, and changes nothing; one that does not exist is empty. ``epoch``: the fence's version."""
    epoch = await zk.exists(epoch_path)
    fence = epoch.version if epoch is not None else ANY_VERSION
    found = await znodes.children(zk, root)
    if found is None:
        return Content([], 0, fence)
    highest = max([one.pid for one in found.entries], default=0)
    text = found.data.decode("ascii", "replace")
    if found.last_pid is None:
        why = f"{root} holds {text!r} and no number: write the highest pid that was ever used, {highest} or more"
        return Content(found.entries, highest, fence, [why])
    if int(text) < highest:
        why = f"{root} holds {text}, and pid {highest} is in use: a daemon goes on from that"
        return Content(found.entries, highest, fence, [why])
    return Content(found.entries, found.last_pid, fence)


async def move_aside(zk: ZooKeeper, quarantine: str, content: Content, entries: Sequence[Found]) -> None:
    """Moves records below ``quarantine`` one by one, parents first; each with a check that no daemon was elected.

    Raises ``MultiFailed`` where a record changed, or a daemon was elected; records that were moved before stay there.
    """
    if await zk.exists(quarantine) is None:
        await zk.create(quarantine, b"")
    for one in sorted(entries, key=lambda one: one.pid):
        name = one.place.rpartition("/")[2]
        ops: list[Op] = [Create(f"{quarantine}/{name}-{one.mark}", one.body), Delete(one.place, one.mark)]
        if content.epoch != ANY_VERSION:
            ops.append(Check(paths.CONTROLLER_EPOCH, content.epoch))
        await zk.multi(ops)


async def replace(zk: ZooKeeper, epoch_path: str, content: Content, records: Sequence[Record]) -> None:
    """Replaces records in one multi, with a check that no daemon was elected.

    Raises ``MultiFailed`` where a record changed, or a daemon was elected.
    """
    places = {one.pid: one for one in content.entries}
    ops: list[Op] = [SetData(places[one.pid].place, codec.sealed(one), places[one.pid].mark) for one in records]
    if content.epoch != ANY_VERSION:
        ops.append(Check(epoch_path, content.epoch))
    await zk.multi(ops)
