"""Writes edits as records with a checksum, one behind another: the content of logs and of recovered files."""

from __future__ import annotations

import struct
import zlib
from typing import Final

import msgspec

HEAD: Final = struct.Struct(">II")
"""Length of the body in bytes, and the CRC-32 of the body."""


class Edit(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Sets a key. ``token``: of the owner that made the edit. ``sequence``: counts the edits of the region."""

    region: int
    token: int
    sequence: int
    key: bytes
    value: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Edit] = msgspec.msgpack.Decoder(Edit)


def encode(edit: Edit) -> bytes:
    """Returns an edit as a record."""
    body = _encoder.encode(edit)
    return HEAD.pack(len(body), zlib.crc32(body)) + body


def decode(data: bytes) -> tuple[list[Edit], int]:
    """Returns the edits up to the first record that is not whole, and the bytes up to there."""
    edits: list[Edit] = []
    at = 0
    while at + HEAD.size <= len(data):
        length, checksum = HEAD.unpack_from(data, at)
        body = data[at + HEAD.size : at + HEAD.size + length]
        # A body is never empty. Zeros, which a file may end with after a power failure, would pass the checksum.
        if not body or len(body) < length or zlib.crc32(body) != checksum:
            break
        edits.append(_decoder.decode(body))
        at += HEAD.size + length
    return edits, at
