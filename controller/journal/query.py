"""Queries a journal: chosen rows, the last of them, new ones, and their sentences."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from controller.journal.entries import process
from controller.journal.reader import CHUNK_BYTES, Damage, Gap, begin_of, joined, lines, parsed, read_each
from controller.journal.segments import segments_in
from controller.process.wording import counted
from state_machines.journal.events import PARTITION_KINDS, Kind, Row

HISTORY_ROWS: Final = 20
HISTORY_BYTES_MAX: Final = 256 << 20
"""Bytes of the newest files that a query of a partition's history reads."""


class Wanted(Struct, frozen=True):
    """Conditions of a query; None, or empty, is no condition. Times are on the wall clock, in microseconds.

    ``incarnation``: of the process of ``server``; None: any.
    """

    topic: str | None = None
    partition: int | None = None
    broker: int | None = None
    kinds: frozenset[str] = frozenset()
    since_us: int | None = None
    until_us: int | None = None
    pid: int | None = None
    region: int | None = None
    table: str | None = None
    server: str | None = None
    incarnation: int | None = None

    def meets(self, begin_us: int | None, end_us: int | None) -> bool:
        """Returns whether a time span, open without a begin or an end, overlaps the wanted one."""
        ends_before = self.since_us is not None and end_us is not None and end_us < self.since_us
        begins_after = self.until_us is not None and begin_us is not None and begin_us > self.until_us
        return not ends_before and not begins_after

    def matches(self, row: Row) -> bool:
        """Returns whether a row meets all conditions."""
        return (
            (self.topic is None or row.about(self.topic))
            and (self.pid is None or row.of_family(self.pid))
            and (self.partition is None or row.partition == self.partition)
            and (self.broker is None or row.concerns(self.broker))
            and (self.region is None or row.region == self.region)
            and (self.table is None or row.table == self.table)
            and (self.server is None or row.at_server(self.server, self.incarnation))
            and (not self.kinds or row.kind in self.kinds)
            and (self.since_us is None or row.ts_us >= self.since_us)
            and (self.until_us is None or row.ts_us <= self.until_us)
        )


def last(journal: Path | Sequence[Path], wanted: Wanted, count: int) -> tuple[list[Row], list[Gap], bool]:
    """Returns the last ``count`` wanted rows, oldest first, gaps in the wanted time, and whether there are more.

    ``journal``: one folder, or those of several daemons, whose rows are in the order of their epochs. It reads back
    from the newest file no further than it must: a journal may have millions of rows.
    """
    paths = list(_since(journal, wanted.since_us))
    begin, seen = len(paths), 0
    while begin and seen <= count:
        begin -= 1
        found = read_each(paths[begin : begin + 1])
        seen += sum(isinstance(row, Row) and wanted.matches(row) for row in found)
    rows: deque[Row] = deque(maxlen=count)
    gaps: list[Gap] = []
    between, before_us = list[Gap](), None
    for row in joined(read_each(paths[begin:])):
        if isinstance(row, Gap):
            between.append(row)
            continue
        if between and wanted.meets(before_us, row.ts_us):
            gaps += between
        between, before_us = [], row.ts_us
        if wanted.matches(row):
            rows.append(row)
    if wanted.meets(before_us, None):
        gaps += between
    return list(rows), gaps, seen > count


def _since(journal: Path | Sequence[Path], since_us: int | None) -> Iterator[Path]:
    for path in segments_in(journal):
        try:
            if since_us is None or path.stat().st_mtime_ns // 1_000 >= since_us:
                yield path
        except FileNotFoundError:
            continue


def history(folder: Path, topic: str, partition: int, count: int = HISTORY_ROWS) -> list[Row]:
    """Returns the last rows of one partition over all terms, oldest first, from the newest files.

    It reads at most ``HISTORY_BYTES_MAX`` of them, a megabyte at a time: the daemon calls it beside its loop.
    """
    needle = f'"topic":"{topic}","partition":{partition},'.encode()
    rows: list[Row] = []
    left = HISTORY_BYTES_MAX
    for path in reversed(segments_in(folder)):
        if left <= 0 or len(rows) >= count:
            break
        try:
            left -= path.stat().st_size
            rows = [*rows_with(path, needle), *rows]
        except FileNotFoundError:
            continue
    return rows[-count:]


def rows_with(path: Path, needle: bytes) -> Iterator[Row]:
    """Yields rows of lines that contain ``needle``, which the fixed order of fields in a row allows."""
    rest = b""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            block, _, rest = (rest + chunk).rpartition(b"\n")
            rest = begin_of(rest)
            for line in block.split(b"\n") if needle in block else ():
                if needle in line and isinstance(row := parsed(line), Row):
                    yield row


class Follower:
    """Reads rows that were added since the last look; leaves an incomplete line for the next look."""

    def __init__(self, journal: Path | Sequence[Path]) -> None:
        self._journal = journal
        self._read = {path: path.stat().st_size for path in segments_in(journal)}

    def look(self) -> Iterator[Row]:
        """Yields new rows; the caller waits between two looks."""
        present = segments_in(self._journal)
        self._read = {path: self._read.get(path, 0) for path in present}
        for path in present:
            for end, line, complete in lines(path, self._read[path]):
                if not complete:
                    break
                self._read[path] = end
                row = parsed(line)
                if not isinstance(row, Damage):
                    yield row


def at(row: Row) -> str:
    """Returns the time of a row, in UTC."""
    return datetime.fromtimestamp(row.ts_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def entity(row: Row) -> str:
    """Returns the entity of a row: a procedure, a partition, a replica, a topic, a broker, a server, or the daemon."""
    if row.pids and row.procedure is not None:
        return f"{len(row.pids)} {row.procedure}" + (f" of pid {row.ppid}" if row.ppid is not None else "")
    if row.pid is not None:
        name = f"pid {row.pid} {row.procedure}" if row.procedure is not None else f"pid {row.pid}"
        return name + (f" of pid {row.ppid}" if row.ppid is not None else "")
    if row.partition is not None:
        return f"{row.topic}-{row.partition}" + (f" on broker {row.broker}" if row.broker is not None else "")
    if row.topic is not None:
        return row.topic
    if row.broker is not None and row.kind != Kind.CTL_ELECTED:
        return f"broker {row.broker}"
    return f"server {process(row.server, row.incarnation)}" if row.server is not None else f"daemon {row.ctl_id}"


def sentence(row: Row) -> str:
    """Describes the event of a row, and its reason."""
    parts = [part for part in (describe(row) for describe in _DESCRIPTIONS) if part]
    if row.kind == Kind.UNRECORDED:
        parts.append(f"{row.lost} rows are missing")
    if row.kind == Kind.RPC_BATCH:
        parts.append(_request(row))
    elif row.kind == Kind.CALL:
        parts.append(
            f"{row.api} of {row.partitions} partitions by {row.principal or 'a client'}: "
            f"{row.elected} elected, {row.refused} refused"
        )
    elif row.kind == Kind.WAIT_GIVEN_UP:
        logs = counted(row.partitions or 0, "log")
        parts.append(f"its deletion does not wait for {logs} on broker {row.broker} any more, by {row.principal}")
        return ": ".join((*parts, *([row.reason] if row.reason else ())))
    elif row.kind == Kind.SNAPSHOT and row.snapshot is not None:
        parts.append(f"{row.snapshot} has {row.partitions} partitions and {row.broker_count} brokers")
    why = row.why if row.procedure is not None else row.err or row.why
    return ", ".join(parts) + (f": {why}" if parts and why else why or "")


def _request(row: Row) -> str:
    took_ms = (row.t_acknowledged - (row.t_sent or 0)) / 1_000 if row.t_acknowledged is not None else None
    end = "not acknowledged" if took_ms is None else f"acknowledged in {took_ms:.1f} ms"
    return f"{row.api} of {row.partitions} partitions to epoch {row.broker_epoch} {end}"


def _leader(row: Row) -> str:
    if row.kind not in PARTITION_KINDS or row.leader1 is None:
        return ""
    if row.leader0 == row.leader1:
        return f"leader {_leader_id(row.leader1)} stays"
    text = (
        f"leader {_leader_id(row.leader1)}"
        if row.leader0 is None
        else f"leader {_leader_id(row.leader0)} -> {_leader_id(row.leader1)}"
    )
    return f"{text} uncleanly" if row.unclean else text


def _isr(row: Row) -> str:
    if row.isr1 is None or row.isr0 == row.isr1:
        return ""
    before = "" if row.isr0 is None else f"[{_ids(row.isr0)}] -> "
    return f"ISR {before}[{_ids(row.isr1)}]"


def _states(row: Row) -> str:
    if row.from_state == row.to_state:
        return ""
    return f"{row.from_state} -> {row.to_state}" if row.from_state is not None else row.to_state or ""


def _epoch(row: Row) -> str:
    return "" if row.leader_epoch1 is None else f"leader epoch {row.leader_epoch1}"


def _of_regions(row: Row) -> str:
    """Describes what a row of the domain of regions is about."""
    server = process(row.server, row.incarnation)
    match row.kind:
        case Kind.REGION_DISPATCH:
            return f"batch {row.batch} of {counted(len(row.pids or ()), 'operation')}"
        case Kind.REGION_REPORT:
            return f"{server} reported {row.outcome}"
        case Kind.REGION_STATE:
            return f"{row.table}#{row.region}" + (f" at {server}" if server else "")
        case Kind.TABLE_STATE:
            return f"table {row.table}"
        case _:
            return f"server {server}" if row.kind == Kind.SERVER_STATE and row.pid is not None else ""


_DESCRIPTIONS: tuple[Callable[[Row], str], ...] = (_leader, _isr, _of_regions, _states, _epoch)


def _leader_id(leader: int) -> str:
    return "none" if leader < 0 else str(leader)


def _ids(brokers: object) -> str:
    return ",".join(map(str, brokers)) if isinstance(brokers, list | tuple) else ""
