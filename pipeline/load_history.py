"""Sums up weeks of loads: an exact percentile for each partition, from files of ``regent loads`` kept over time.

Tasks read whole files, lay their samples out by bucket of partitions, and write them aside; then tasks take a bucket
each from all of them. No row enters the JVM. Values are of the nearest rank: each is one that was measured.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.inputs import BadInput, Floats
from pipeline.load_samples import SAMPLES, read_samples
from pipeline.merge import Workers
from pipeline.progress import Phase
from pipeline.storage import NothingToRead, listed, opened, reason, remove_folder, size_of, written

T = TypeVar("T")

ENDINGS: Final = (".csv", ".jsonl", ".json", ".parquet")
BUCKET_BYTES: Final = 256 * 1024**2
"""Bytes of input of one bucket, which a task has in memory some three times."""
BUCKETS_MAX: Final = 1024
LOADS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("size_bytes", pa.int64()),
        ("bytes_in_per_s", pa.float64()),
        ("bytes_out_per_s", pa.float64()),
        ("samples", pa.int32()),
        ("first_ms", pa.int64()),
        ("last_ms", pa.int64()),
    ]
)
"""Columns of the result: loads as plans read them, and how many samples they are of, from when to when."""


class Summed(NamedTuple):
    """What was summed up: files, samples in the time, partitions, and the time in milliseconds."""

    files: int
    samples: int
    partitions: int
    begin_ms: int
    end_ms: int


class _Laid(NamedTuple):
    """A file of samples by bucket: how many rows each has, and the time of the newest."""

    path: str
    rows: Sequence[int]
    newest_ms: int


class _Wrong(NamedTuple):
    """An error of a task; trying again would not help."""

    message: str


def sum_up(workers: Workers, history: Sequence[str], out: str, percentile: float, window_ms: int) -> Summed:
    """Writes the loads of all partitions to the Parquet file ``out``: the ``percentile`` (0 to 100] of their samples.

    Samples count from ``window_ms`` before the newest one. ``history``: files, or folders of them. A rate that a sample
    lacks is what the log grew by since the sample before. Raises :class:`~pipeline.inputs.BadInput`,
    :class:`~pipeline.storage.NothingToRead`, ``OSError``, and what the workers raise.
    """
    files = _files(history)
    aside = f"{out}.{secrets.token_hex(4)}-unfinished"
    buckets = min(max(sum(size for _, size in files) // BUCKET_BYTES + 1, workers.slots), BUCKETS_MAX)
    try:
        tasks = [(path, number) for number, (path, _) in enumerate(files)]
        phase = Phase("reading loads", "files", [1] * len(files), [size for _, size in files], _rows)
        laid: list[_Laid] = _run(workers, partial(_lay, aside, buckets), tasks, phase)
        newest = max((one.newest_ms for one in laid), default=0)
        begin = max(newest - window_ms, 0)
        sizes = [sum(one.rows[bucket] for one in laid) for bucket in range(buckets)]
        judge = partial(_sum_bucket, laid, aside, percentile, begin)
        parts = _run(workers, judge, range(buckets), Phase("summing up", "buckets", [1] * buckets, sizes))
        with written(out, aside.rpartition("/")[2]) as stream, pq.ParquetWriter(stream, LOADS) as writer:
            for path, _, _ in parts:
                with opened(path) as part:
                    writer.write_table(pq.read_table(part))
    finally:
        remove_folder(aside)
    samples, partitions = (sum(part[at] for part in parts) for at in (1, 2))
    return Summed(len(files), samples, partitions, begin, newest)


def percentiles(group: Any, values: Floats, count: int, percentile: float) -> Floats:
    """Returns the percentile of each group's values, NaN where it has none. ``group``: the group of each value."""
    known = ~np.isnan(values)
    group, values = group[known], values[known]
    order = np.lexsort((values, group))
    each = np.bincount(group, minlength=count)
    first = np.cumsum(each) - each
    rank = np.maximum(np.ceil(each * (percentile / 100.0)).astype(np.int64), 1) - 1
    found: Floats = np.full(count, np.nan)
    there = each > 0
    found[there] = values[order][(first + rank)[there]]
    return found


def _files(history: Sequence[str]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for path in history:
        size = size_of(path)
        inside = [(path, size)] if size is not None else [one for one in listed(path) if one[0].endswith(ENDINGS)]
        if not inside:
            raise NothingToRead(f"there are no loads in {path}: it is no file, and no folder of *{', *'.join(ENDINGS)}")
        found += inside
    return sorted(set(found))


def _run(workers: Workers, function: Callable[[Any], Any], tasks: Sequence[Any], phase: Phase) -> list[Any]:
    results = workers.each(function, tasks, phase)
    for result in results:
        if isinstance(result, _Wrong):
            raise BadInput(result.message)
    return results


def _rows(laid: _Laid | _Wrong) -> int:
    return sum(laid.rows) if isinstance(laid, _Laid) else 0


def _lay(aside: str, buckets: int, task: tuple[str, int]) -> _Laid | _Wrong:
    """Writes the samples of a file with a row group for each bucket."""
    path, number = task
    pa.set_cpu_count(1)
    try:
        table = read_samples(path)
        topics = table["topic"].combine_chunks().dictionary_encode()
        hashes = np.array([crc32(name.encode()) for name in topics.dictionary.to_pylist()], dtype=np.uint64)
        mixed = hashes[topics.indices.to_numpy()] + table["partition"].to_numpy().astype(np.uint64)
        bucket = (mixed % np.uint64(buckets)).astype(np.int64)
        rows = np.bincount(bucket, minlength=buckets)
        sorted_by_bucket = table.take(pa.array(np.argsort(bucket, kind="stable")))
        to = f"{aside}/{number:07d}.parquet"
        with written(to, "part") as stream, pq.ParquetWriter(stream, SAMPLES, compression="zstd") as writer:
            begin = 0
            for count in filter(None, rows.tolist()):
                writer.write_table(sorted_by_bucket.slice(begin, count), row_group_size=count)
                begin += count
        newest = int(table["time_ms"].to_numpy().max(initial=0))
        return _Laid(to, rows.tolist(), newest)
    except BadInput as error:
        return _Wrong(str(error))
    except OSError as error:
        return _Wrong(reason(error, path))


def _sum_bucket(
    laid: Sequence[_Laid], aside: str, percentile: float, begin_ms: int, bucket: int
) -> tuple[str, int, int] | _Wrong:
    """Writes the loads of a bucket's partitions; returns the file, and how many samples and partitions it is of."""
    try:
        parts = [SAMPLES.empty_table(), *chain.from_iterable(_group(one, bucket) for one in laid)]
        found, samples = _summed(pa.concat_tables(parts), percentile, begin_ms)
        path = f"{aside}/loads-{bucket:04d}.parquet"
        with written(path, "part") as stream:
            pq.write_table(found, stream)
        return path, samples, len(found)
    except OSError as error:
        return _Wrong(reason(error, aside))


def _group(laid: _Laid, bucket: int) -> list[Any]:
    if not laid.rows[bucket]:
        return []
    at = sum(count > 0 for count in laid.rows[:bucket])
    with opened(laid.path) as stream:
        return [pq.ParquetFile(stream).read_row_group(at)]


def _summed(table: Any, percentile: float, begin_ms: int) -> tuple[Any, int]:
    """Returns the loads of the partitions of a table of samples, and how many samples they are of."""
    topics = table["topic"].combine_chunks().dictionary_encode()
    topic, number = topics.indices.to_numpy(), table["partition"].to_numpy()
    time = table["time_ms"].to_numpy()
    size, end = table["size_bytes"].to_numpy(), table["end_offset"].to_numpy()
    order = np.lexsort((np.nan_to_num(size, nan=-1.0), time, number, topic))
    topic, number, time = topic[order], number[order], time[order]
    same = (topic[1:] == topic[:-1]) & (number[1:] == number[:-1])
    last: Any = np.append(~(same & (time[1:] == time[:-1])), True)[: len(order)]  # the same sample twice counts once
    kept = order[(time >= begin_ms) & last]
    topic, number = topics.indices.to_numpy()[kept], table["partition"].to_numpy()[kept]
    begins: Any = np.append(True, (topic[1:] != topic[:-1]) | (number[1:] != number[:-1]))[: len(kept)]
    group = np.cumsum(begins) - 1
    count = int(begins.sum())
    time, size, end = table["time_ms"].to_numpy()[kept], size[kept], end[kept]
    entering = table["bytes_in_per_s"].to_numpy()[kept]
    grown = _rates(begins, time, size, table["start_offset"].to_numpy()[kept], end)
    of = partial(percentiles, group, count=count, percentile=percentile)
    bounds: Any = np.append(np.flatnonzero(begins), len(kept))
    found = pa.table(
        [
            topics.dictionary.take(pa.array(topic[bounds[:-1]])),
            pa.array(number[bounds[:-1]]),
            _known(of(values=size), pa.int64()),
            _known(of(values=np.where(np.isnan(entering), grown, entering)), pa.float64()),
            _known(of(values=table["bytes_out_per_s"].to_numpy()[kept]), pa.float64()),
            pa.array(np.diff(bounds).astype(np.int32)),
            pa.array(time[bounds[:-1]]),
            pa.array(time[bounds[1:] - 1]),
        ],
        schema=LOADS,
    )
    return found, len(kept)


def _rates(begins: Any, time: Any, size: Floats, start: Floats, end: Floats) -> Floats:
    """Returns bytes a second since the sample before: the offsets' growth times the mean size of a record."""
    rates: Floats = np.full(len(time), np.nan)
    if len(time) < 2:
        return rates
    seconds = np.diff(time) / 1000.0
    grown, kept = np.diff(end), (end - start)[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(kept > 0, size[1:] / kept, np.where(grown == 0, 0.0, np.nan))
        found = grown * mean / seconds
    found[begins[1:] | ~((grown >= 0) & (seconds > 0))] = np.nan
    rates[1:] = found
    return rates


def _known(values: Floats, of_type: Any) -> Any:
    """Returns an Arrow array with null for NaN."""
    missing = np.isnan(values)
    filled = np.where(missing, 0.0, values)
    return pa.array(filled.astype(np.int64) if of_type == pa.int64() else filled, of_type, mask=missing)
