"""Declares nodes of linked lists, their rows, and the notes that writers take of each acknowledged batch."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

TABLE: Final = "lists"
REGIONS: Final = 60
"""Regions of the table at the beginning."""
ROW: Final = struct.Struct(">QQI")
"""Value of a row: the key of the node before it, the token that the write was sent with, and the writer."""
WAVES: Final = 20
"""Waves of one list. A wave begins once all nodes of the one before are acknowledged."""
WIDTH_MAX: Final = 12_000
"""Nodes of one wave: 200 for each region."""
LENGTH: Final = struct.Struct(">I")


class Plan(NamedTuple):
    """Says how much is written. ``nodes``: of all writers at least; ``rate``: nodes a second, of all of them."""

    nodes: int
    rate: float
    writers: int

    @property
    def lists(self) -> int:
        """Returns the lists that each writer writes one after the other."""
        return math.ceil(self.nodes / self.writers / (WIDTH_MAX * WAVES))

    @property
    def width(self) -> int:
        """Returns the nodes of each wave."""
        return math.ceil(self.nodes / self.writers / (self.lists * WAVES))


class Batch(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Notes a batch that was acknowledged: nodes of one region, the last one with ``version``.

    ``repeated``: an attempt before may have been carried out, too, or still be. ``began_us`` and ``ended_us``: of the
    wait for the response, on the wall clock.
    ``keys``, ``before``: big-endian unsigned 64-bit numbers, the nodes and those that they name.
    """

    region: int
    token: int
    version: int
    repeated: bool
    began_us: int
    ended_us: int
    keys: bytes
    before: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Batch)


def wall_us() -> int:
    """Returns the wall clock in microseconds."""
    return time.time_ns() // 1_000


def encode(batch: Batch) -> bytes:
    """Returns a note as bytes of a file."""
    body = _encoder.encode(batch)
    return LENGTH.pack(len(body)) + body


def read(file: Path) -> Iterator[Batch]:
    """Yields the notes of a writer in order."""
    with file.open("rb") as notes:
        while head := notes.read(LENGTH.size):
            yield _decoder.decode(notes.read(LENGTH.unpack(head)[0]))


def numbers(data: bytes) -> tuple[int, ...]:
    """Returns the numbers of a note."""
    return struct.unpack(f">{len(data) // 8}Q", data)


def packed(found: Sequence[int]) -> bytes:
    """Returns numbers as a note has them."""
    return struct.pack(f">{len(found)}Q", *found)


def key_of(node: int) -> bytes:
    """Returns the key of a node's row."""
    return node.to_bytes(8, "big")


def place_of(node: int) -> int:
    """Returns the region that a node is in at the beginning, counted from 0 in the order of keys."""
    return (node >> 48) * REGIONS >> 16


def first_of_place(place: int) -> int:
    """Returns the first node of a region, as regions are at the beginning."""
    return math.ceil(place * 65_536 / REGIONS) << 48


def splits() -> list[str]:
    """Returns the keys at which regions begin, as the surface of the daemon wants them."""
    firsts = (first_of_place(place) >> 48 for place in range(1, REGIONS))
    return [f"\\x{first >> 8:02X}\\x{first & 255:02X}" for first in firsts]
