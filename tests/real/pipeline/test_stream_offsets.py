"""Which bytes of which files a batch of a stream takes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource

from pipeline.stream import offsets
from pipeline.stream.batch import PART_BYTES, STREAMED, batches, parted, parts, read
from pipeline.stream.offsets import Offset, Slice, TooManyFiles, complete, following, slices
from pipeline.stream.source import RegentJournal
from pipeline.stream.topic import JournalTopic
from tests.real.pipeline.logs import sound, text
from tests.real.pipeline.stream_kit import as_table

NOW_S = 2_000_000_000.0


def made(folder: Path, name: str, content: str = "{}\n", age_s: float = 0) -> Path:
    """Writes a file that was changed ``age_s`` before now."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(content)
    os.utime(path, (NOW_S - age_s, NOW_S - age_s))
    return path


def names(folders: Sequence[Path], closed_after_s: float = 600) -> list[str]:
    return [Path(path).name for path in complete([str(folder) for folder in folders], NOW_S, closed_after_s)]


def test_the_file_that_a_daemon_writes_is_left_until_a_later_one_is_there_or_it_is_old(tmp_path: Path) -> None:
    made(tmp_path / "d1", "0000000001-000000000001.jsonl")
    made(tmp_path / "d1", "0000000001-000000000009.jsonl")
    made(tmp_path / "d2", "0000000002-000000000001.jsonl", age_s=599)

    assert names([tmp_path / "d1", tmp_path / "d2"]) == ["0000000001-000000000001.jsonl"]
    assert len(names([tmp_path / "d1", tmp_path / "d2"], 599)) == 2
    assert len(names([tmp_path / "d1", tmp_path / "d2"], 0)) == 3


def test_of_files_with_the_same_first_row_the_one_with_the_highest_number_is_the_last(tmp_path: Path) -> None:
    made(tmp_path, "0000000001-000000000001.jsonl")
    made(tmp_path, "0000000001-000000000001.10.jsonl")
    made(tmp_path, "0000000001-000000000001.9.jsonl")

    assert names([tmp_path]) == ["0000000001-000000000001.jsonl", "0000000001-000000000001.9.jsonl"]


def test_a_file_whose_last_line_has_no_end_may_be_a_copy_on_its_way_and_waits(tmp_path: Path) -> None:
    made(tmp_path, "0000000001-000000000001.jsonl", '{}\n{"v"')
    made(tmp_path, "0000000001-000000000009.jsonl")

    assert names([tmp_path]) == []
    made(tmp_path, "0000000001-000000000001.jsonl", '{}\n{"v"', age_s=600)
    assert names([tmp_path]) == ["0000000001-000000000001.jsonl"]


def test_an_empty_file_is_passed_over(tmp_path: Path) -> None:
    made(tmp_path, "0000000001-000000000001.jsonl", "")
    made(tmp_path, "0000000001-000000000009.jsonl", age_s=600)

    assert names([tmp_path]) == ["0000000001-000000000009.jsonl"]


def test_what_a_daemon_may_still_write_waits_and_is_named(tmp_path: Path) -> None:
    made(tmp_path, "0000000001-000000000001.jsonl")
    last = made(tmp_path, "0000000001-000000000009.jsonl")

    assert offsets.waiting([str(tmp_path)], NOW_S, 600) == [str(last)]
    assert offsets.waiting([str(tmp_path)], NOW_S, 0) == []


def test_files_with_other_names_are_complete_once_they_are_old(tmp_path: Path) -> None:
    made(tmp_path, "copy.jsonl", age_s=600)
    made(tmp_path, "other.jsonl")
    made(tmp_path, "_hidden.jsonl", age_s=600)

    assert names([tmp_path]) == ["copy.jsonl"]


def test_more_files_than_a_stream_keeps_account_of_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "FILES_MAX", 1)
    made(tmp_path, "0000000001-000000000001.jsonl")
    made(tmp_path, "0000000001-000000000009.jsonl")

    with pytest.raises(TooManyFiles, match=r"there are 2 files .* move those away that it has read"):
        names([tmp_path])


def test_batches_of_any_size_take_each_line_once_and_number_bad_ones_by_their_file(tmp_path: Path) -> None:
    lines = text(sound("c")).splitlines(keepends=True)
    path = made(tmp_path, "0000000001-000000000001.jsonl", "".join([*lines[:4], "bad\n", *lines[4:], "torn"]))
    for bytes_max in (1, 700, path.stat().st_size):
        files = complete([str(tmp_path)], NOW_S, 0)
        start: Offset = {}
        found: list[Any] = []
        while (end := following(start, files, bytes_max)) != start:
            [part] = slices(start, end)
            found += batches(part)
            start = end
        rows, bad = parted(as_table(found))

        assert rows["seq"].to_pylist() == [row["seq"] for row in sound("c")]
        assert bad["line"].to_pylist() == [5, len(lines) + 2]


def test_a_file_of_another_size_is_taken_again_from_its_start() -> None:
    start: Offset = {"a": [10, 10], "b": [4, 9], "gone": [7, 7]}

    end = following(start, {"a": 12, "b": 9}, None)

    assert end == {"a": [12, 12], "b": [9, 9]}
    assert slices(start, end) == [Slice("a", 0, 12), Slice("b", 4, 9)]
    assert following(end, {"a": 12, "b": 9}, None) is end


def test_a_file_that_is_shorter_is_taken_again_and_one_that_grew_within_the_bound_of_a_batch(tmp_path: Path) -> None:
    shorter = following({"a": [10, 10]}, {"a": 8}, None)
    assert slices({"a": [10, 10]}, shorter) == [Slice("a", 0, 8)]

    path = str(made(tmp_path, "0000000001-000000000001.jsonl", '{"": 1}\n' * 3))
    start: Offset = {path: [16, 16]}
    end = following(start, {path: 24}, 8)
    assert slices(start, end) == [Slice(path, 0, 8)]
    assert following(end, {path: 24}, None) == {path: [24, 24]}


def test_a_file_that_is_gone_before_it_was_read_is_named() -> None:
    [batch] = batches(Slice("/nowhere/0000000001-000000000001.jsonl", 0, 10))
    rows, bad = parted(as_table([batch]))

    assert len(rows) == 0
    [line] = bad.to_pylist()
    assert line["file"] == "/nowhere/0000000001-000000000001.jsonl"
    assert line["why"].startswith("it was removed before it was read")


@pytest.mark.parametrize("options", [{}, {"paths": "/a"}, {"paths": '"/a"'}, {"paths": "[1]"}])
def test_a_source_without_a_list_of_folders_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="needs a folder: load"):
        _ = RegentJournal(options).paths


def test_a_task_reads_several_small_files_and_a_large_one_alone(tmp_path: Path) -> None:
    sizes = [10, PART_BYTES - 10, 1, PART_BYTES + 1, 5]
    found = parts(Slice(str(number), 0, size) for number, size in enumerate(sizes))

    assert [[each.path for each in part.value] for part in found] == [["0", "1"], ["2"], ["3"], ["4"]]

    paths = [made(tmp_path, f"{number}.jsonl", text(sound("c")[number : number + 2])) for number in (0, 2)]
    [part] = parts(Slice(str(path), 0, path.stat().st_size) for path in paths)
    rows, _ = parted(as_table(list(read(part))))
    assert rows["seq"].to_pylist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("source", "name"),
    [(RegentJournal, "closed_after_s"), (RegentJournal, "batch_bytes_max"), (JournalTopic, "batch_rows_max")],
)
@pytest.mark.parametrize("value", ["", "-1", "1.5", "many"])
def test_an_option_that_is_no_whole_number_is_refused_by_name(source: type[DataSource], name: str, value: str) -> None:
    given = source({"path": "/journal", "bootstrap": "b:9092", "topic": "t", name: value})
    with pytest.raises(ValueError, match=rf"option {name} of regent_journal\w* is {value}: give a whole number from"):
        given.streamReader(STREAMED)


def test_a_batch_of_a_topic_has_a_row_at_least() -> None:
    with pytest.raises(ValueError, match="give a whole number from 1"):
        JournalTopic({"bootstrap": "b:9092", "topic": "t", "batch_rows_max": "0"}).streamReader(STREAMED)
