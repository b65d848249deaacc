"""Writes tables as CSV or JSON lines to files that are whole or not there."""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import msgspec

MODE: Final = 0o640
JSON_LINES: Final = (".jsonl", ".json")


class Writer:
    """Appends a row to a CSV with a header, or to JSON lines."""

    def __init__(self, file: IO[str], fields: Sequence[str], *, json: bool) -> None:
        self._file = file
        self._fields = fields
        self._csv = csv.writer(file, lineterminator="\n")
        self._json = json
        if not json:
            self._csv.writerow(fields)

    def __call__(self, values: Sequence[Any]) -> None:
        """Appends the values of the fields; JSON lines lack those that are None."""
        if self._json:
            row = {name: each for name, each in zip(self._fields, values, strict=True) if each is not None}
            self._file.write(msgspec.json.encode(row).decode() + "\n")
            return
        self._csv.writerow([str(each).lower() if isinstance(each, bool) else each for each in values])


class Draft:
    """A file aside, which takes its name once it is whole and on the disk; nobody can plant a link in its place."""

    def __init__(self, into: Path) -> None:
        handle, name = tempfile.mkstemp(".tmp", f".{into.name}-", into.parent)
        self._path = Path(name)
        self._json = into.suffix in JSON_LINES
        self._file = os.fdopen(handle, "w", encoding="utf-8", newline="")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        with suppress(OSError):
            self._file.close()
        with suppress(FileNotFoundError):
            self._path.unlink()

    def writer(self, fields: Sequence[str]) -> Writer:
        """Returns what writes rows, after the header where there is one."""
        return Writer(self._file, fields, json=self._json)

    def complete(self, into: Path) -> Path:
        """Gives the file its name; returns that."""
        self._file.flush()
        os.fchmod(self._file.fileno(), MODE)
        os.fsync(self._file.fileno())
        self._file.close()
        return self._path.replace(into)
