"""A stream keeps each row once: over a crash at any change of a file, over copies, torn files and files that grow."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from threading import Event

import pytest

from pipeline.layout import manifest_of, table_in
from pipeline.storage import CannotMerge, NothingToRead
from pipeline.stream.bronze import Bronze
from pipeline.stream.query import Batches
from tests.real.pipeline.logs import Log, sound, text
from tests.real.pipeline.plain_ingest import expected
from tests.real.pipeline.stream_kit import QUERY, Crash, Feed, crashing, rows_of

LOG = sound("c")
FIRST, SECOND = [row for row in LOG if row["ctl_id"] == 1], [row for row in LOG if row["ctl_id"] == 2]


def segment(folder: Path, log: Log, more: str = "", again: int = 0) -> Path:
    """Writes a file as a daemon names it."""
    folder.mkdir(parents=True, exist_ok=True)
    extra = f".{again}" if again else ""
    path = folder / f"{log[0]['ctl_epoch']:010d}-{log[0]['seq']:012d}{extra}.jsonl"
    path.write_text(text(log) + more)
    return path


def journals(folder: Path) -> list[str]:
    """Writes the journals of two daemons, and a torn and a whole copy of one file."""
    segment(folder / "d1", FIRST[:5])
    whole = segment(folder / "d1", FIRST[5:], "no row\n")
    segment(folder / "d2", SECOND)
    torn = folder / "copy" / whole.name
    torn.parent.mkdir()
    torn.write_bytes(whole.read_bytes()[:700])
    shutil.copy(folder / "d2" / "0000000006-000000000001.jsonl", folder / "copy")
    return [str(folder / name) for name in ("copy", "d1", "d2")]


def gaps_of(folder: Path | str) -> set[tuple[object, ...]]:
    names = ("kind", "ctl_epoch", "ctl_id", "seq", "rows")
    found = table_in(str(folder), manifest_of(str(folder)).gaps).to_pylist()
    return {tuple(gap[name] for name in names) for gap in found}


def test_a_stream_of_torn_and_whole_copies_has_what_an_ingest_has(tmp_path: Path) -> None:
    folders = journals(tmp_path / "in")
    feed = Feed(folders, tmp_path / "out", bytes_max=1_000)

    kept = feed.run()

    wanted = expected(path for folder in folders for path in Path(folder).iterdir())
    made = manifest_of(str(tmp_path / "out"))
    assert len(kept) > 3
    assert rows_of(tmp_path / "out") == wanted.rows
    assert gaps_of(tmp_path / "out") == wanted.gaps
    assert made.quarantined == 2
    assert made.lines == made.rows + made.copies + made.quarantined


@pytest.mark.parametrize("replaces", [True, False])
def test_a_crash_before_any_change_of_a_file_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaces: bool
) -> None:
    one, other = segment(tmp_path / "in", FIRST[:6]), segment(tmp_path / "in", FIRST[4:9], "no row\n")
    wanted = expected([one, other])
    feed = Feed([str(tmp_path / "in")], tmp_path / "one", bytes_max=one.stat().st_size)
    feed.plan()
    feed.run(until=1)
    for at in itertools.count(1):
        feed.into, feed.done = str(shutil.copytree(tmp_path / "one", tmp_path / f"out-{at}")), 1
        try:
            with crashing(monkeypatch, at, replaces=replaces):
                feed.run()
        except Crash:
            feed.run()
            assert rows_of(feed.into) == wanted.rows, at
            assert gaps_of(feed.into) == wanted.gaps, at
            assert not list(Path(feed.into).rglob("_*")), at
        else:
            break
    assert at > 14


def test_a_batch_that_was_kept_before_the_crash_is_passed_over(tmp_path: Path) -> None:
    feed = Feed(journals(tmp_path / "in"), tmp_path / "out", bytes_max=2_000)

    def crash() -> None:
        raise Crash

    with pytest.raises(Crash):
        feed.run(after_keeping=crash)
    before = (tmp_path / "out/manifest.json").read_bytes()
    [again, *others] = feed.run()

    assert again.again
    assert not any(each.again for each in others)
    assert json.loads(before)["streamed"]["batch"] == 0


def test_a_file_that_grew_after_it_was_read_gives_the_rest(tmp_path: Path) -> None:
    path = segment(tmp_path / "d1", FIRST)
    whole = path.read_bytes()
    path.write_bytes(whole[:900])
    feed = Feed([str(tmp_path / "d1")], tmp_path / "out")
    feed.run()
    path.write_bytes(whole)
    [kept] = feed.run()

    assert rows_of(tmp_path / "out") == expected([path]).rows
    assert kept.copies > 0
    assert gaps_of(tmp_path / "out") == set()


def test_a_new_checkpoint_reads_all_again_and_doubles_nothing(tmp_path: Path) -> None:
    folders = journals(tmp_path / "in")
    Feed(folders, tmp_path / "out").run()
    before = rows_of(tmp_path / "out")
    feed = Feed(folders, tmp_path / "out")
    kept = feed.run(query="89abcdef-other")

    assert sum(each.rows for each in kept) == 0
    assert rows_of(tmp_path / "out") == before


def test_different_rows_of_one_number_are_both_kept_and_named(tmp_path: Path) -> None:
    segment(tmp_path / "d1", FIRST)
    feed = Feed([str(tmp_path / "d1")], tmp_path / "out")
    feed.run()
    segment(tmp_path / "d1", [FIRST[3] | {"reason": "another"}])
    feed.run()

    assert rows_of(tmp_path / "out") == expected((tmp_path / "d1").iterdir()).rows
    assert gaps_of(tmp_path / "out") == expected((tmp_path / "d1").iterdir()).gaps


def test_a_first_batch_without_a_row_makes_a_folder_that_can_be_read(tmp_path: Path) -> None:
    segment(tmp_path / "d1", FIRST[:1]).write_text("no row\n")
    feed = Feed([str(tmp_path / "d1")], tmp_path / "out")
    feed.run()
    segment(tmp_path / "d1", FIRST)
    feed.run()

    assert rows_of(tmp_path / "out") == expected((tmp_path / "d1").iterdir()).rows
    assert manifest_of(str(tmp_path / "out")).quarantined == 1


def test_a_batch_removes_the_audit_of_the_rows_before(tmp_path: Path) -> None:
    segment(tmp_path / "d1", FIRST)
    feed = Feed([str(tmp_path / "d1")], tmp_path / "out")
    feed.run()
    (tmp_path / "out/audit.json").write_text("{}")
    segment(tmp_path / "d1", SECOND)
    feed.run()

    assert not (tmp_path / "out/audit.json").exists()


def test_another_writer_of_the_folder_is_noticed(tmp_path: Path) -> None:
    segment(tmp_path / "d1", FIRST)
    feed = Feed([str(tmp_path / "d1")], tmp_path / "out")

    def other() -> None:
        Bronze(str(tmp_path / "out"), "another").keep(0, feed.read[0])
        segment(tmp_path / "d1", SECOND)

    with pytest.raises(CannotMerge, match="another stream or ingest has changed"):
        feed.run(after_keeping=other)


def test_a_folder_without_the_batches_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    feed = Feed(journals(tmp_path / "in"), tmp_path / "out", bytes_max=2_000)
    feed.run()
    shutil.rmtree(tmp_path / "out")
    segment(tmp_path / "in" / "d2", [SECOND[0] | {"ctl_epoch": 7}])

    with pytest.raises(CannotMerge, match=r"does not have the .* batches that this checkpoint has read: name a new"):
        feed.run()


def test_a_folder_of_an_ingest_is_refused(tmp_path: Path) -> None:
    feed = Feed(journals(tmp_path / "in"), tmp_path / "out")
    feed.run()
    made = json.loads((tmp_path / "out/manifest.json").read_text())
    del made["streamed"]
    (tmp_path / "out/manifest.json").write_text(json.dumps(made))

    with pytest.raises(CannotMerge, match="was filled by 'regent pipeline ingest'"):
        Bronze(str(tmp_path / "out"), QUERY)


@pytest.mark.parametrize("left", [b"", b'{"version":1,"files":['])
def test_a_first_manifest_that_a_kill_left_half_written_is_written_again(tmp_path: Path, left: bytes) -> None:
    feed = Feed(journals(tmp_path / "in"), tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/_0a1b2c3d-manifest.json").write_bytes(left)
    feed.run()

    assert rows_of(tmp_path / "out") == expected(path for f in feed.folders for path in Path(f).iterdir()).rows
    assert not list((tmp_path / "out").rglob("_*"))


def test_a_manifest_that_cannot_be_read_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/manifest.json").write_bytes(b"{")

    with pytest.raises(NothingToRead, match=r"manifest\.json cannot be read: .*: name another folder and another"):
        Bronze(str(tmp_path / "out"), QUERY)


def test_a_batch_that_comes_while_the_query_is_stopped_waits_for_nothing(tmp_path: Path) -> None:
    ended = Event()
    batches = Batches(lambda _: pytest.fail("it is kept"), str(tmp_path), lambda _: None, ended)
    ended.set()

    with batches.between, pytest.raises(InterruptedError, match="this batch is the next one's"):
        batches.take(None, 0)  # type: ignore[arg-type]  # Spark's
    with pytest.raises(InterruptedError):
        batches.take(None, 0)  # type: ignore[arg-type]  # Spark's

    assert batches.between.acquire(blocking=False)
