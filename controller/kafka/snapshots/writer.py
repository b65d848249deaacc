"""Writes a snapshot as a process of its own: parts from standard input, the answer to standard output.

It yields the processors to the daemon where it may, but is not starved on a busy machine. Where its input ends early,
as with the daemon's death, it leaves no file.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from controller.kafka.snapshots.files import Draft, draft, remove_oldest
from controller.kafka.snapshots.messages import Begin, CutShort, End, Part, TopicPart, Written, read_message
from metadata_store.codecs.topic import topic_id_text
from state_machines.journal.snapshot import PartitionsLine, Trailer
from state_machines.model.types import NO_LEADER, NO_VERSION

NICE: Final = 5
_encode: Final = msgspec.json.Encoder().encode


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
    sys.stdout.buffer.write(_encode(answer))
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
        file.write(map(_encode, (begin.header, *begin.brokers)))
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
            file.write([_encode(trailer)])
            return partitions
        assert isinstance(message, Part)
        file.write(_encode(line_of(part)) for part in message.topics)
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
