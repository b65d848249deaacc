"""Reads and writes ``/regent/cordons``: brokers that get no further replica, and those drained of leaders, with causes.

The content is versioned: 1 has cordons alone, 2 drains besides. A newer format is not understood and not written over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from metadata_store import own
from metadata_store.codecs.base import MalformedNode
from metadata_store.errors import Code, MultiFailed, ZkError
from metadata_store.fencing.fenced import submit
from metadata_store.fencing.outcome import Fence
from metadata_store.port import Create, Op, SetData, ZooKeeper

PATH: Final = own.CORDONS
VERSION: Final = 2
WITHOUT_DRAINS: Final = 1
"""Format of marks without drains: daemons that do not know drains understand it."""
BROKERS_MAX: Final = 1_000
"""Most brokers that are cordoned together."""


class DrainMark(Struct, frozen=True, omit_defaults=True):
    """The mark of a drained broker: its cause, its author, and the time in milliseconds since 1970.

    ``pid``: the procedure that set it. ``cordons``: the cordon came with it, and goes with it.
    """

    reason: str = ""
    principal: str = ""
    since_ms: int = 0
    pid: int = 0
    cordons: bool = False


class Cordon(Struct, frozen=True, omit_defaults=True):
    """The mark of one broker: its cause, its author, and the time in milliseconds since 1970."""

    reason: str = ""
    principal: str = ""
    since_ms: int = 0
    drain: DrainMark | None = None


Marks = Mapping[int, Cordon]
"""Marks by broker."""


class Cordons(Struct, frozen=True):
    """The content of the znode, by broker id. ``znode_version`` None: there is no znode."""

    brokers: Marks
    znode_version: int | None = None

    @property
    def drained(self) -> frozenset[int]:
        """Returns the drained brokers."""
        return frozenset(broker for broker, mark in self.brokers.items() if mark.drain is not None)


class _Content(Struct):
    brokers: dict[int, Cordon]
    version: int = VERSION


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Content)


async def read_cordons(zk: ZooKeeper) -> Cordons | MalformedNode:
    """Reads the marks; none without a znode."""
    try:
        node = await zk.get(PATH)
    except ZkError as error:
        return MalformedNode(PATH, f"it cannot be read ({error.code.name}): check its ACL")
    return Cordons({}) if node is None else decode(node.data or b"", node.stat.version)


def decode(data: bytes, znode_version: int) -> Cordons | MalformedNode:
    """Decodes the znode's content."""
    try:
        found = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return MalformedNode(PATH, str(error))
    if found.version > VERSION:
        return MalformedNode(
            PATH, f"format {found.version} is newer than this daemon's ({VERSION}): upgrade the daemon"
        )
    return Cordons(found.brokers, znode_version)


async def write_cordons(zk: ZooKeeper, fence: Fence, cordons: Cordons) -> bool:
    """Replaces the marks that were read; returns False where another writer was first.

    Raises ``Fenced``, ``NotConnected``, ``OutcomeUnknown``, and ``ZkError`` where ZooKeeper refuses the write.
    """
    format_version = VERSION if cordons.drained else WITHOUT_DRAINS
    data = _encoder.encode(_Content(dict(sorted(cordons.brokers.items())), format_version))
    version = cordons.znode_version
    op: Op = Create(PATH, data) if version is None else SetData(PATH, data, version)
    failed = await submit(zk, fence, [op])
    if failed is None:
        return True
    if failed.code in (Code.BAD_VERSION, Code.NODE_EXISTS, Code.NO_NODE):
        return False
    raise _refused(failed)


def cordoned(marks: Marks, brokers: Collection[int], mark: Cordon) -> Marks:
    """Returns the marks with these brokers cordoned. A cordon stays as it is, but outlives its drain from now on."""
    found = dict(marks)
    for broker in brokers:
        held = found.get(broker)
        if held is None:
            found[broker] = mark
        elif held.drain is not None and held.drain.cordons:
            found[broker] = replace(mark, drain=replace(held.drain, cordons=False))
    return found


def drained(marks: Marks, brokers: Collection[int], mark: DrainMark) -> Marks:
    """Returns the marks with these brokers drained and cordoned; those that are drained keep their mark."""
    found = dict(marks)
    for broker in brokers:
        held = found.get(broker)
        if held is None:
            found[broker] = Cordon(mark.reason, mark.principal, mark.since_ms, replace(mark, cordons=True))
        elif held.drain is None:
            found[broker] = replace(held, drain=replace(mark, cordons=False))
    return found


def undrained(marks: Marks, brokers: Collection[int], pid: int | None = None) -> Marks:
    """Returns the marks without the drains of these brokers, or without those that procedure ``pid`` set."""
    found = dict(marks)
    for broker in brokers:
        held = found.get(broker)
        if held is None or held.drain is None or (pid is not None and held.drain.pid != pid):
            continue
        if held.drain.cordons:
            del found[broker]
        else:
            found[broker] = replace(held, drain=None)
    return found


def _refused(failed: MultiFailed) -> ZkError:
    return ZkError(failed.code, PATH)
