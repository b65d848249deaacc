"""Merges journals into a bronze folder (J1): tasks write whole files, the driver finds copies, gaps and terms.

Only files of one term and writer whose numbers meet are compared line by line. Equal files are found by a digest, and
read once. Nothing counts before the manifest names it (:mod:`pipeline.layout`).
"""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from pipeline.gaps import Gap, gaps, terms
from pipeline.layout import (
    AUDIT,
    GAPS,
    MANIFEST,
    QUARANTINE,
    ROWS,
    TERMS,
    VERSION,
    VIOLATIONS,
    Manifest,
    RowsFile,
    gaps_table,
    in_folder,
    keep_table,
    terms_table,
)
from pipeline.pieces import Piece
from pipeline.progress import Phase
from pipeline.schema import COLUMNS
from pipeline.segments import PORTION_BYTES, PUT_ASIDE, Digest, Made, Source, digest, make, make_together
from pipeline.storage import CannotMerge, NothingToRead, discard, listed, reason, remove, size_of, under, write, writing

T = TypeVar("T")

JOURNAL: Final = ".jsonl"
"""Ending of a journal's files."""

COMPILED_BYTES_MIN: Final = 500_000_000
"""Of all journals: less is parsed before the compiled loop has started in each process."""


class Each(Protocol):
    """Calls a function with each of many values, and returns the results in their order."""

    def __call__(
        self, function: Callable[[Any], Any], values: Sequence[Any], phase: Phase | None = None, /
    ) -> list[Any]:
        """Does so. With ``phase``, which has a task for each value, it says how far it is."""


class Workers(NamedTuple):
    """Processes that call a function with each of many values, ``slots`` of them at a time."""

    each: Each
    slots: int


class Merged(NamedTuple):
    """What a folder has now."""

    manifest: Manifest
    terms: Sequence[Piece]
    gaps: Sequence[Gap]


class _Failed(NamedTuple):
    """A file system's error in a task; trying again would not help."""

    message: str


def merge(workers: Workers, journals: Sequence[str], into: str) -> Merged:
    """Replaces the content of the folder ``into``. What it had stays whole until all is there.

    Raises :class:`~pipeline.storage.NothingToRead`, :class:`~pipeline.storage.CannotMerge`, and what the workers raise.
    """
    run = secrets.token_hex(4)
    try:
        merged = _merged(workers, files_of(journals), into, run)
    except BaseException:
        with suppress(CannotMerge):  # the first error is the one to know
            _clear(into, lambda path: run in path)
        raise
    named = _named(merged.manifest)
    _clear(into, lambda path: path not in named)
    discard(in_folder(into, AUDIT))  # an audit of earlier rows may have ended since the manifest was written
    return merged


def files_of(journals: Iterable[str]) -> list[tuple[str, int]]:
    """Lists the files of folders, and single files, with their bytes. Raises :class:`NothingToRead`."""
    found: list[tuple[str, int]] = []
    for journal in journals:
        files = _file(journal) if journal.endswith(JOURNAL) else listed(journal, JOURNAL)
        if not files:
            raise NothingToRead(f"there is no journal in {journal}: it is no folder with files *{JOURNAL}")
        found += files
    return found


def meeting(made: Sequence[Made]) -> list[list[int]]:
    """Returns groups of indices of files that have a number of one term and writer in common.

    A file that has a number twice is a group by itself.
    """
    places = sorted(
        (piece.term, piece.first_seq, piece.last_seq, index, piece.doubled)
        for index, each in enumerate(made)
        for piece in each.pieces
    )
    joined: dict[int, int] = {index: index for index in range(len(made))}
    meets = {index for *_, index, doubled in places if doubled}
    furthest = None
    for place in places:
        term, first, last, index, _ = place
        if furthest is not None and furthest[0] == term and first <= furthest[1]:
            meets |= {index, furthest[2]}
            joined[_root(joined, index)] = _root(joined, furthest[2])
        if furthest is None or furthest[0] != term or last > furthest[1]:
            furthest = (term, last, index)
    groups: dict[int, list[int]] = defaultdict(list)
    for index in sorted(meets):
        groups[_root(joined, index)].append(index)
    return list(groups.values())


def _merged(workers: Workers, files: Sequence[tuple[str, int]], into: str, run: str) -> Merged:
    read, copies = _without_copies(workers, files)
    made = _made(workers, read, into, run)
    compared = meeting(made)
    if compared:
        made = _compared(workers, made, compared, into, run)
    found = terms(chain.from_iterable(each.pieces for each in made))
    missing = gaps(found)

    def small(kind: str, table: Any) -> str:
        return keep_table(into, f"{kind}/{run}.parquet", run, table)

    kinds: Counter[str] = Counter()
    for each in made:
        kinds.update(each.kinds)
    manifest = Manifest(
        VERSION,
        [file for each in made for file in each.files] or [RowsFile(small(ROWS, COLUMNS.empty_table()), [])],
        small(TERMS, terms_table(found)),
        small(GAPS, gaps_table(missing)),
        [path for each in made for path in each.quarantine] or [small(QUARANTINE, PUT_ASIDE.empty_table())],
        dict(sorted(kinds.items())),
        sum(each.lines for each in made) + copies,
        sum(each.copies for each in made) + copies,
        sum(each.quarantined for each in made),
    )
    assert manifest.lines == manifest.rows + manifest.quarantined + manifest.copies
    discard(in_folder(into, AUDIT))  # never beside rows that it is not about, wherever this process is killed
    write(in_folder(into, MANIFEST), run, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    return Merged(manifest, found, missing)


def _without_copies(workers: Workers, files: Sequence[tuple[str, int]]) -> tuple[list[tuple[str, int]], int]:
    """Returns files of which no two are equal, and the lines of the others."""
    sizes = Counter(size for _, size in files)
    alike = [path for path, size in files if sizes[size] > 1 and size > 0]
    phase = Phase("comparing files", "files", [1] * len(alike), [size for _, size in files if sizes[size] > 1 and size])
    digests = dict(zip(alike, _run(workers, _digest, alike, phase), strict=True))
    kept, copies, seen = [], 0, set()
    for path, size in files:
        found = digests.get(path)
        if found is None or found.digest not in seen:
            kept.append((path, size))
        else:
            copies += found.lines
        if found is not None:
            seen.add(found.digest)
    return kept, copies


def _made(workers: Workers, files: Sequence[tuple[str, int]], into: str, run: str) -> list[Made]:
    """Writes all files, several small ones in one task."""
    tasks: list[list[Source]] = []
    sizes: list[int] = []
    total = sum(size for _, size in files)
    share = total // workers.slots
    room = 0
    for number, (path, size) in enumerate(files):
        if not tasks or size > room:
            tasks.append([])
            sizes.append(0)
            room = min(share, PORTION_BYTES)
        tasks[-1].append(Source(path, number, compiled=total >= COMPILED_BYTES_MIN))
        sizes[-1] += size
        room -= size
    phase = Phase("reading journals", "files", [len(task) for task in tasks], sizes, _rows)
    return [*chain.from_iterable(_run(workers, partial(_make, into=into, run=run), tasks, phase))]


def _compared(
    workers: Workers, made: Sequence[Made], groups: Sequence[Sequence[int]], into: str, run: str
) -> list[Made]:
    """Returns the results, with those of groups made again with rows that are the same left out."""
    tasks = [[Source(made[index].source.path, len(made) + index) for index in group] for group in groups]
    sizes = [sum(made[index].lines for index in group) for group in groups]
    phase = Phase("comparing rows", "files", [len(task) for task in tasks], sizes, _rows)
    again = chain.from_iterable(_run(workers, partial(_make_together, into=into, run=run), tasks, phase))
    instead = dict(zip(chain.from_iterable(groups), again, strict=True))
    return [instead.get(index, each) for index, each in enumerate(made)]


def _run(workers: Workers, function: Callable[[Any], Any], tasks: Sequence[Any], phase: Phase) -> list[Any]:
    results = workers.each(function, tasks, phase)
    for result in results:
        if isinstance(result, _Failed):
            raise CannotMerge(result.message)
    return results


def _digest(path: str) -> Digest | _Failed:
    return _guarded(lambda: digest(path), path)


def _make(sources: Sequence[Source], into: str, run: str) -> list[Made] | _Failed:
    pa.set_cpu_count(1)
    return _guarded(lambda: [make(source, into, run, _attempt()) for source in sources], into)


def _make_together(sources: Sequence[Source], into: str, run: str) -> list[Made] | _Failed:
    pa.set_cpu_count(1)
    return _guarded(lambda: make_together(sources, into, run, _attempt()), into)


def _guarded(work: Callable[[], T], path: str) -> T | _Failed:
    try:
        return work()
    except NothingToRead as error:
        return _Failed(str(error))
    except OSError as error:
        return _Failed(reason(error, path))


def _rows(made: list[Made] | _Failed) -> int:
    return 0 if isinstance(made, _Failed) else sum(file.rows for each in made for file in each.files)


def _attempt() -> str:
    context = TaskContext.get()
    return str(context.taskAttemptId()) if context is not None else "0"


def _file(path: str) -> list[tuple[str, int]]:
    size = size_of(path)
    return [] if size is None else [(path, size)]


def _root(joined: dict[int, int], index: int) -> int:
    while joined[index] != index:
        joined[index] = joined[joined[index]]
        index = joined[index]
    return index


def _named(manifest: Manifest) -> set[str]:
    return {*(file.path for file in manifest.files), manifest.terms, manifest.gaps, *manifest.quarantine}


def _clear(into: str, removed: Callable[[str], bool]) -> None:
    """Removes files of the folder that no manifest needs, also those that earlier, killed runs left.

    The violations that an audit of earlier rows found are no longer true. Raises :class:`CannotMerge`.
    """
    with writing(into):
        found = [path for kind in (ROWS, TERMS, GAPS, QUARANTINE, VIOLATIONS) for path in under(into, kind)]
        found += [path for path in under(into) if path.endswith(f"-{MANIFEST}")]
        for path in filter(removed, found):
            remove(in_folder(into, path))
