"""Reads and writes ``/regent/cordons``: brokers on which regent places no further replica, and why.

The content is versioned. A newer format is not understood and not written over.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from metadata_store.codecs.base import Malformed
from metadata_store.errors import Code, MultiFailed, ZkError
from metadata_store.fencing.fenced import submit
from metadata_store.fencing.outcome import Fence
from metadata_store.port import Create, Op, SetData, ZooKeeper

PATH: Final = "/regent/cordons"
VERSION: Final = 1
BROKERS_MAX: Final = 1_000
"""Most brokers that are cordoned together."""


class Cordon(Struct, frozen=True):
    """The mark of one broker: its cause, its author, and the time in milliseconds since 1970."""

    reason: str = ""
    principal: str = ""
    since_ms: int = 0


class Cordons(Struct, frozen=True):
    """The content of the znode, by broker id. ``znode_version`` None: there is no znode."""

    brokers: dict[int, Cordon]
    znode_version: int | None = None


class _Content(Struct):
    brokers: dict[int, Cordon]
    version: int = VERSION


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Content)


async def read_cordons(zk: ZooKeeper) -> Cordons | Malformed:
    """Reads the marks; none without a znode."""
    try:
        node = await zk.get(PATH)
    except ZkError as error:
        return Malformed(PATH, f"it cannot be read ({error.code.name}): check its ACL")
    if node is None:
        return Cordons({})
    try:
        found = _decoder.decode(node.data or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Malformed(PATH, str(error))
    if found.version > VERSION:
        return Malformed(PATH, f"format {found.version} is newer than this daemon's ({VERSION}): upgrade the daemon")
    return Cordons(found.brokers, node.stat.version)


async def write_cordons(zk: ZooKeeper, fence: Fence, cordons: Cordons) -> bool:
    """Replaces the marks that were read; returns False where another writer was first.

    Raises ``Fenced``, ``NotConnected``, ``OutcomeUnknown``, and ``ZkError`` where ZooKeeper refuses the write.
    """
    data = _encoder.encode(_Content(dict(sorted(cordons.brokers.items()))))
    version = cordons.znode_version
    op: Op = Create(PATH, data) if version is None else SetData(PATH, data, version)
    failed = await submit(zk, fence, [op])
    if failed is None:
        return True
    if failed.code in (Code.BAD_VERSION, Code.NODE_EXISTS, Code.NO_NODE):
        return False
    raise _refused(failed)


def _refused(failed: MultiFailed) -> ZkError:
    return ZkError(failed.code, PATH)
