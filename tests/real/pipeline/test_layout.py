"""The layout of a bronze folder: buckets that hold whole histories, and a manifest without which nothing is read."""

from __future__ import annotations

import random
from pathlib import Path
from zlib import crc32

import pytest

from tests.real.pipeline.logs import Line

pa = pytest.importorskip("pyarrow", reason="the extra pipeline is not installed")
pytest.importorskip("pyspark", reason="the extra pipeline is not installed")

import msgspec  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from pipeline.layout import (  # noqa: E402
    BUCKETS,
    MANIFEST,
    REST,
    VERSION,
    Manifest,
    RowsFile,
    bucket_tables,
    bucketed,
    buckets,
    manifest_of,
)
from pipeline.schema import COLUMNS  # noqa: E402
from pipeline.storage import NothingToRead  # noqa: E402

EARLIER = {("orders", 0, None): 0, ("orders", 1, None): 5, (None, None, 1001): 12, ("orders", None, None): 11}
"""Buckets that folders were written with: changing one means another version of the layout."""


def bucket_of(topic: str | None, partition: int | None, region: int | None) -> int:
    """Returns the bucket of one history, by whole numbers of Python."""
    if topic is None and region is None:
        return REST
    word = 0xFFFFFFFF
    mixed = 0 if topic is None else crc32(topic.encode())
    mixed ^= ((-1 if partition is None else partition) + 1) * 0x9E3779B1 & word
    mixed ^= ((-1 if region is None else region) + 1) * 0x85EBCA6B & word
    mixed ^= mixed >> 15
    return (mixed * 0xC2B2AE35 & word) >> 28


def some(count: int) -> list[Line]:
    """Makes rows of partitions, regions and brokers, in no order."""
    chosen = random.Random(7)
    head = {"v": 1, "cluster": "c", "ctl_id": 1, "ctl_epoch": 1, "ts_us": 1, "mono_us": 1, "kind": "LEADER"}
    about: list[Line] = [
        *({"topic": topic, "partition": number} for topic in ("a", "topic-Ω") for number in range(20)),
        *({"region": number} for number in range(2**40, 2**40 + 20)), {"broker": 1}, {"topic": "a"},
    ]  # fmt: skip
    rows = [head | chosen.choice(about) | {"seq": seq, "isr0": [seq]} for seq in range(1, count + 1)]
    chosen.shuffle(rows)
    return rows


def folder_of(folder: Path, *files: list[Line]) -> str:
    """Writes a file for each list of rows, a row group for each bucket, and the manifest."""
    named = []
    for number, rows in enumerate(files):
        table, groups = bucketed(pa.Table.from_pylist(rows, schema=COLUMNS))
        with pq.ParquetWriter(folder / f"{number}.parquet", COLUMNS) as writer:
            at = 0
            for _, size in groups:
                writer.write_table(table.slice(at, size))
                at += size
        named.append(RowsFile(f"{number}.parquet", groups))
    made = Manifest(VERSION, named, "", "", [], {}, sum(map(len, files)), 0, 0)
    (folder / MANIFEST).write_bytes(msgspec.json.encode(made))
    return str(folder)


def test_a_history_has_the_bucket_that_it_always_had() -> None:
    rows = [dict(zip(("topic", "partition", "region"), history, strict=True)) for history in EARLIER]
    found = buckets(pa.Table.from_pylist([*rows, {}], schema=COLUMNS)).tolist()
    assert found == [*EARLIER.values(), REST]


def test_an_array_of_buckets_is_that_of_single_rows() -> None:
    rows = some(500)
    one_by_one = [bucket_of(row.get("topic"), row.get("partition"), row.get("region")) for row in rows]
    assert buckets(pa.Table.from_pylist(rows, schema=COLUMNS)).tolist() == one_by_one
    assert set(one_by_one) == set(range(BUCKETS + 1))


def test_a_bucket_has_whole_histories_of_all_files_in_order(tmp_path: Path) -> None:
    rows = some(900)
    folder = folder_of(tmp_path, rows[:300], rows[300:310], rows[310:])
    found = []
    for bucket in range(BUCKETS + 1):
        table = bucket_tables(folder, bucket, ["seq", "topic", "partition", "region", "isr0"])
        keys = [
            (row["topic"] or "", -1 if row["partition"] is None else row["partition"], row["region"] or -1, row["seq"])
            for row in table.to_pylist()
        ]
        assert keys == sorted(keys)
        assert all(bucket_of(row["topic"], row["partition"], row["region"]) == bucket for row in table.to_pylist())
        assert table["isr0"].to_pylist() == [[row["seq"]] for row in table.to_pylist()]
        found += table["seq"].to_pylist()
    assert sorted(found) == [*range(1, 901)]


def test_an_empty_folder_has_empty_buckets(tmp_path: Path) -> None:
    table = bucket_tables(folder_of(tmp_path), 3, ["seq", "kind"])
    assert (table.num_rows, table.column_names) == (0, ["seq", "kind"])


def test_a_folder_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, some(40))
    manifest = (tmp_path / MANIFEST).read_text()
    for text, why in [
        (manifest[:-9], "manifest.json cannot be read"),
        (manifest.replace(f'"version":{VERSION}', '"version":1'), f"has layout 1, and this release reads {VERSION}"),
    ]:
        (tmp_path / MANIFEST).write_text(text)
        with pytest.raises(NothingToRead, match=why):
            manifest_of(folder)
    (tmp_path / MANIFEST).unlink()
    with pytest.raises(NothingToRead, match="was not made by 'regent pipeline ingest', or that did not end"):
        bucket_tables(folder, 0, ["seq"])


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, some(40))
    (tmp_path / "0.parquet").unlink()
    with pytest.raises(NothingToRead, match=r"0\.parquet cannot be read"):
        bucket_tables(folder, bucket_of("a", 1, None), ["seq"])
