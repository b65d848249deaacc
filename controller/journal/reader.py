"""Reads a journal: rows in the order of their files, and the gaps between them.

A reader trusts no file: a torn last line, damaged lines and holes in the numbers become a :class:`Gap`, repeated rows
are skipped, and all other rows are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from controller.journal.segments import segments_in
from state_machines.journal.events import Kind, Row

LINE_BYTES_MAX: Final = 1 << 20
"""A longer line is not a row."""
CHUNK_BYTES: Final = 1 << 20


class Gap(Struct, frozen=True):
    """Missing rows, from ``seq`` on. ``rows`` is 0 where their number is unknown; ``why`` is the reason."""

    why: str
    file: str = ""
    ctl_epoch: int = 0
    seq: int = 0
    rows: int = 0

    def __str__(self) -> str:
        where = f" in {self.file}" if self.file else ""
        missing = f"epoch {self.ctl_epoch}: " if self.ctl_epoch else ""
        if self.rows:
            missing = f"rows {self.seq} to {self.seq + self.rows - 1} of {missing}"
        return f"{missing}{self.why}{where}"


class Damage(Struct, frozen=True):
    """A line that is not a row."""

    why: str


HOLE: Final = "rows are missing"
CUT_SHORT: Final = "the term has no end: its daemon was killed, its last second may be missing"
TORN: Final = "the last line is torn"

_DECODE: Final = msgspec.json.Decoder(Row).decode


def parsed(line: bytes) -> Row | Damage:
    """Decodes a line without its end."""
    if len(line) > LINE_BYTES_MAX:
        return Damage(f"a line of {len(line)} bytes is none of the journal's")
    try:
        return _DECODE(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Damage(f"a line is not a row: {error}")


def lines(path: Path, offset: int = 0) -> Iterator[tuple[int, bytes, bool]]:
    """Yields lines from ``offset`` (bytes) on: the offset of the next one, the line, whether it is complete.

    Of a line longer than ``LINE_BYTES_MAX`` it yields the begin: a foreign file may have no end of line.
    """
    with path.open("rb") as file:
        file.seek(offset)
        rest, at, left_out = b"", offset, 0
        while chunk := file.read(CHUNK_BYTES):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                at += len(line) + left_out + 1
                left_out = 0
                yield at, line, True
            left_out += max(0, len(rest) - LINE_BYTES_MAX - 1)
            rest = begin_of(rest)
        if rest:
            yield at + len(rest) + left_out, rest, False


def begin_of(line: bytes) -> bytes:
    """Returns as much of a line as shows that it is too long."""
    return line[: LINE_BYTES_MAX + 1]


def read_file(path: Path) -> Iterator[Row | Gap]:
    """Yields the rows of one file, and its damage."""
    for _, line, complete in lines(path):
        found = parsed(line)
        if not complete:
            yield Gap(TORN, path.name)
        elif isinstance(found, Damage):
            yield Gap(found.why, path.name)
        else:
            yield found


def read(journal: Path | Sequence[Path]) -> Iterator[Row | Gap]:
    """Reads a whole journal, or those of several daemons together.

    Files that vanish meanwhile were expired: their rows do not count as missing.
    """
    return joined(read_each(segments_in(journal)))


def read_each(paths: Iterable[Path]) -> Iterator[Row | Gap]:
    """Reads file by file."""
    for path in paths:
        try:
            yield from read_file(path)
        except FileNotFoundError:
            continue


def joined(found: Iterable[Row | Gap]) -> Iterator[Row | Gap]:
    """Yields each row once, and a gap wherever numbers are missing within a term.

    The first term begins with the oldest file: earlier rows are expired. An UNRECORDED row is yielded itself and as the
    gap that it marks. A daemon's term must have an end before the next term of the same daemon.
    """
    due: dict[tuple[str, int, int], int] = {}
    serving: dict[tuple[str, int], int] = {}
    for row in found:
        if isinstance(row, Gap):
            yield row
            continue
        daemon = (row.cluster, row.ctl_id)
        term = (*daemon, row.ctl_epoch)
        expected = due.get(term, 1 if due else row.seq)
        if row.seq < expected:
            continue
        before = serving.get(daemon, row.ctl_epoch)
        if before != row.ctl_epoch:
            yield Gap(CUT_SHORT, "", before, due[*daemon, before])
        if row.seq > expected:
            yield Gap(HOLE, "", row.ctl_epoch, expected, row.seq - expected)
        if row.kind == Kind.UNRECORDED:
            yield Gap(row.why or "", "", row.ctl_epoch, row.seq, row.lost or 0)
        due[term] = row.seq + max(1, row.lost or 1)
        serving[daemon] = row.ctl_epoch
        if row.kind == Kind.CTL_RESIGNED:
            del serving[daemon]
        yield row
