"""Reads and writes ``/regent/pause``: automatic moves stand still until an operator resumes them, or until a time.

The content is versioned. A newer format is not understood and not written over.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from metadata_store import own
from metadata_store.codecs.base import MalformedNode
from metadata_store.errors import Code, ZkError
from metadata_store.fencing.fenced import submit
from metadata_store.fencing.outcome import Fence
from metadata_store.port import Create, Delete, Op, SetData, ZooKeeper

PATH: Final = own.PAUSE
VERSION: Final = 1


class Pause(Struct, frozen=True, omit_defaults=True):
    """A pause: its cause, its author, its begin and end in milliseconds since 1970; ``until_ms`` 0: no end."""

    reason: str = ""
    principal: str = ""
    since_ms: int = 0
    until_ms: int = 0

    def holds(self, now_ms: int) -> bool:
        """Checks whether the pause has not ended by itself."""
        return not self.until_ms or now_ms < self.until_ms

    def left_ms(self, now_ms: int) -> int:
        """Returns how long it lasts still: never longer than from its begin, although the clock was set back since."""
        return min(self.until_ms - now_ms, self.until_ms - self.since_ms)


class FoundPause(Struct, frozen=True):
    """The content of the znode; without one both are None."""

    pause: Pause | None = None
    znode_version: int | None = None


class _Content(Struct):
    pause: Pause
    version: int = VERSION


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Content)


async def read_pause(zk: ZooKeeper) -> FoundPause | MalformedNode:
    """Reads the pause; none without a znode."""
    try:
        node = await zk.get(PATH)
    except ZkError as error:
        return MalformedNode(PATH, f"it cannot be read ({error.code.name}): check its ACL")
    if node is None:
        return FoundPause()
    try:
        found = _decoder.decode(node.data or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return MalformedNode(PATH, str(error))
    if found.version > VERSION:
        return MalformedNode(
            PATH, f"format {found.version} is newer than this daemon's ({VERSION}): upgrade the daemon"
        )
    return FoundPause(found.pause, node.stat.version)


async def write_pause(zk: ZooKeeper, fence: Fence, pause: Pause | None, before: FoundPause) -> bool:
    """Replaces or removes the pause that was read; returns False where another writer was first.

    Raises ``Fenced``, ``NotConnected``, ``OutcomeUnknown``, and ``ZkError`` where ZooKeeper refuses the write.
    """
    data, version = _encoder.encode(_Content(pause)) if pause is not None else b"", before.znode_version
    op: Op
    if pause is None:
        if version is None:
            return True
        op = Delete(PATH, version)
    else:
        op = Create(PATH, data) if version is None else SetData(PATH, data, version)
    failed = await submit(zk, fence, [op])
    if failed is None:
        return True
    if failed.code in (Code.BAD_VERSION, Code.NODE_EXISTS, Code.NO_NODE):
        return False
    raise ZkError(failed.code, PATH)
