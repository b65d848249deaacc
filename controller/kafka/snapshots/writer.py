"""Writes a snapshot as a process of its own: parts from standard input, the answer to standard output.

A message of the pipe is its length, as 4 bytes, and MessagePack. Both ends are of one version: the daemon starts the
process. It yields the processors to the daemon where it may, but is not starved on a busy machine. Where its input ends
early, as with the daemon's death, it leaves no file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from controller.kafka.snapshots.files import Draft, draft, remove_oldest
from metadata_store.codecs.topic import topic_id_text
from state_machines.journal.snapshot import BrokerLine, Header, PartitionsLine, Trailer
from state_machines.model.types import NO_LEADER, NO_VERSION, PartitionRow

NICE: Final = 5
_encode_line: Final = msgspec.json.Encoder().encode


# -- the messages


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


# -- the process


def main() -> int:
    """Writes the snapshot that standard input brings; returns the exit status."""
    with suppress(OSError):  # the unit of systemd forbids it
        os.nice(NICE)
    try:
        answer = write_snapshot(sys.stdin.buffer)
    except CutShort:
        return 1
    except OSError as error:
        answer = Written(err=error.strerror or str(error))
    sys.stdout.buffer.write(_encode_line(answer))
    return 0


def write_snapshot(pipe: BinaryIO) -> Written:
    """Writes a file of the messages of a pipe; raises ``OSError``, or :class:`CutShort`, and then leaves none.

    Older files go down to the bounds before, too: where the disk is full lower bounds make room.
    """
    begin = read_message(pipe)
    if not isinstance(begin, Begin):
        raise CutShort("the first message is missing")
    folder = Path(begin.folder)
    remove_oldest(folder, None, begin.files_max, begin.bytes_max)
    with draft(folder, begin.header.ctl_epoch, begin.header.seq) as file:
        file.write(map(_encode_line, (begin.header, *begin.brokers)))
        partitions = _body(pipe, file, 1 + len(begin.brokers), len(begin.brokers))
        path, size = file.complete()
    left = remove_oldest(folder, path, begin.files_max, begin.bytes_max)
    return Written(path.name, partitions, len(begin.brokers), size, left=left)


def _body(pipe: BinaryIO, file: Draft, lines: int, brokers: int) -> int:
    """Writes partitions and trailer; returns the number of partitions. ``lines``: written before."""
    partitions = 0
    while True:
        message = read_message(pipe)
        if isinstance(message, End):
            trailer = Trailer(lines, partitions, brokers, message.seq, message.ts_us)
            file.write([_encode_line(trailer)])
            return partitions
        assert isinstance(message, Part)
        file.write(_encode_line(line_of(part)) for part in message.topics)
        lines += len(message.topics)
        partitions += sum(len(part.rows) for part in message.topics)


def line_of(part: TopicPart) -> PartitionsLine:
    """Returns the line of some partitions of a topic."""
    rows = part.rows
    moving = any(row.assignment.moving for row in rows)
    return PartitionsLine(
        part.name,
        [row.partition for row in rows],
        [row.assignment.replicas for row in rows],
        [row.leader if row.version != NO_VERSION else NO_LEADER for row in rows],
        [row.leader_epoch if row.version != NO_VERSION else NO_VERSION for row in rows],
        [row.version for row in rows],
        [row.isr for row in rows],
        topic_id_text(part.topic_id) if part.topic_id is not None else None,
        part.min_isr,
        [row.assignment.adding for row in rows] if moving else None,
        [row.assignment.removing for row in rows] if moving else None,
        part.deleting,
    )


if __name__ == "__main__":
    sys.exit(main())
