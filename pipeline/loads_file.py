"""Reads loads of partitions: those of ``regent loads``, and a user's own from CSV, JSON lines or Parquet.

A user's file has the columns ``topic``, ``partition`` and any of :data:`COLUMNS`; other columns are passed over, and a
missing or empty value is unknown. A file of ``regent loads`` has a row for each replica, with offsets of leaders and
the time: two of them give rates.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from pipeline.inputs import NONE, BadInput, Floats, Int64s, Loads, Partitions

COLUMNS: Final = ("size_bytes", "bytes_in_per_s", "bytes_out_per_s")
"""Loads of a partition: the size of one replica, and what producers write and consumers read, in bytes a second."""

OFFSETS: Final = ("start_offset", "end_offset", "time_ms")
"""Columns of ``regent loads`` that give a rate, with another file of it."""

_FIELDS: Final = ("topic", "partition", "broker", "log_dir", "is_future", *COLUMNS, *OFFSETS)
FORM: Final = "give the columns topic, partition and any of " + ", ".join(COLUMNS)

Value = str | int | float | bool | None
Row = Mapping[str, Value]


def read_loads(partitions: Partitions, path: Path | str, earlier: Path | str | None = None) -> Loads:
    """Reads the loads of ``partitions``; raises :class:`BadInput`.

    Several rows of one partition, such as of its replicas, count with the highest value. ``earlier``: a file of
    ``regent loads`` from before, which must have the same partitions' offsets; then ``bytes_in_per_s`` is what the
    logs grew by in between, where the file does not give it: the offsets' growth times the mean size of a record.
    """
    found = _Columns(partitions, Path(path))
    values = [found.highest(name) for name in COLUMNS]
    if earlier is not None:
        before = _Columns(partitions, Path(earlier))
        rates = _rates(before, found)
        values[1] = np.where(np.isnan(values[1]), rates, values[1])
    size: Int64s = np.nan_to_num(values[0], nan=NONE).astype(np.int64)
    return Loads(size, values[1], values[2], found.unknown)


def read_log_dirs(partitions: Partitions, path: Path | str) -> Iterator[tuple[int, int, str]]:
    """Yields the log directory of each replica as (row of the partition, broker id, path); raises :class:`BadInput`.

    Nothing is known of a file that is none of ``regent loads``.
    """
    file = Path(path)
    names: list[tuple[str, int]] = []
    places: list[tuple[int, str]] = []
    for line, row in _rows(file):
        log_dir = row.get("log_dir")
        if isinstance(log_dir, str) and log_dir and not _flag(row.get("is_future")):
            where = f"{file}:{line}"
            names.append((_topic(where, row), int(_number(where, row, "partition", required=True))))
            places.append((int(_number(where, row, "broker", required=True)), sys.intern(log_dir)))
    rows = partitions.rows_of([topic for topic, _ in names], [number for _, number in names])
    yield from ((row, *place) for row, place in zip(rows.tolist(), places, strict=True) if row != NONE)


def _rates(before: _Columns, now: _Columns) -> Floats:
    """Returns bytes a second between two files, NaN where an offset or a time is unknown or ran back."""
    for one in (before, now):
        if not one.has(OFFSETS):
            raise BadInput(f"{one.file}: it has no {', '.join(OFFSETS)}: rates need two files of 'regent loads'")
    seconds = (now.highest("time_ms") - before.highest("time_ms")) / 1000.0
    if np.nanmax(seconds, initial=0.0) <= 0.0 and np.isfinite(seconds).any():
        raise BadInput(f"{before.file} is not older than {now.file}: give the older file as the earlier one")
    end = now.highest("end_offset")
    grown, kept = end - before.highest("end_offset"), end - now.highest("start_offset")
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(kept > 0, now.highest("size_bytes") / kept, np.where(grown == 0, 0.0, np.nan))
        rates: Floats = grown * mean / seconds
    rates[~((grown >= 0) & (seconds > 0))] = np.nan
    return rates


class _Columns:
    """The numbers of one file as columns, each with the row of its partition; ``unknown`` counts strange partitions."""

    def __init__(self, partitions: Partitions, file: Path) -> None:
        self.file = file
        self._count = len(partitions)
        topics: list[str] = []
        numbers: list[int] = []
        self._values: dict[str, list[float]] = {name: [] for name in (*COLUMNS, *OFFSETS)}
        self._seen: set[str] = set()
        for line, row in _rows(file):
            if _flag(row.get("is_future")):
                continue
            where = f"{file}:{line}"
            topics.append(_topic(where, row))
            numbers.append(int(_number(where, row, "partition", required=True)))
            for name, column in self._values.items():
                column.append(_number(where, row, name))
            self._seen |= row.keys()
        if not self._seen & set(COLUMNS) and topics:
            raise BadInput(f"{file}: its columns are {', '.join(sorted(self._seen))}: {FORM}")
        self._rows = partitions.rows_of(topics, numbers)
        self.unknown = int(np.count_nonzero(self._rows == NONE))

    def has(self, names: Iterable[str]) -> bool:
        """Checks whether the file has these columns."""
        return self._seen.issuperset(names)

    def highest(self, name: str) -> Floats:
        """Returns the highest value of each partition; NaN without any."""
        values: Floats = np.array(self._values[name], dtype=np.float64)
        chosen = (self._rows != NONE) & ~np.isnan(values)
        found: Floats = np.full(self._count, -np.inf)
        np.maximum.at(found, self._rows[chosen], values[chosen])
        found[np.isneginf(found)] = np.nan
        return found


def _rows(file: Path) -> Iterator[tuple[int, Row]]:
    """Yields the line's number (of Parquet: the row's) and the row."""
    try:
        kind = _kind(file)
        if kind == "parquet":
            yield from _parquet(file)
        elif kind == "json":
            yield from _json(file)
        else:
            yield from _csv(file)
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror or error}") from None
    except csv.Error as error:
        raise BadInput(f"{file} is no CSV ({error}): {FORM}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{file} is no text in UTF-8 ({error.reason}): give CSV, JSON lines or Parquet") from None


def _kind(file: Path) -> str:
    with file.open("rb") as opened:
        begin = opened.read(4)
    return "parquet" if begin == b"PAR1" else "json" if begin[:1] == b"{" else "csv"


def _csv(file: Path) -> Iterator[tuple[int, Row]]:
    with file.open(newline="", encoding="utf-8") as opened:
        reader = csv.DictReader(opened)
        if missing := {"topic", "partition"}.difference(reader.fieldnames or ()):
            raise BadInput(f"{file}:1: the header has no {' and no '.join(sorted(missing))}: {FORM}")
        for row in reader:
            if None in row or None in row.values():
                raise BadInput(f"{file}:{reader.line_num}: its columns are not those of the header: correct the line")
            yield reader.line_num, {name: row[name] for name in _FIELDS if name in row}


def _json(file: Path) -> Iterator[tuple[int, Row]]:
    decoder = msgspec.json.Decoder(dict[str, object])
    with file.open("rb") as opened:
        for number, line in enumerate(opened, 1):
            try:
                row = decoder.decode(line)
            except msgspec.DecodeError as error:
                raise BadInput(f"{file}:{number}: {error}: give one JSON object a line") from None
            yield number, {name: _plain(row[name]) for name in _FIELDS if name in row}


def _plain(value: object) -> Value:
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _parquet(file: Path) -> Iterator[tuple[int, Row]]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        remedy = "install regent with its extra, in its sources: .venv/bin/pip install '.[pipeline]'"
        raise BadInput(f"{file} is Parquet, which needs pyarrow: {remedy}") from None
    try:
        opened = parquet.ParquetFile(file)
        present = [name for name in _FIELDS if name in opened.schema_arrow.names]
        if missing := {"topic", "partition"}.difference(present):
            raise BadInput(f"{file}: it has no column {' and no '.join(sorted(missing))}: {FORM}")
        number = 0
        for batch in opened.iter_batches(columns=present):
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except ArrowInvalid as error:
        raise BadInput(f"{file} is no whole Parquet file: {error}") from None


def _topic(where: str, row: Row) -> str:
    found = row.get("topic")
    if not isinstance(found, str) or not found:
        raise BadInput(f"{where}: topic = {found!r} is no topic's name: {FORM}")
    return found


def _number(where: str, row: Row, name: str, *, required: bool = False) -> float:
    """Returns a field as a number that is 0 or more; NaN where it is missing or empty."""
    value = row.get(name)
    if value is None or value == "":
        if not required:
            return math.nan
        raise BadInput(f"{where}: {name} is missing: {FORM}")
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0.0 <= number < 2.0**63 or (required and not number.is_integer()):
        raise BadInput(f"{where}: {name} = {value!r} is no {'whole ' if required else ''}number of 0 or more")
    return number


def _flag(value: Value) -> bool:
    return value in (True, "true", "True", "1", 1)
