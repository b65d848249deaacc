"""Measures how fast a report is made: ``python -m benchmarks.report_speed``.

It makes a merged journal first, as Parquet: brokers die and return, one after the other; each death moves the leaders
that it had, and they return. Two fifths of the rows are requests, as in journals of real brokers. Seconds count from
the start of the job, with Spark up. It needs the extra ``pipeline`` and Java 17, and prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import procfs
from pipeline.layout import GAPS, MANIFEST, ROWS, VERSION, Manifest, RowsFile, bucketed
from pipeline.merge import Workers
from pipeline.report.asking import Wanted
from pipeline.report.files import Files
from pipeline.report.job import Engine, on_spark, report, source
from pipeline.report.outputs import aside, write
from pipeline.report.result import Result
from pipeline.schema import COLUMNS, GAP_COLUMNS

BROKERS: Final = 50
TOPIC_PARTITIONS: Final = 50
ROUNDS_OF_A_FILE: Final = 50
ROUND_US: Final = 600_000_000
"""A broker dies every ten minutes."""
START_US: Final = 1_760_000_000_000_000
SESSION_MS: Final = 18_000
REPORTS: Final = 2
"""The first one runs on a cold JVM."""


def main() -> None:
    """Makes the journal and reports it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report_speed", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=200_000)
    parser.add_argument("--master", default="local[2]", help="of Spark, or none: in this process alone")
    parser.add_argument("--memory", default="4g", help="of the driver")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="regent-report-"))
    try:
        rows = make(folder / "merged", chosen.rows, chosen.partitions)
        print(f"{rows} rows are made", file=sys.stderr, flush=True)
        print(json.dumps(measured(folder, chosen.master, chosen.memory) | {"rows": rows}, indent=2))
    finally:
        shutil.rmtree(folder)


def measured(folder: Path, master: str, memory: str) -> dict[str, Any]:
    """Returns the seconds, the CPU seconds of all processes, and the result of a report."""
    if master == "none":
        return _reports(folder, Engine(Workers(lambda call, of, _=None: [call(each) for each in of], 1), _shared))
    from pipeline.session import start

    spark = start(master, {"spark.driver.memory": memory})
    try:
        return _reports(folder, on_spark(spark))
    finally:
        spark.stop()


def _shared(value: Any) -> Any:
    return SimpleNamespace(value=value, destroy=lambda: None)


def _reports(folder: Path, engine: Engine) -> dict[str, Any]:
    each = [_reported(folder, engine) for _ in range(REPORTS)]
    found = each[-1][2]
    return {
        "reportS": [seconds for seconds, _, _ in each],
        "reportCpuS": [cpu_s for _, cpu_s, _ in each],
        "stops": len(found.stops),
        "topics": len(found.topics),
        "intervals": found.cost.intervals,
        "pageBytes": (folder / "report" / "report.html").stat().st_size,
    }


def _reported(folder: Path, engine: Engine) -> tuple[float, float, Result]:
    """Makes a report; returns seconds, CPU seconds and the result."""
    (folder / "report").mkdir(exist_ok=True)
    began, cpu_began = time.monotonic(), _cpu_s()
    intervals = aside(str(folder / "report"))
    found = report(engine, source(str(folder / "merged"), None), Wanted(session_ms=SESSION_MS), Files(), intervals)
    write(found, str(folder / "report"), intervals)
    return round(time.monotonic() - began, 2), round(_cpu_s() - cpu_began, 2), found


def _cpu_s() -> float:
    """Returns the CPU seconds of this process and all below it that still live."""
    pids, total = [os.getpid()], 0.0
    for pid in pids:
        pids += procfs.children(pid)
        total += procfs.cpu_s(pid)
    return total


def make(folder: Path, rows: int, partitions: int) -> int:
    """Makes a bronze folder of about so many rows; returns how many there are."""
    (folder / ROWS).mkdir(parents=True)
    led = partitions // BROKERS
    rounds = max(1, rows // (5 * led))
    files, total = [], 0
    for number, first in enumerate(range(0, rounds, ROUNDS_OF_A_FILE)):
        table, groups = bucketed(_term(number + 1, range(first, min(first + ROUNDS_OF_A_FILE, rounds)), led))
        path = f"{ROWS}/{number:05d}.parquet"
        at = 0
        with pq.ParquetWriter(folder / path, COLUMNS, compression="zstd") as writer:
            for _, count in groups:
                writer.write_table(table.slice(at, count), row_group_size=count)
                at += count
        files.append(RowsFile(path, groups))
        total += at
    pq.write_table(GAP_COLUMNS.empty_table(), folder / f"{GAPS}.parquet")
    whole = Manifest(VERSION, files, "", f"{GAPS}.parquet", [], {}, total, 0, 0)
    (folder / MANIFEST).write_bytes(msgspec.json.encode(whole))
    return total


def _term(epoch: int, rounds: range, led: int) -> pa.Table:
    """Makes a term of several rounds."""
    begin = _rows(1, rounds[0] * ROUND_US, kind=["CTL_ELECTED"])
    up = _rows(BROKERS, rounds[0] * ROUND_US, kind=["BROKER_UP"] * BROKERS, broker=np.arange(BROKERS))
    parts = [begin, up, _rows(1, rounds[0] * ROUND_US, kind=["CTL_PHASE"])]
    for number in rounds:
        parts += _round(number, led)
    table = pa.concat_tables(parts)
    numbers, fixed = np.arange(1, len(table) + 1), {"cluster": "made", "v": 1, "ctl_id": 1, "ctl_epoch": epoch}
    for name, value in (("seq", numbers), *((name, pa.repeat(value, len(table))) for name, value in fixed.items())):
        at = COLUMNS.get_field_index(name)
        table = table.set_column(at, COLUMNS.field(at), pa.array(value).cast(COLUMNS.field(at).type))
    return table


def _round(number: int, led: int) -> list[pa.Table]:
    """Makes the death of a broker and its return: three rows for each partition that it led, and requests."""
    broker, at = number % BROKERS, number * ROUND_US
    other, third = (broker + 1) % BROKERS, (broker + 2) % BROKERS
    spots: Any = broker * led + np.arange(led)
    full, short, again = [broker, other, third], [other, third], [other, third, broker]
    died, back, elected = at + 1_000_000, at + 60_000_000, at + 300_000_000
    of = {"replicas": full, "spots": spots}
    return [
        _rows(1, died, kind=["BROKER_DOWN"], broker=[broker], t_detect=[died]),
        _change(led, died, "LEADER", "broker_failure", (broker, other), (full, short), **of),
        _requests(led, died + 30_000, other),
        _rows(1, back, kind=["BROKER_UP"], broker=[broker]),
        _change(led, back, "ISR", "isr_by_leader", (other, other), (short, again), **of),
        _change(led, elected, "LEADER", "election", (other, broker), (again, again), **of),
        _requests(led, elected + 30_000, broker),
    ]


def _change(
    count: int, at: int, kind: str, reason: str, leaders: tuple[int, int], isrs: tuple[list[int], list[int]], **of: Any
) -> pa.Table:
    lists = {"isr0": isrs[0], "isr1": isrs[1], "replicas": of["replicas"]}
    return _rows(
        count,
        at + 20_000,
        kind=[kind] * count,
        topic=[f"topic-{spot // TOPIC_PARTITIONS:05d}" for spot in of["spots"].tolist()],
        partition=of["spots"] % TOPIC_PARTITIONS,
        reason=[reason] * count,
        leader0=np.full(count, leaders[0]),
        leader1=np.full(count, leaders[1]),
        t_detect=np.full(count, at),
        t_decide=np.full(count, at + 10_000),
        t_committed=np.full(count, at + 20_000),
        **{name: _repeated(members, count) for name, members in lists.items()},
    )


def _repeated(members: list[int], count: int) -> pa.Array:
    """Makes a column of equal lists."""
    offsets: Any = np.arange(0, len(members) * count + 1, len(members), dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(np.tile(np.array(members, np.int32), count)))


def _requests(count: int, at: int, leader: int) -> pa.Table:
    """Makes as many requests as changes: every tenth LeaderAndIsr to the new leader, others to any broker."""
    each = np.arange(count)
    to_leader = each % 10 == 0
    return _rows(
        count,
        at,
        kind=["RPC_BATCH"] * count,
        api=np.where(to_leader, "LEADER_AND_ISR", "UPDATE_METADATA").tolist(),
        broker=np.where(to_leader, leader, each % BROKERS),
        partitions=np.ones(count, np.int64),
        t_sent=at + each,
        t_acknowledged=at + each + 5_000,
    )


def _rows(count: int, at: int, **columns: Any) -> pa.Table:
    """Makes rows with these columns at a time; the others are null."""
    times = {"ts_us": np.full(count, START_US + at), "mono_us": np.full(count, at)}
    given = columns | times
    arrays = [
        _column(given[field.name], field.type) if field.name in given else pa.nulls(count, field.type)
        for field in COLUMNS
    ]
    return pa.Table.from_arrays(arrays, schema=COLUMNS)


def _column(values: Any, wanted: pa.DataType) -> pa.Array:
    return values.cast(wanted) if isinstance(values, pa.Array) else pa.array(values, wanted)


if __name__ == "__main__":
    main()
