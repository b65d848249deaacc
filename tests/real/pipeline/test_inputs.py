"""Input files of planning and reports become arrays; a torn or wrong one is refused by its line and field."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from state_machines.journal.snapshot import FORMAT, BrokerLine, Header, Line, PartitionsLine, Trailer

np = pytest.importorskip("numpy", reason="NumPy is not installed")

from pipeline.assignment_file import read_assignment  # noqa: E402
from pipeline.inputs import BadInput, Loads  # noqa: E402
from pipeline.loads_file import read_loads  # noqa: E402
from pipeline.snapshot_file import read_snapshot  # noqa: E402

HEADER = Header(FORMAT, 1, "c", 1000, 5, 17, 1_000_000, "command")
BROKERS = [
    BrokerLine(1, True, broker_epoch=40, rack="a", session_ms=18_000),
    BrokerLine(2, True, broker_epoch=41, rack="b"),
    BrokerLine(7, False),
]
ORDERS = PartitionsLine(
    "orders",
    [1, 0],
    [[2, 7, 1], [1, 2]],
    [2, 1],
    [4, 3],
    [9, 8],
    [[2], [1, 2]],
    topic_id="AAAAAAAAAAAAAAAAAAAAAQ",
    min_isr=2,
    adding=[[7], []],
    removing=[[1], []],
)
EVENTS = PartitionsLine("events", [0], [[2]], [-1], [-1], [-1], [[]])
GONE = PartitionsLine("gone", [0], [[2]], [-1], [0], [1], [[2]], deleting=True)
BODY: list[Line] = [*BROKERS, ORDERS, EVENTS, GONE]
END = Trailer(7, 4, 3, 19, 1_200_000)


def write(path: Path, lines: Sequence[Line], *, zipped: bool = True) -> Path:
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    path.write_bytes(gzip.compress(data) if zipped else data)
    return path


@pytest.mark.parametrize("zipped", [True, False])
def test_a_snapshot_becomes_arrays(tmp_path: Path, zipped: bool) -> None:
    found = read_snapshot(write(tmp_path / "s", [HEADER, *BODY, END], zipped=zipped))
    assert (found.cluster, found.ctl_epoch, found.seq_first, found.seq_last, found.ts_us) == ("c", 5, 17, 19, 1_000_000)
    brokers, partitions = found.brokers, found.partitions
    assert brokers.ids.tolist() == [1, 2, 7]
    assert (brokers.racks, brokers.rack.tolist(), brokers.live.tolist()) == (
        ("a", "b"),
        [0, 1, -1],
        [True, True, False],
    )
    assert (brokers.epochs.tolist(), brokers.session_ms.tolist()) == ([40, 41, -1], [18_000, -1, -1])
    assert [partitions.name(i) for i in range(len(partitions))] == ["events-0", "orders-0", "orders-1"]
    assert partitions.topic_ids == (None, "AAAAAAAAAAAAAAAAAAAAAQ")
    assert partitions.replicas.dtype == np.int32
    assert partitions.replicas.tolist() == [[2, -1, -1], [1, 2, -1], [2, 7, 1]]
    assert partitions.adding.tolist() == [[False] * 3, [False] * 3, [False, True, False]]
    assert partitions.removing.tolist() == [[False] * 3, [False] * 3, [False, False, True]]
    assert partitions.isr.tolist() == [[-1, -1], [1, 2], [2, -1]]
    assert (partitions.leader.tolist(), partitions.min_isr.tolist()) == ([-1, 1, 2], [-1, 2, 2])
    assert (partitions.leader_epoch.tolist(), partitions.partition_epoch.tolist()) == ([-1, 3, 4], [-1, 8, 9])
    assert brokers.index_of(partitions.replicas).tolist() == [[1, -1, -1], [0, 1, -1], [1, 2, 0]]
    assert partitions.rows_of(["orders", "orders", "none"], [1, 2, 0]).tolist() == [2, -1, -1]


def test_fields_and_lines_of_later_versions_are_passed_over(tmp_path: Path) -> None:
    data = [json.loads(msgspec.json.encode(line)) for line in [HEADER, *BODY, END]]
    data[3]["new"] = {"a": [1]}
    data.insert(2, {"kind": "CLOUD", "broker": "one"})
    data[-1]["lines"] += 1
    path = tmp_path / "later.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in data))
    assert len(read_snapshot(path).partitions) == 3


def test_a_torn_snapshot_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.jsonl", [HEADER, *BODY, END], zipped=False).read_bytes()
    zipped = gzip.compress(whole)
    torn = tmp_path / "torn.jsonl"
    for data in (whole, zipped):
        for size in range(0, len(data) - 1, 5):
            torn.write_bytes(data[:size])
            with pytest.raises(BadInput, match=str(torn)):
                read_snapshot(torn)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([HEADER, *BODY, msgspec.structs.replace(END, partitions=5)], "partitions = 5 in its trailer, 4 in it"),
        ([HEADER, *BODY[1:], END], "lines = 7 in its trailer, 6 in it"),
        ([HEADER, *BODY, END, EVENTS], "s:9 follows the trailer"),
        ([msgspec.structs.replace(HEADER, v=2), *BODY, END], "s:1: v = 2 is not known, 1 is"),
        ([msgspec.structs.replace(HEADER, format="x"), *BODY, END], "s:1: format is not"),
        ([ORDERS, END], "s:1: format is not"),
        ([HEADER, HEADER, END], "s:2 is a second header"),
        ([HEADER, msgspec.structs.replace(ORDERS, leader=[1]), END], "s:2: leader has 1 items, partition has 2"),
        ([HEADER, msgspec.structs.replace(ORDERS, leader=["x", 1]), END], r"s:2: .*leader\[0\]"),
        ([HEADER, EVENTS, EVENTS, Trailer(3, 2, 0, 1, 1)], "partition events-0 twice"),
        ([HEADER, msgspec.structs.replace(EVENTS, leader=[2**40]), Trailer(2, 1, 0, 1, 1)], "does not fit 32 bits"),
        ([HEADER, BrokerLine(1, True, session_ms=2**40), Trailer(2, 0, 1, 1, 1)], "does not fit 32 bits"),
    ],
)
def test_a_wrong_snapshot_is_refused_by_its_line_and_field(tmp_path: Path, lines: list[Line], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        read_snapshot(write(tmp_path / "s", lines))


def test_an_empty_cluster_is_a_snapshot(tmp_path: Path) -> None:
    found = read_snapshot(write(tmp_path / "s", [HEADER, Trailer(1, 0, 0, 17, 1)]))
    assert (len(found.partitions), len(found.brokers)) == (0, 0)
    assert found.partitions.rows_of(["a"], [0]).tolist() == [-1]
    assert found.brokers.index_of(np.array([3], dtype=np.int32)).tolist() == [-1]


# -- assignments


def items(*of: tuple[str, Any, Any]) -> str:
    return json.dumps({"version": 1, "partitions": [dict(zip(("topic", "partition", "replicas"), i)) for i in of]})  # noqa: B905


def test_an_assignment_of_the_stock_tool_becomes_arrays(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(items(("b", 1, [3, 1]), ("b", 0, [2]), ("a", 0, [9, 3, 1])))
    found = read_assignment(path)
    assert found.partitions.topics == ("a", "b")
    assert found.partitions.replicas.tolist() == [[9, 3, 1], [2, -1, -1], [3, 1, -1]]
    assert (found.brokers.ids.tolist(), found.brokers.live.tolist()) == ([1, 2, 3, 9], [True] * 4)
    assert found.partitions.leader.tolist() == [-1, -1, -1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "give the form"),
        (items(("a", "x", [1])), r"partitions\[0\]\.partition"),
        (items(("a", 0, [])), r"partitions\[0\] \(a-0\): replicas = \[\]"),
        (items(("a", 0, [1, 1])), "names a broker twice"),
        (items(("a", -1, [1])), "partition = -1"),
        (items(("a", 0, [1]), ("a", 0, [2])), "a-0 is there twice"),
        ('{"version": 2, "partitions": []}', "version = 2"),
    ],
)
def test_a_wrong_assignment_is_refused_by_its_place(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=told):
        read_assignment(path)


@pytest.mark.parametrize("deleting", [False, True])
def test_of_a_topic_that_was_created_anew_while_it_was_read_the_later_one_counts(
    tmp_path: Path, deleting: bool
) -> None:
    anew = PartitionsLine(
        "orders", [0], [[2]], [2], [0], [0], [[2]], topic_id="AAAAAAAAAAAAAAAAAAAAAg", deleting=deleting
    )
    found = read_snapshot(write(tmp_path / "s", [HEADER, *BODY, anew, Trailer(8, 5, 3, 19, 1_200_000)])).partitions
    names = [found.name(row) for row in range(len(found))]
    assert names == (["events-0"] if deleting else ["events-0", "orders-0"])
    assert found.leader.tolist() == ([-1] if deleting else [-1, 2])
    assert found.topic_ids[1:] == (() if deleting else ("AAAAAAAAAAAAAAAAAAAAAg",))


# -- loads

THREE = [HEADER, *BODY, END]


def loads(tmp_path: Path, text: str, earlier: str | None = None) -> Loads:
    table = read_snapshot(write(tmp_path / "s", THREE)).partitions
    (tmp_path / "now").write_text(text)
    if earlier is None:
        return read_loads(table, tmp_path / "now")
    (tmp_path / "before").write_text(earlier)
    return read_loads(table, tmp_path / "now", tmp_path / "before")


def test_own_loads_are_read_and_missing_ones_are_unknown(tmp_path: Path) -> None:
    found = loads(
        tmp_path,
        "topic,partition,size_bytes,other,bytes_in_per_s\norders,1,700,x,2.5\nevents,0,,y,\nlost,0,1,z,1\n",
    )
    assert found.size_bytes.tolist() == [-1, -1, 700]
    assert np.nan_to_num(found.bytes_in_per_s, nan=-1).tolist() == [-1, -1, 2.5]
    assert np.isnan(found.bytes_out_per_s).all()
    assert found.unknown == 1


def test_loads_from_json_lines(tmp_path: Path) -> None:
    found = loads(tmp_path, '{"topic":"orders","partition":0,"size_bytes":5,"bytes_out_per_s":1e3,"more":[1]}\n')
    assert (found.size_bytes.tolist(), found.bytes_out_per_s.tolist()[1]) == ([-1, 5, -1], 1000.0)


def test_loads_from_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = read_snapshot(write(tmp_path / "s", THREE)).partitions
    columns = {"topic": ["orders", "events"], "partition": [0, 0], "bytes_in_per_s": [1.5, None], "x": [1, 2]}
    parquet.write_table(pa.table(columns), tmp_path / "loads.parquet")
    found = read_loads(table, tmp_path / "loads.parquet")
    assert np.nan_to_num(found.bytes_in_per_s, nan=-1).tolist() == [-1, 1.5, -1]
    dated = columns | {"bytes_in_per_s": [date(2026, 1, 1), None]}
    parquet.write_table(pa.table(dated), tmp_path / "loads.parquet")
    with pytest.raises(BadInput, match=r"loads\.parquet:1: bytes_in_per_s = datetime\.date\(2026, 1, 1\) is no number"):
        read_loads(table, tmp_path / "loads.parquet")


OWN = "topic,partition,broker,is_future,size_bytes,start_offset,end_offset,time_ms\n"


def test_two_files_of_offsets_give_rates(tmp_path: Path) -> None:
    before = OWN + "orders,0,1,false,1000,0,100,10000\norders,0,2,false,990,,,\norders,1,2,false,50,5,5,10000\n"
    now = OWN + (
        "orders,0,1,false,2000,100,300,20000\norders,0,2,false,1990,,,\norders,0,2,true,9999,,,\n"
        "orders,1,2,false,50,5,5,20000\nevents,0,2,false,7,0,1,20000\n"
    )
    found = loads(tmp_path, now, before)
    assert found.size_bytes.tolist() == [7, 2000, 50]
    # 200 records in 10 s, of 10 bytes each: 200 records in 2,000 bytes.
    assert np.nan_to_num(found.bytes_in_per_s, nan=-1).tolist() == [-1, 200.0, 0.0]


def test_rates_need_an_earlier_file_with_offsets(tmp_path: Path) -> None:
    row = "orders,0,1,false,1000,0,100,10000\n"
    with pytest.raises(BadInput, match="is not older than"):
        loads(tmp_path, OWN + row, OWN + row)
    with pytest.raises(BadInput, match="rates need two files"):
        loads(tmp_path, OWN + row, "topic,partition,size_bytes\norders,0,1\n")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("topic,size_bytes\na,1\n", "now:1: the header has no partition"),
        ("topic,partition,size_bytes\norders,0,many\n", "now:2: size_bytes = 'many'"),
        ("topic,partition,size_bytes\norders,0,-1\n", "now:2: size_bytes = '-1'"),
        ("topic,partition,size_bytes\norders,0,nan\n", "now:2: size_bytes = 'nan'"),
        ("topic,partition,size_bytes\norders,1.5,1\n", "now:2: partition = '1.5'"),
        ("topic,partition,size_bytes\norders,,1\n", "now:2: partition is missing"),
        ("topic,partition,size_bytes\n,0,1\n", "now:2: topic = ''"),
        ("topic,partition,size_bytes\norders,0\n", "now:2: its columns are not those of the header"),
        ("topic,partition,bytes\norders,0,1\n", "its columns are partition, topic"),
        ('{"topic":"orders","partition":0,"size_bytes":"x"}\n', "now:1: size_bytes = 'x'"),
        ("topic,partition,size_bytes\norders,0," + "1" * 200_000 + "\n", "now is no CSV .*field larger than"),
        ('{"topic":"orders","partition":0,"size_bytes":1' + "0" * 400 + "}\n", "now:1: "),
        ('{"topic":"orders",\n', "now:1: .*one JSON object a line"),
        ("PAR1xxxxxxxx", "no whole Parquet file"),
    ],
)
def test_wrong_loads_are_refused_by_line_field_and_value(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        loads(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    table = read_snapshot(write(tmp_path / "s", THREE)).partitions
    for read in (read_snapshot, read_assignment, lambda path: read_loads(table, path)):
        with pytest.raises(BadInput, match="absent cannot be read: No such file"):
            read(tmp_path / "absent")
