"""Judges the buckets of a folder in tasks, which read Parquet and write violations themselves: no row enters Spark.

A bucket has whole histories, so that no task needs another's rows. What all of them need, the brokers of each term and
the gaps, is little, and is given to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import chain
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.arrays import CODED
from pipeline.brokers_seen import BROKERS, Life, Registration, lives, registrations
from pipeline.brokers_seen import READ as OF_BROKERS
from pipeline.ending import Disagreement
from pipeline.gaps import SAME_NUMBER
from pipeline.judge import BATCH_ROWS_MAX, JUDGED, judged
from pipeline.layout import REST, VIOLATIONS, Manifest, bucket_parts, in_folder, rows_by_bucket, table_in
from pipeline.procedures import READ as OF_PROCEDURES
from pipeline.procedures import Families
from pipeline.requests import READ as OF_REQUESTS
from pipeline.requests import overtaken, requests_kept
from pipeline.storage import CannotMerge, NothingToRead, writing
from pipeline.verdict import Broken, Gaps, put, rows_of
from state_machines.journal.events import SCHEMA_VERSION, Kind, Row

Term = Mapping[str, Any]
"""A row of :func:`pipeline.gaps.terms`."""


def one_writer(terms: Iterable[Term]) -> Iterator[Broken]:
    """Yields violations of A7 that the terms show; no row should follow that of the fence."""
    every = list(terms)
    writers = Counter((term["cluster"], term["ctl_epoch"]) for term in every)
    for term in every:
        several, fenced, last = writers[term["cluster"], term["ctl_epoch"]], term["fenced"], term["last_write"]
        if several > 1:
            yield Broken("A7", f"epoch {term['ctl_epoch']} was written by {several} daemons", _last(term))
        elif fenced is not None and last is not None and last > fenced:
            yield Broken("A7", f"row {last} is a write after the fence", _last(term))


def _last(term: Term) -> Row:
    """Returns the row of the fence, or where the term begins."""
    seq = term["first_seq"] if term["fenced"] is None else term["fenced"]
    place = (term["cluster"], term["ctl_id"], term["ctl_epoch"], seq, term["last_us"])
    return Row(SCHEMA_VERSION, *place, mono_us=0, kind=Kind.FENCED.value)


TASK_ROWS_MIN: Final = 100_000
"""A task for fewer rows takes longer to start than to run."""
TASKS_PER_SLOT: Final = 2
"""So that a slot with small buckets has another task to go on with."""


class Given(NamedTuple):
    """What each task is given: the folder with its manifest, gaps (cluster, place), and brokers of all terms."""

    folder: str
    manifest: Manifest
    gaps: list[tuple[str, tuple[int, int]]]
    lives: list[Life]
    registered: list[Registration]


def given(folder: str, manifest: Manifest) -> Given:
    """Reads what the tasks are given. Raises :class:`~pipeline.storage.NothingToRead`."""
    gaps = [
        (gap["cluster"], (gap["ctl_epoch"], gap["seq"]))
        for gap in table_in(folder, manifest.gaps).to_pylist()
        if gap["kind"] != SAME_NUMBER
    ]
    events: list[Row] = []
    if BROKERS & manifest.kinds.keys():
        for part in bucket_parts(folder, REST, OF_BROKERS, manifest):
            events += rows_of(part.filter(pc.field("kind").isin([str(kind) for kind in BROKERS])))
    return Given(folder, manifest, gaps, lives(events), registrations(events))


def shares(manifest: Manifest, slots: int) -> list[list[int]]:
    """Returns the buckets with rows, those of each task together: about as many rows in each, where they are many.

    ``slots``: tasks that run at once.
    """
    sizes = Counter({bucket: rows for bucket, rows in enumerate(rows_by_bucket(manifest)) if rows})
    tasks = min(TASKS_PER_SLOT * slots, len(sizes), -(-manifest.rows // TASK_ROWS_MIN))
    open_: list[tuple[int, list[int]]] = [(0, []) for _ in range(tasks)]
    for bucket, rows in sizes.most_common():
        total, buckets = heappop(open_)
        heappush(open_, (total + rows, [*buckets, bucket]))
    return [buckets for _, buckets in sorted(open_, reverse=True)]


def judge_buckets(given: Given, buckets: Sequence[int]) -> int | NothingToRead | CannotMerge | Disagreement:
    """Judges buckets, and writes the violations of each into a file.

    Returns how many it wrote, or the error with which it ended.
    """
    gaps, footers, count = Gaps(given.gaps), dict[str, Any](), 0
    try:
        for bucket in buckets:
            found = _rest(given) if bucket == REST else _bucket(given, bucket, footers)
            count += _kept(found, gaps, given.folder, f"bucket-{bucket:02d}")
    except (NothingToRead, CannotMerge, Disagreement) as error:
        return error
    return count


def judge_terms(given: Given) -> int:
    """Judges the terms, and writes their violations into a file; returns how many.

    Raises :class:`~pipeline.storage.NothingToRead`, :class:`~pipeline.storage.CannotMerge`.
    """
    terms: list[Term] = table_in(given.folder, given.manifest.terms).to_pylist()
    return _kept(one_writer(terms), Gaps(()), given.folder, "terms")


def _kept(found: Iterable[Broken], gaps: Gaps, folder: str, name: str) -> int:
    """Writes violations; readers of rows raise errors of their own, so one of the file system is of the writing."""
    into = in_folder(folder, VIOLATIONS)
    with writing(into):
        return put(found, gaps, into, name)


def _bucket(given: Given, bucket: int, footers: dict[str, Any]) -> Iterator[Broken]:
    parts = bucket_parts(given.folder, bucket, JUDGED, given.manifest, coded=CODED, footers=footers)
    return judged(pa.concat_tables(parts), given.lives)


def _rest(given: Given) -> Iterator[Broken]:
    """Judges rows of no partition and no region, file by file: they are compared by what is remembered of them."""
    parts = partial(bucket_parts, given.folder, REST, manifest=given.manifest)
    kinds = given.manifest.kinds
    if {Kind.PROC_STATE, Kind.RPC_BATCH} & kinds.keys():
        yield from chain.from_iterable(judged(part, given.lives) for part in parts(JUDGED))
    if Kind.PROC_STATE in kinds:
        families = Families(_procedures(given))
        yield from families.judged(_procedures(given))
    if Kind.RPC_BATCH in kinds:
        later = overtaken(parts(OF_REQUESTS))
        for part in parts(OF_REQUESTS):
            yield from requests_kept(part, given.registered, later)


def _procedures(given: Given) -> Iterator[Row]:
    """Yields the rows of procedures. Those of a region's are in the buckets of regions."""
    with_regions = Kind.REGION_STATE in given.manifest.kinds
    for bucket in range(REST + 1) if with_regions else (REST,):
        for part in bucket_parts(given.folder, bucket, OF_PROCEDURES, given.manifest):
            found = part.filter(pc.field("topic").is_null() & (pc.field("kind") == Kind.PROC_STATE.value))
            for first in range(0, found.num_rows, BATCH_ROWS_MAX):
                yield from rows_of(found.slice(first, BATCH_ROWS_MAX))
