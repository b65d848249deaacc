"""Declares the messages of the pipe from the daemon to the process that writes a snapshot, and its answer.

A message is its length, as 4 bytes, and MessagePack. Both ends are of one version: the daemon starts the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from state_machines.journal.snapshot import BrokerLine, Header
from state_machines.model.types import PartitionRow


class TopicPart(Struct, array_like=True, frozen=True, gc=False):
    """Some partitions of a topic, at most as many as a line of the file has."""

    name: str
    topic_id: bytes | None
    min_isr: int | None
    deleting: bool
    rows: Sequence[PartitionRow]


class Begin(Struct, tag=True, array_like=True):
    """The first message: where the file goes, how many of its kind stay, and its first lines."""

    folder: str
    files_max: int
    bytes_max: int
    header: Header
    brokers: Sequence[BrokerLine]


class Part(Struct, tag=True, array_like=True):
    """Some partitions."""

    topics: Sequence[TopicPart]


class End(Struct, tag=True, array_like=True):
    """The last message. Without it there is no file."""

    seq: int
    ts_us: int


Message = Begin | Part | End


class Written(Struct, omit_defaults=True):
    """The answer. ``err``: why there is no file; then nothing else is set. ``left``: why older ones stay."""

    name: str = ""
    partitions: int = 0
    brokers: int = 0
    file_bytes: int = 0
    err: str = ""
    left: str = ""


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Message)
_LENGTH_BYTES: Final = 4


class CutShort(EOFError):
    """The pipe ended within a message, or before the last one: the daemon died, or gave up."""


def framed(message: Message) -> bytes:
    """Encodes a message with its length."""
    data = _ENCODER.encode(message)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def read_message(pipe: BinaryIO) -> Message:
    """Reads the next message; raises :class:`CutShort` at the end of the pipe."""
    size = int.from_bytes(_exactly(pipe, _LENGTH_BYTES), "big")
    found: Message = _DECODER.decode(_exactly(pipe, size))
    return found


def _exactly(pipe: BinaryIO, size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise CutShort("the daemon ended before the snapshot was whole")
    return data
