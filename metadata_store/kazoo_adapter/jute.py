"""Encodes requests and decodes replies of ZooKeeper's protocol.

Source: the record definitions in ZooKeeper's ``zookeeper.jute``. Integers are big-endian; a string or buffer has its
length before it, -1 for NULL. MultiRead (22) and multi (14) share one frame: per operation a header (type, done,
error), then its body; a header with ``done`` ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from metadata_store.acl import OPEN, Acl
from metadata_store.errors import Code, MultiFailed
from metadata_store.port import Check, Create, Created, Delete, Node, Op, OpResult, SetData, Stat

T = TypeVar("T")

CREATE: Final = 1
CREATE2: Final = 15
DELETE: Final = 2
EXISTS: Final = 3
GET_DATA: Final = 4
SET_DATA: Final = 5
GET_ACL: Final = 6
SET_ACL: Final = 7
SYNC: Final = 9
GET_CHILDREN2: Final = 12
CHECK: Final = 13
MULTI: Final = 14
MULTI_READ: Final = 22
SET_WATCHES: Final = 101
_ERROR: Final = -1

_INT: Final = Struct("!i")
_LONG: Final = Struct("!q")
_STAT: Final = Struct("!qqqqiiiqiiq")
_HEAD: Final = Struct("!iBi")
_HEAD_LEN: Final = Struct("!iBii")
_EVENT: Final = Struct("!ii")
_END: Final = _HEAD.pack(-1, 1, -1)
_STAT_VERSION_AT: Final = 32

READ_OVERHEAD: Final = _HEAD_LEN.size + 1
"""Bytes of a read in a MultiRead besides its path."""

TEXT_OVERHEAD: Final = 4
"""Bytes of a path besides its text."""


class Reply(NamedTuple):
    """A reply as received: error code, zxid of the server, and the body from ``offset`` on."""

    err: int
    zxid: int
    buffer: bytes
    offset: int


def text(value: str) -> bytes:
    """Encodes a string with its length."""
    raw = value.encode()
    return _INT.pack(len(raw)) + raw


def blob(value: bytes | None) -> bytes:
    """Encodes a buffer with its length, or NULL."""
    return _INT.pack(-1) if value is None else _INT.pack(len(value)) + value


# -- requests


def read(path: str) -> bytes:
    """Encodes the body of exists, getData and getChildren2 without a watch."""
    return text(path) + b"\0"


def raw_read(path: bytes) -> bytes:
    """Encodes as :func:`read` does, from a path that is encoded already."""
    return _INT.pack(len(path)) + path + b"\0"


def acls(entries: Sequence[Acl]) -> bytes:
    """Encodes an ACL list."""
    return _INT.pack(len(entries)) + b"".join(
        _INT.pack(entry.perms) + text(entry.scheme) + text(entry.id) for entry in entries
    )


_OPEN: Final = acls(OPEN)
Given = Callable[[str], tuple[Acl, ...]]


def create(op: Create, path: str, given: Given) -> bytes:
    """Encodes the body of create2; ``op.path`` is without the chroot, ``path`` with it.

    ``given`` returns the ACL of a znode for which the operation names none.
    """
    flags = op.ephemeral + 2 * op.sequential
    entries = given(op.path) if op.acl is None else op.acl
    allowed = _OPEN if entries is OPEN else acls(entries)
    return text(path) + blob(op.data) + allowed + _INT.pack(flags)


def set_data(op: SetData, path: str) -> bytes:
    """Encodes the body of setData."""
    return text(path) + blob(op.data) + _INT.pack(op.version)


def versioned(op: Delete | Check, path: str) -> bytes:
    """Encodes the body of delete and check."""
    return text(path) + _INT.pack(op.version)


def set_acl(entries: Sequence[Acl], path: str, version: int) -> bytes:
    """Encodes the body of setACL."""
    return text(path) + acls(entries) + _INT.pack(version)


def set_watches(since_zxid: int, data: Sequence[str], exists: Sequence[str], children: Sequence[str]) -> bytes:
    """Encodes the body of setWatches."""
    parts = [_LONG.pack(since_zxid)]
    for paths in (data, exists, children):
        parts.append(_INT.pack(len(paths)))
        parts.extend(map(text, paths))
    return b"".join(parts)


def encode_op(op: Op, chroot: str, given: Given) -> tuple[int, bytes]:
    """Encodes type and body of one operation, ``chroot`` (without a slash at its end) before its path."""
    path = chroot + op.path if op.path != "/" or not chroot else chroot
    if isinstance(op, SetData):
        return SET_DATA, set_data(op, path)
    if isinstance(op, Create):
        return CREATE2, create(op, path, given)
    return (DELETE if isinstance(op, Delete) else CHECK), versioned(op, path)


def multi(ops: Sequence[Op], chroot: str, given: Given) -> bytes:
    """Encodes the body of a multi, as one buffer."""
    parts: list[bytes] = []
    for op in ops:
        opcode, body = encode_op(op, chroot, given)
        parts += (_HEAD.pack(opcode, 0, -1), body)
    parts.append(_END)
    return b"".join(parts)


def multi_read(paths: Sequence[bytes]) -> bytes:
    """Encodes the body of a MultiRead: getData of each path (UTF-8, chroot included)."""
    heads = {size: _HEAD_LEN.pack(GET_DATA, 0, -1, size) for size in set(map(len, paths))}
    parts = [heads[len(path)] + path for path in paths]
    parts.append(_END)
    # between two parts stands the "no watch" of the read before; _END is no read, so nothing must follow it
    return b"\0".join(parts)


# -- answers


def stat_at(buffer: bytes, offset: int) -> Stat:
    """Decodes a stat."""
    czxid, mzxid, ctime_ms, _, version, _, acl_version, owner, _, children, pzxid = _STAT.unpack_from(buffer, offset)
    return Stat(czxid, mzxid, version, owner, children, pzxid, acl_version, ctime_ms)


def _blob_at(buffer: bytes, offset: int) -> tuple[bytes | None, int]:
    (length,) = _INT.unpack_from(buffer, offset)
    offset += 4
    if length < 0:
        return None, offset
    return buffer[offset : offset + length], offset + length


def _text_at(buffer: bytes, offset: int) -> tuple[str, int]:
    raw, offset = _blob_at(buffer, offset)
    return (raw or b"").decode(), offset


def node_at(buffer: bytes, offset: int) -> Node:
    """Decodes the reply to getData."""
    data, offset = _blob_at(buffer, offset)
    return Node(data, stat_at(buffer, offset))


def children_at(buffer: bytes, offset: int) -> tuple[list[str], Stat]:
    """Decodes the reply to getChildren2."""
    (count,) = _INT.unpack_from(buffer, offset)
    offset += 4
    names = []
    for _ in range(count):
        name, offset = _text_at(buffer, offset)
        names.append(name)
    return names, stat_at(buffer, offset)


def created_at(buffer: bytes, offset: int, chroot: str) -> tuple[Created, int]:
    """Decodes the reply to create2; returns its end, too."""
    path, offset = _text_at(buffer, offset)
    return Created(path[len(chroot) :] or "/", stat_at(buffer, offset)), offset + _STAT.size


def acls_at(buffer: bytes, offset: int) -> tuple[list[Acl], Stat]:
    """Decodes the reply to getACL."""
    (count,) = _INT.unpack_from(buffer, offset)
    offset += 4
    found = []
    for _ in range(count):
        (perms,) = _INT.unpack_from(buffer, offset)
        scheme, offset = _text_at(buffer, offset + 4)
        identity, offset = _text_at(buffer, offset)
        found.append(Acl(perms, scheme, identity))
    return found, stat_at(buffer, offset)


def event_at(buffer: bytes, offset: int) -> tuple[int, str]:
    """Decodes type (1 created, 2 deleted, 3 changed, 4 child) and path of a watch event."""
    kind, _ = _EVENT.unpack_from(buffer, offset)
    return kind, _text_at(buffer, offset + _EVENT.size)[0]


def multi_failed(buffer: bytes, offset: int, ops: Sequence[Op]) -> MultiFailed | None:
    """Returns the failure in the reply to a multi, or None where it was applied: then the first result is no error."""
    if not ops or _HEAD.unpack_from(buffer, offset)[0] != _ERROR:
        return None
    step = _HEAD_LEN.size
    codes = [Code(_HEAD_LEN.unpack_from(buffer, offset + i * step)[3]) for i in range(len(ops))]
    failing = next((i for i, code in enumerate(codes) if code not in (Code.OK, Code.RUNTIME_INCONSISTENCY)), 0)
    return MultiFailed(failing, codes, ops[failing].path)


def multi_results(reply: Reply, ops: Sequence[Op], chroot: str, session_id: int) -> list[OpResult]:
    """Returns the results of an applied multi.

    ZooKeeper 3.5 replies to a create in a multi without its stat; everything in that follows from the transaction.
    """
    buffer, offset = reply.buffer, reply.offset
    results: list[OpResult] = []
    for op in ops:
        kind, _, _ = _HEAD.unpack_from(buffer, offset)
        offset += _HEAD.size
        if kind == SET_DATA:
            results.append(stat_at(buffer, offset))
            offset += _STAT.size
        elif kind == CREATE2:
            created, offset = created_at(buffer, offset, chroot)
            results.append(created)
        elif kind == CREATE:
            path, offset = _text_at(buffer, offset)
            owner = session_id if isinstance(op, Create) and op.ephemeral else 0
            results.append(Created(path[len(chroot) :] or "/", Stat(reply.zxid, reply.zxid, 0, owner, 0, reply.zxid)))
        else:
            results.append(None)
    return results


def as_multi_read(reply: Reply) -> Reply:
    """Returns the reply to a single getData in the form of a MultiRead of one."""
    if reply.err:
        return Reply(Code.OK, reply.zxid, _HEAD_LEN.pack(_ERROR, 0, reply.err, reply.err), 0)
    return Reply(Code.OK, reply.zxid, _HEAD.pack(GET_DATA, 0, Code.OK) + reply.buffer[reply.offset :], 0)


def decode_each(
    buffer: bytes, offset: int, count: int, decode: Callable[[bytes | None, int], T], into: list[T | Code]
) -> None:
    """Decodes a MultiRead of ``count`` paths: ``decode(data, version)`` of each found znode, the code of the rest."""
    head, integer = _HEAD_LEN.unpack_from, _INT.unpack_from
    found = into.append
    for _ in range(count):
        kind, _, _, length = head(buffer, offset)
        offset += 13
        if kind == _ERROR:
            found(Code(length))
            continue
        end = offset + length if length >= 0 else offset
        found(decode(buffer[offset:end] if length >= 0 else None, integer(buffer, end + _STAT_VERSION_AT)[0]))
        offset = end + 68


def nodes_each(buffer: bytes, offset: int, count: int, into: list[Node | Code]) -> None:
    """Decodes as :func:`decode_each` does, with whole nodes."""
    for _ in range(count):
        kind, _, _, length = _HEAD_LEN.unpack_from(buffer, offset)
        offset += _HEAD_LEN.size
        if kind == _ERROR:
            into.append(Code(length))
            continue
        node = node_at(buffer, offset - 4)
        into.append(node)
        offset += max(length, 0) + _STAT.size
