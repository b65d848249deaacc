"""Reads and writes ``/regent/strays``: replicas that were removed while their brokers did not acknowledge StopReplica.

Each broker and topic has a child, ``BROKER-TOPIC``, that names the partitions and since when. The content is versioned:
a newer format is not understood and not written over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from metadata_store import own, paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.errors import Code, ZkError
from metadata_store.port import Create, Delete, Node, Op, SetData, ZooKeeper

PARENT: Final = own.STRAYS
VERSION: Final = 1
ENTRIES_MAX: Final = 10_000
"""Most znodes: pairs of a broker and a topic."""
PARTITIONS_MAX: Final = 40_000
"""Most partitions of one znode: 22 bytes each, so that it stays below ZooKeeper's ``jute.maxbuffer`` of 1 MB."""
SEVERAL: Final = 0
"""Stands for the czxid of several incarnations of a topic."""


class StrayKey(NamedTuple):
    """A broker and a topic."""

    broker: int
    topic: str

    @property
    def path(self) -> str:
        """Returns the path of the znode."""
        return f"{PARENT}/{self.broker}-{self.topic}"


class Remembered(Struct, frozen=True):
    """The content of a znode: replicas of one topic on one broker.

    ``czxid`` tells the topic's incarnation, ``topic_id`` is its id in hexadecimal digits, empty without one.
    ``partitions`` maps to the time since when, in milliseconds since 1970.
    """

    partitions: dict[int, int]
    czxid: int = SEVERAL
    topic_id: str = ""
    version: int = VERSION


class Found(NamedTuple):
    """A content with the version of its znode."""

    content: Remembered
    version: int


class StrayNodes(NamedTuple):
    """All that was read. ``parent``: whether the parent exists; ``unread``: the znodes that are not understood."""

    entries: dict[StrayKey, Found]
    unread: list[MalformedNode]
    parent: bool


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Remembered)


async def read_strays(zk: ZooKeeper) -> StrayNodes:
    """Reads all znodes; those beyond ``ENTRIES_MAX`` are left out."""
    try:
        listed = await zk.children(PARENT)
    except ZkError as error:
        return StrayNodes(
            {}, [MalformedNode(PARENT, f"it cannot be read ({error.code.name}): check its ACL")], parent=True
        )
    names = sorted(listed[0])[:ENTRIES_MAX] if listed is not None else []
    found = StrayNodes({}, [], parent=listed is not None)
    nodes = await zk.read_many([f"{PARENT}/{name}" for name in names])
    for name, node in zip(names, nodes, strict=True):
        if node is Code.NO_NODE:
            continue
        key, entry = _key(name), _entry(f"{PARENT}/{name}", node)
        if key is not None and isinstance(entry, Found):
            found.entries[key] = entry
        elif isinstance(entry, MalformedNode):
            found.unread.append(entry)
        else:
            found.unread.append(MalformedNode(f"{PARENT}/{name}", "its name is not BROKER-TOPIC"))
    return found


def _key(name: str) -> StrayKey | None:
    broker, dash, topic = name.partition("-")
    number = paths.number(broker)
    return StrayKey(number, topic) if dash and topic and number is not None else None


def _entry(path: str, node: Node | Code) -> Found | MalformedNode:
    if isinstance(node, Code):
        return MalformedNode(path, f"it cannot be read ({node.name}): check its ACL")
    try:
        content = _decoder.decode(node.data or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return MalformedNode(path, str(error))
    if content.version > VERSION:
        return MalformedNode(
            path, f"format {content.version} is newer than this daemon's ({VERSION}): upgrade the daemon"
        )
    return Found(content, node.stat.version)


def added(before: Remembered | None, more: Remembered) -> Remembered:
    """Returns a content with more partitions; those of two incarnations are no longer told apart."""
    if before is None:
        return more
    czxid = more.czxid if before.czxid == more.czxid else SEVERAL
    return Remembered({**before.partitions, **more.partitions}, czxid, more.topic_id)


def without(before: Remembered, partitions: Collection[int]) -> Remembered:
    """Returns a content without some partitions."""
    kept = {number: since for number, since in before.partitions.items() if number not in partitions}
    return Remembered(kept, before.czxid, before.topic_id)


def ops(before: Mapping[StrayKey, Found], after: Mapping[StrayKey, Remembered]) -> list[Op]:
    """Returns one conditional operation for each znode; one without partitions is deleted."""
    return [_op(key, before.get(key), content) for key, content in after.items()]


def _op(key: StrayKey, found: Found | None, content: Remembered) -> Op:
    if found is None:
        return Create(key.path, _encoder.encode(content))
    if not content.partitions:
        return Delete(key.path, found.version)
    return SetData(key.path, _encoder.encode(content), found.version)


def entered(before: Mapping[StrayKey, Found], after: Mapping[StrayKey, Remembered]) -> dict[StrayKey, Found]:
    """Returns the entries of ZooKeeper once the operations of :func:`ops` were applied."""
    found = dict(before)
    for key, content in after.items():
        known = found.pop(key, None)
        if content.partitions:
            found[key] = Found(content, 0 if known is None else known.version + 1)
    return found
