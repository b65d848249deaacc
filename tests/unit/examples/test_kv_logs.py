"""Logs and records: fences, splits, torn ends, and one fsync for many answers."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.kv import files, logs
from examples.kv.records import HEAD, Edit, decode, encode
from examples.kv.writer import Fenced, Log, Segments

EDITS = [Edit(1 + number % 2, 5, number, b"key", b"v%d" % number) for number in range(6)]


def written(data: Path, segment_bytes: int = 30, edits: list[Edit] = EDITS) -> Segments:
    """Writes edits, two to each segment unless the bound is another."""
    segments = Segments(data, "kv-1", 1, segment_bytes)
    for edit in edits:
        segments.write(encode(edit))
    segments.close()
    return segments


def split_all(data: Path) -> None:
    for part in logs.fence(data, "kv-1", 1):
        logs.split(data, "kv-1", 1, part)


def recovered(data: Path) -> dict[str, list[int]]:
    """Returns the numbers of the edits that are recovered, by file."""
    return {
        str(path.relative_to(data / "regions")): [edit.sequence for edit in decode(path.read_bytes())[0]]
        for path in sorted(data.glob("regions/*/recovered/*"))
    }


def test_a_split_gives_each_region_its_edits(tmp_path: Path) -> None:
    written(tmp_path)
    parts = logs.fence(tmp_path, "kv-1", 1)
    assert parts == ["0000000001.log", "0000000002.log", "0000000003.log,newest"]
    split_all(tmp_path)
    assert recovered(tmp_path) == {
        f"{region}/recovered/{5:020},kv-1,1,{segment:010}.log": [2 * segment - 2 + region - 1]
        for region in (1, 2)
        for segment in (1, 2, 3)
    }
    assert logs.fence(tmp_path, "kv-1", 1) == [], "segments that are split are gone"


def test_a_split_may_be_done_again_and_at_the_same_time(tmp_path: Path) -> None:
    written(tmp_path, segment_bytes=10_000)
    [part] = logs.fence(tmp_path, "kv-1", 1)
    with ThreadPoolExecutor(8) as threads:
        for split in [threads.submit(logs.split, tmp_path, "kv-1", 1, part) for _ in range(32)]:
            split.result()
    assert [numbers for _, numbers in sorted(recovered(tmp_path).items())] == [[0, 2, 4], [1, 3, 5]]
    logs.split(tmp_path, "kv-1", 1, part)


def test_a_torn_end_of_the_newest_segment_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path)
    newest = tmp_path / "logs/kv-1,1/0000000003.log"
    newest.write_bytes(newest.read_bytes()[:-1])
    split_all(tmp_path)
    assert sorted(chain.from_iterable(recovered(tmp_path).values())) == [0, 1, 2, 3, 4]
    assert "log ends torn" in caplog.text


def test_a_torn_end_of_an_older_segment_is_an_error(tmp_path: Path) -> None:
    written(tmp_path)
    older = tmp_path / "logs/kv-1,1/0000000002.log"
    older.write_bytes(older.read_bytes()[:-1])
    with pytest.raises(logs.Corrupt, match=r"0000000002\.log: the last \d+ bytes are no records; restore"):
        split_all(tmp_path)


def test_a_process_that_was_fenced_before_it_began_answers_nothing(tmp_path: Path) -> None:
    assert logs.fence(tmp_path, "kv-1", 1) == []
    with pytest.raises(Fenced, match="FENCED exists"):
        written(tmp_path)


def test_a_log_that_is_not_fenced_is_not_split(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(ValueError, match="is not fenced"):
        logs.split(tmp_path, "kv-1", 1, "0000000001.log")


@pytest.mark.parametrize("server", ["", "../kv", "a,1", "a/b", "a" * 201])
def test_a_name_that_no_folder_can_have_is_refused(tmp_path: Path, server: str) -> None:
    with pytest.raises(ValueError, match="a server named"):
        logs.fence(tmp_path, server, 1)


def test_a_part_that_is_no_segment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no part of a log"):
        logs.split(tmp_path, "kv-1", 1, "../../regions/1")


def test_segments_are_deleted_up_to_a_bound(tmp_path: Path) -> None:
    segments = written(tmp_path)
    segments.delete_below(3)
    assert logs.segments(tmp_path / "logs/kv-1,1") == ["0000000003.log"]


async def test_answers_that_wait_share_one_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(Segments(tmp_path, "kv-1", 1))
    fsync = os.fsync
    calls: list[int] = []

    def counted(handle: int) -> None:
        calls.append(handle)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", counted)

    async def put(edit: Edit) -> None:
        log.append(edit)
        await log.confirm()

    await asyncio.gather(*(put(EDITS[0]) for _ in range(500)))
    await log.close()
    assert len(calls) <= 2
    assert len(decode((tmp_path / "logs/kv-1,1/0000000001.log").read_bytes())[0]) == 500


@pytest.mark.parametrize("with_edit", [True, False])
async def test_nothing_is_answered_after_a_fence(tmp_path: Path, with_edit: bool) -> None:
    log = Log(Segments(tmp_path, "kv-1", 1))
    await log.confirm()
    logs.fence(tmp_path, "kv-1", 1)
    for _ in range(2):
        if with_edit:
            log.append(EDITS[0])
        with pytest.raises(Fenced):
            await log.confirm()
    assert isinstance(log.failed.result(), Fenced)
    await log.close()


@pytest.mark.parametrize("broken", ["append", "fsync"])
async def test_a_failed_write_fails_all_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    log = Log(Segments(tmp_path, "kv-1", 1))

    def fail(*_: object) -> None:
        raise OSError("disk is full")

    owner: object = files if broken == "append" else os
    monkeypatch.setattr(owner, broken, fail)
    log.append(EDITS[0])
    answers = await asyncio.gather(log.confirm(), log.confirm(), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["disk is full"] * 2
    monkeypatch.undo()
    with pytest.raises(OSError, match="disk is full"):
        await log.confirm()
    await log.close()


async def test_a_caller_that_goes_away_hinders_nobody(tmp_path: Path) -> None:
    log = Log(Segments(tmp_path, "kv-1", 1))
    gone, stays = asyncio.create_task(log.confirm()), asyncio.create_task(log.confirm())
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    await log.close()


def test_an_incarnation_is_not_used_twice(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(FileExistsError):
        written(tmp_path)


RECORD_EDITS = st.lists(
    st.builds(
        Edit,
        region=st.integers(1, 2**63 - 1),
        token=st.integers(1, 2**63 - 1),
        sequence=st.integers(0, 2**63 - 1),
        key=st.binary(max_size=20),
        value=st.binary(max_size=200),
    ),
    max_size=5,
)
EDIT = Edit(1, 2, 3, b"key", b"value")


@given(RECORD_EDITS)
def test_records_are_read_back(edits: list[Edit]) -> None:
    data = b"".join(map(encode, edits))
    assert decode(data) == (edits, len(data))


@given(RECORD_EDITS, st.data())
def test_a_cut_leaves_the_records_before_it(edits: list[Edit], data: st.DataObject) -> None:
    whole = b"".join(map(encode, edits))
    cut = data.draw(st.integers(0, len(whole)))
    found, end = decode(whole[:cut])
    assert found == edits[: len(found)]
    assert end == sum(len(encode(edit)) for edit in found) <= cut
    assert len(found) == len(edits) or cut - end < len(encode(edits[len(found)]))


def test_each_changed_bit_is_noticed() -> None:
    record = encode(EDIT)
    for bit in range(len(record) * 8):
        changed = bytearray(record)
        changed[bit // 8] ^= 1 << bit % 8
        assert decode(bytes(changed) + record) == ([], 0), bit


def test_zeros_are_no_records() -> None:
    record = encode(EDIT)
    assert decode(record + bytes(3 * HEAD.size)) == ([EDIT], len(record))
