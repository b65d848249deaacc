"""Percentiles of loads over weeks, without Spark: by tasks that are called one after the other."""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra pipeline is not installed")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.inputs import BadInput
from pipeline.load_history import Summed, sum_up
from pipeline.merge import Workers
from pipeline.storage import NothingToRead

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
BEGIN_MS = 1_795_000_000_000
HEAD = "topic,partition,broker,log_dir,is_future,size_bytes,offset_lag,is_leader,start_offset,end_offset,time_ms"


def workers(slots: int = 3) -> Workers:
    return Workers(lambda function, values, phase=None: [function(value) for value in values], slots)


def summed(history: list[Path], out: Path, percentile: float = 95, window_ms: int = 14 * DAY_MS) -> Summed:
    return sum_up(workers(), list(map(str, history)), str(out), percentile, window_ms)


def rows_of(out: Path) -> dict[tuple[str, int], dict[str, Any]]:
    found = pq.read_table(out).to_pylist()
    rows = {(row["topic"], row["partition"]): row for row in found}
    assert len(rows) == len(found)
    return rows


def run_of(*rows: str) -> str:
    return "\n".join((HEAD, *rows)) + "\n"


def test_two_runs_give_a_rate_and_leaders_alone_count(tmp_path: Path) -> None:
    """The second run is 100 s later; the log grew by 10 records of 50 bytes."""
    first, second = tmp_path / "1.csv", tmp_path / "2.csv"
    first.write_text(run_of(f"a,0,1,/d,false,1000,0,true,0,20,{BEGIN_MS}", f"a,0,2,/d,false,9000,0,false,,,{BEGIN_MS}"))
    second.write_text(
        run_of(
            f"a,0,1,/d,false,1500,0,true,0,30,{BEGIN_MS + 100_000}",
            f"a,0,1,/e,true,700000,0,true,0,30,{BEGIN_MS + 100_000}",
            f"b,1,2,/d,false,7,0,true,0,0,{BEGIN_MS + 100_000}",
        )
    )
    assert summed([tmp_path], tmp_path / "out.parquet") == (
        2,
        3,
        2,
        BEGIN_MS + 100_000 - 14 * DAY_MS,
        BEGIN_MS + 100_000,
    )
    found = rows_of(tmp_path / "out.parquet")
    a, b = found["a", 0], found["b", 1]
    assert (a["size_bytes"], a["bytes_in_per_s"], a["bytes_out_per_s"], a["samples"]) == (1500, 5.0, None, 2)
    assert (a["first_ms"], a["last_ms"]) == (BEGIN_MS, BEGIN_MS + 100_000)
    assert (b["size_bytes"], b["bytes_in_per_s"], b["samples"]) == (7, None, 1)
    assert [path.name for path in tmp_path.iterdir() if "unfinished" in path.name] == []


@pytest.mark.parametrize("percentile", [1, 50, 95, 100])
def test_percentiles_equal_those_of_sorted_lists(tmp_path: Path, percentile: float) -> None:
    """Random samples in all three forms, in any order, some of them twice."""
    rng = random.Random(7)
    values: dict[tuple[str, int], dict[int, tuple[int, float | None]]] = defaultdict(dict)
    rows = []
    for _ in range(1_500):
        key = (rng.choice(("a", "b", "c-c")), rng.randrange(4))
        time = BEGIN_MS + rng.randrange(20 * 24) * HOUR_MS
        if time not in values[key]:
            values[key][time] = (rng.randrange(1 << 40), rng.choice((None, rng.random() * 1e6)))
        size, rate = values[key][time]
        row = {"topic": key[0], "partition": key[1], "time_ms": time, "size_bytes": size, "bytes_out_per_s": rate}
        rows.append(row)
    rng.shuffle(rows)
    pq.write_table(pa.Table.from_pylist(rows[:500]), tmp_path / "one.parquet")
    (tmp_path / "two.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[500:1000]))
    lines = [",".join("" if value is None else str(value) for value in row.values()) for row in rows[1000:]]
    (tmp_path / "three.csv").write_text("\n".join((",".join(rows[0]), *lines)) + "\n")
    out = tmp_path / "out" / "loads.parquet"
    summed([tmp_path], out, percentile)
    newest = max(time for each in values.values() for time in each)
    found = rows_of(out)
    assert found.keys() == values.keys()
    for key, each in values.items():
        inside = {time: value for time, value in each.items() if time >= newest - 14 * DAY_MS}
        row = found[key]
        assert row["samples"] == len(inside)
        assert row["size_bytes"] == nearest([size for size, _ in inside.values()], percentile)
        assert row["bytes_out_per_s"] == nearest([rate for _, rate in inside.values() if rate is not None], percentile)


def nearest(values: list[Any], percentile: float) -> Any:
    return sorted(values)[max(math.ceil(len(values) * percentile / 100), 1) - 1]


def test_plans_read_the_result(tmp_path: Path) -> None:
    from pipeline.assignment_file import read_assignment
    from pipeline.loads_file import read_loads

    moves = {"version": 1, "partitions": [{"topic": "a", "partition": 0, "replicas": [1]}]}
    (tmp_path / "now.json").write_text(json.dumps(moves))
    table = read_assignment(tmp_path / "now.json").partitions
    (tmp_path / "own.csv").write_text(f"topic,partition,time_ms,size_bytes,bytes_in_per_s\na,0,{BEGIN_MS},5,2.5\n")
    summed([tmp_path / "own.csv"], tmp_path / "out.parquet")
    loads = read_loads(table, tmp_path / "out.parquet")
    assert (int(loads.size_bytes[0]), float(loads.bytes_in_per_s[0])) == (5, 2.5)
    assert np.isnan(loads.bytes_out_per_s[0])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("topic,partition,size_bytes\na,0,5\n", "it has no column time_ms"),
        ("topic,partition,time_ms\na,0,5\n", "it has no column of loads"),
        ("topic,partition,time_ms,size_bytes\na,0,5,7\na,1,5,-7\n", "row 2: size_bytes = -7.0 is no number"),
        ("topic,partition,time_ms,size_bytes\na,,5,7\n", "row 1: partition = None"),
        ("topic,partition,time_ms,size_bytes\na,0,soon,7\n", "cannot be read: "),
        ("topic,partition,time_ms,size_bytes\na,0\n", "cannot be read: "),
        ("", "cannot be read: "),
    ],
)
def test_a_wrong_file_is_named_and_nothing_is_left(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "own.csv").write_text(content)
    with pytest.raises(BadInput, match=r"own\.csv") as error:
        summed([tmp_path / "own.csv"], tmp_path / "out.parquet")
    assert said in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["own.csv"]


def test_no_history_is_told(tmp_path: Path) -> None:
    with pytest.raises(NothingToRead, match="there are no loads in"):
        summed([tmp_path], tmp_path / "out.parquet")


def test_no_rate_reaches_from_one_partition_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text(
        run_of(
            f"a,0,1,/d,false,1000,0,true,0,20,{BEGIN_MS}",
            f"a,3,1,/d,false,1000,0,true,0,90,{BEGIN_MS + 100_000}",  # in the same bucket
        )
    )
    summed([tmp_path / "1.csv"], tmp_path / "out.parquet")

    assert [row["bytes_in_per_s"] for row in rows_of(tmp_path / "out.parquet").values()] == [None, None]


def test_a_time_longer_than_the_clock_takes_all_samples(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text(run_of(f"a,0,1,/d,false,1000,0,true,0,20,{BEGIN_MS}"))

    found = summed([tmp_path / "1.csv"], tmp_path / "out.parquet", window_ms=1_000_000 * DAY_MS)

    assert (found.begin_ms, found.samples) == (0, 1)
