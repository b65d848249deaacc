"""Writes a snapshot as a process of its own: parts from standard input, the answer to standard output.

A message of the pipe is its length, as 4 bytes, and MessagePack. Both ends are of one version: the daemon starts the
process. It yields the processors to the daemon where it may, but is not starved on a busy machine. Where its input ends
early, as with the daemon's death, it leaves no file. A file is called ``EPOCH-SEQ.jsonl.gz``; it is
written whole or not at all, and old ones are removed.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from controller.journal.segments import sync_folder
from metadata_store.codecs.topic import topic_id_text
from state_machines.journal.snapshot import BrokerLine, Header, PartitionsLine, Trailer
from state_machines.model.types import NO_LEADER, NO_VERSION, PartitionRow

NAME: Final = re.compile(r"\d{10}-\d{12}(?:\.\d+)?\.jsonl\.gz")
DRAFT: Final = re.compile(r"\.\d{10}-\d{12}(?:\.\d+)?\.jsonl\.gz-\d+\.tmp")
SAME_NAMES_MAX: Final = 1_000
"""Files that may have the same begin: without a journal, or of another cluster with the same epochs."""
MODE: Final = 0o640
LEVEL: Final = 1
"""Of the compression: a higher one takes several times as long for a tenth less."""


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


# -- the files


def folder_in(state: Path) -> Path:
    """Returns the folder of snapshots in a daemon's state directory."""
    return state / "snapshots"


def snapshots_in(folder: Path) -> list[Path]:
    """Returns the snapshots of a folder, oldest first; none without the folder."""
    found: list[tuple[int, Path]] = []
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            if NAME.fullmatch(path.name):
                with suppress(FileNotFoundError):  # it was removed meanwhile
                    found.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(found)]


class Draft:
    """A file that nobody takes for a snapshot yet; :meth:`complete` gives it its name."""

    def __init__(self, folder: Path, epoch: int, seq: int) -> None:
        self._folder = folder
        self._stem = f"{epoch:010d}-{seq:012d}"
        self._path = folder / f".{self._stem}.jsonl.gz-{os.getpid()}.tmp"
        self._raw = os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE), "wb")
        self._zipped = gzip.GzipFile("", "wb", LEVEL, self._raw, mtime=0)

    def write(self, lines: Iterable[bytes]) -> None:
        """Appends lines, each without its end."""
        for line in lines:
            self._zipped.write(line + b"\n")

    def complete(self) -> tuple[Path, int]:
        """Flushes the file to the disk and gives it its name; returns its path and its bytes."""
        self._zipped.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        size = os.fstat(self._raw.fileno()).st_size
        self._raw.close()
        path = self._free_name()
        self._path.rename(path)
        try:
            sync_folder(self._folder)
        except OSError:
            with suppress(OSError):
                path.unlink()  # its name may not be on the disk
            raise
        return path, size

    def _free_name(self) -> Path:
        for again in range(SAME_NAMES_MAX):
            path = self._folder / (self._stem + (f".{again}" if again else "") + ".jsonl.gz")
            if not path.exists():
                return path
        raise FileExistsError(f"{SAME_NAMES_MAX} files in {self._folder} begin with {self._stem}")

    def drop(self) -> None:
        """Removes the file unless it is complete. Never raises."""
        for closed in (self._zipped, self._raw):
            with suppress(OSError):
                closed.close()
        with suppress(OSError):
            self._path.unlink()


@contextmanager
def draft(folder: Path, epoch: int, seq: int) -> Iterator[Draft]:
    """Provides a draft, and removes it at the end where it is not complete; first removes those of killed writers."""
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    for path in folder.iterdir():
        if DRAFT.fullmatch(path.name):
            path.unlink(missing_ok=True)
    made = Draft(folder, epoch, seq)
    try:
        yield made
    finally:
        made.drop()


def remove_oldest(folder: Path, newest: Path | None, files_max: int, bytes_max: int) -> str:
    """Deletes the oldest snapshots beyond the bounds; never ``newest``, and no file of another name. Never raises.

    ``newest``: by default the last one that the folder has. Passes over files that cannot be removed, and returns the
    cause of the first; nothing where there is none.
    """
    why = ""
    try:
        found = snapshots_in(folder)
        newest = newest or (found[-1] if found else None)
        sizes = {path: path.stat().st_size for path in found}
    except OSError as error:
        return _worded(folder, error)
    total, count = sum(sizes.values()), len(sizes)
    for path, size in sizes.items():
        if count <= files_max and total <= bytes_max:
            break
        if path == newest:
            continue
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            why = why or _worded(path, error)
            continue
        total, count = total - size, count - 1
    return why


def _worded(path: Path, error: OSError) -> str:
    return f"{path}: {error.strerror or error}"


if __name__ == "__main__":
    sys.exit(main())
