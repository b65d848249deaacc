"""Feeds a bronze folder as a stream does, over crashes at any change of its files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyarrow import fs

from pipeline import storage
from pipeline.layout import manifest_of, table_in
from pipeline.schema import COLUMNS
from pipeline.stream.batch import Batch, Kept, batches, of_rows, parted
from pipeline.stream.bronze import Bronze
from pipeline.stream.offsets import Offset, complete, following, slices
from tests.real.pipeline.logs import sound, text
from tests.real.pipeline.plain_ingest import as_text

LOCAL: Final = fs.LocalFileSystem()
QUERY: Final = "0123abcd-0000-0000-0000-000000000000"


class Crash(BaseException):
    """The end of the process."""


class Feed:
    """Reads folders as the source does, and remembers offsets as the checkpoint does: before and after each batch."""

    def __init__(self, folders: list[str], into: Path, bytes_max: int = 1 << 20) -> None:
        self.folders, self.into, self.bytes_max = folders, str(into), bytes_max
        self.planned: list[Offset] = []
        self.read: dict[int, Batch] = {}
        self.done = 0

    def plan(self) -> bool:
        """Plans a batch more; returns whether there is one."""
        start = self.planned[-1] if self.planned else {}
        end = following(start, complete(self.folders, time.time(), 0), self.bytes_max)
        if end == start:
            return False
        self.planned.append(end)
        return True

    def run(
        self, after_keeping: Callable[[], None] = lambda: None, query: str = QUERY, until: int | None = None
    ) -> list[Kept]:
        """Starts a process that keeps all batches there are, or those before ``until``.

        The last one that was planned is repeated if it was not done.
        """
        kept: list[Kept] = []
        bronze = Bronze(self.into, query)
        while self.done != until and (self.done < len(self.planned) or self.plan()):
            kept.append(bronze.keep(self.done, self._batch(self.done)))
            after_keeping()
            self.done += 1
        return kept

    def _batch(self, number: int) -> Batch:
        if number not in self.read:
            start = self.planned[number - 1] if number else {}
            found = [batch for part in slices(start, self.planned[number]) for batch in batches(part)]
            self.read[number] = parted(as_table(found))
        return self.read[number]


def two_daemons(folder: Path) -> list[str]:
    """Writes the journals of two daemons, one with a line that is no row; returns their folders."""
    for daemon, epoch in ((1, 5), (2, 6)):
        (folder / f"d{daemon}").mkdir()
        lines = text(row for row in sound("c") if row["ctl_id"] == daemon)
        path = folder / f"d{daemon}" / f"{epoch:010d}-000000000001.jsonl"
        path.write_text(lines + ("no row\n" if daemon == 1 else ""))
    return [str(folder / "d1"), str(folder / "d2")]


def as_table(found: list[Any]) -> Any:
    """Makes one table of batches, also of none."""
    return pa.Table.from_batches(found, of_rows(COLUMNS.empty_table()).schema)


def rows_of(folder: Path | str) -> list[str]:
    """Returns the rows that a folder has, as text."""
    made = manifest_of(str(folder))
    return sorted(as_text(row) for file in made.files for row in table_in(str(folder), file.path).to_pylist())


@contextmanager
def crashing(monkeypatch: pytest.MonkeyPatch, at: int, *, replaces: bool) -> Iterator[None]:
    """Ends the process before the change number ``at`` of any file; nothing is changed from then on.

    ``replaces``: a file can be moved into the place of another one, as on this machine, but not in all stores.
    """
    changes = iter(range(1, at + 1))

    def counted(name: str) -> Callable[..., Any]:
        def change(self: Any, *args: Any, **options: Any) -> Any:
            if next(changes, at) == at:
                raise Crash
            return getattr(LOCAL, name)(*args, **options)

        return change

    names = ("create_dir", "open_output_stream", "move", "delete_file")
    kind = fs.LocalFileSystem if replaces else fs.SubTreeFileSystem
    store = type("Store", (kind,), {name: counted(name) for name in names})
    made = store() if replaces else store("/", LOCAL)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "place", lambda path: (made, str(Path(path).absolute())))
        yield
