"""Encodes the znodes of regions in transition: one line of JSON, which servers of a service read and write, too."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

import msgspec

from state_machines.regions.unassigned import Node, NodeState

FOLDER: Final = "unassigned"
OPENED: Final = "opened"
"""Folder of the marks of servers that have moved a znode to OPENED, and do not know yet that they did."""
SERVERS: Final = "rs"
"""Folder of the ephemeral znodes of servers: one of each process that lives."""
VERSION: Final = 1
"""Version of the format: a later one is passed over."""
NUMBER_CHARS_MAX: Final = 19
"""Digits of a number in the name of a znode: a longer one stands for nothing, and is not parsed."""
NODE_BYTES_MAX: Final = 4_096
"""Bytes of one znode; a server's name has 200 characters."""


class UnreadableNode(Exception):
    """A znode that names no region in transition; the text says why."""


class _Stored(msgspec.Struct, frozen=True, gc=False):
    state: NodeState
    region: int
    pid: int
    token: int
    server: str
    incarnation: int
    sequence: int = 0
    version: int = VERSION


_decoder = msgspec.json.Decoder(_Stored)
_encoder = msgspec.json.Encoder()


def folder_of(root: str) -> str:
    """Returns the parent of these znodes. ``root``: of the domain."""
    return f"{root}/{FOLDER}"


def marks_of(root: str) -> str:
    """Returns the parent of the marks of servers."""
    return f"{root}/{OPENED}"


def path_of(root: str, region: int) -> str:
    """Returns the path of a region's znode."""
    return f"{root}/{FOLDER}/{region}"


def mark_of(root: str, region: int, token: int) -> str:
    """Returns the path of the ephemeral znode that a server makes in the write of OPENED.

    The daemon may have deleted the znode of the region before the server reads it again, after a lost response.
    """
    return f"{marks_of(root)}/{region},{token}"


def servers_of(root: str) -> str:
    """Returns the parent of the ephemeral znodes of servers."""
    return f"{root}/{SERVERS}"


def server_path(root: str, server: str, incarnation: int) -> str:
    """Returns the path of the ephemeral znode of a process. A name may have characters that no path has."""
    return f"{root}/{SERVERS}/{quote(server, safe='')},{incarnation}"


def server_of(name: str) -> tuple[str, int] | None:
    """Returns the process that the name of a znode stands for; None where it stands for none."""
    server, _, incarnation = name.rpartition(",")
    return (unquote(server), int(incarnation)) if server and _is_number(incarnation) else None


def _is_number(text: str) -> bool:
    return len(text) <= NUMBER_CHARS_MAX and text.isascii() and text.isdecimal()


def region_of(name: str) -> int | None:
    """Returns the region that the name of a znode stands for; None where it stands for none."""
    return int(name) if _is_number(name) and str(int(name)) == name else None


def encode(node: Node) -> bytes:
    """Encodes a znode."""
    return _encoder.encode(_Stored(*node))


def decode(data: bytes | None, region: int) -> Node:
    """Decodes the znode of a region; raises :class:`UnreadableNode`."""
    if data is None or len(data) > NODE_BYTES_MAX:
        raise UnreadableNode(f"it has {0 if data is None else len(data)} bytes, expected 1 to {NODE_BYTES_MAX}")
    try:
        found = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableNode(str(error)) from error
    if found.version != VERSION:
        raise UnreadableNode(f"it has format {found.version}, and this program knows {VERSION}")
    if found.region != region:
        raise UnreadableNode(f"it is that of region {found.region}")
    return Node(*msgspec.structs.astuple(found)[:-1])
