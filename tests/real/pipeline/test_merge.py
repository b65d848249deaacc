"""Merging journals, without Spark: rows, copies, gaps and bad lines of files that are torn, doubled, mixed or full."""

from __future__ import annotations

import errno
import json
import random
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.real.pipeline.logs import Line, Log, rows, sound, text
from tests.real.pipeline.plain_ingest import as_text, expected

pytest.importorskip("pyarrow", reason="the extra pipeline is not installed")
pytest.importorskip("pyspark", reason="the extra pipeline is not installed")

import pyarrow.parquet as pq

from pipeline import layout, lines, merge, segments, storage
from pipeline.layout import manifest_of
from pipeline.merge import Merged, Workers
from pipeline.storage import CannotMerge, NothingToRead

HERE = Workers(lambda function, values, _=None: [function(value) for value in values], 2)


def merged(journals: list[Path], into: Path) -> Merged:
    return merge.merge(HERE, list(map(str, journals)), str(into))


def rows_of(into: Path) -> list[str]:
    """Returns the rows of a folder as text, in an order of their own."""
    tables = [pq.read_table(into / file.path) for file in manifest_of(str(into)).files]
    return sorted(as_text(row) for table in tables for row in table.to_pylist())


def put_aside(into: Path) -> list[tuple[str, int, str, str]]:
    """Returns the lines in quarantine: name of the file, number, reason, value."""
    tables = [pq.read_table(into / path) for path in manifest_of(str(into)).quarantine]
    found = [row for table in tables for row in table.to_pylist()]
    return [(Path(row["file"]).name, row["line"], row["why"], row["value"]) for row in found]


def written(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.jsonl").write_text(content)
    return folder


def term(count: int, daemon: int = 1, **fields: Any) -> Log:
    """Makes a term of small rows of some partitions."""
    events: list[Line] = [{"kind": "ISR", "topic": "Ω", "partition": number % 5} | fields for number in range(count)]
    return rows("c", 3, daemon, *events)


def gaps_of(found: Merged) -> list[tuple[Any, ...]]:
    return [(gap.kind, gap.ctl_epoch, gap.ctl_id, gap.seq, gap.rows) for gap in found.gaps]


BAD_LINES = ["", "{", '{"v":1}', '{"v":2,"seq":"x"}', "7", '{"v":1,\n"seq":2}', "\x00\x00", '{"v":1}{"v":1}']


@st.composite
def journals(draw: st.DrawFn) -> list[bytes]:
    """Draws files of one or two daemons that wrote an epoch: cut somewhere, copied, torn, thinned, doubled, spoilt."""
    chosen = random.Random(draw(st.integers(0, 2**32)))
    files: list[list[str]] = []
    for daemon in range(1, draw(st.integers(1, 2)) + 1):
        whole = text(term(draw(st.integers(1, 30)), daemon)).splitlines()
        cuts = sorted(chosen.sample(range(len(whole)), min(len(whole), draw(st.integers(0, 3)))))
        files += [whole[at:until] for at, until in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    for _ in range(draw(st.integers(0, 3))):
        files.append(list(chosen.choice(files)))
        spoilt = files[draw(st.integers(0, len(files) - 1))]
        at = chosen.randrange(len(spoilt) + 1)
        match draw(st.sampled_from(["drop", "double", "change", "bad", "move", "copy"])):
            case "drop":
                del spoilt[at : at + 1]
            case "double":
                spoilt[at:at] = spoilt[:2]
            case "change":
                spoilt[at:at] = [line.replace("ISR", "LEADER") for line in spoilt[:2]]
            case "bad":
                spoilt.insert(at, draw(st.sampled_from(BAD_LINES)))
            case "move":
                spoilt[:at], spoilt[at:] = spoilt[len(spoilt) - at :], spoilt[: len(spoilt) - at]
    contents = ["".join(f"{line}\n" for line in file).encode() for file in files]
    return [content[: len(content) - draw(st.sampled_from([0, 0, 1, 20]))] for content in contents]


@settings(max_examples=15, deadline=None)
@given(contents=journals())
def test_any_journal_is_merged_as_a_plain_merge_does(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes]
) -> None:
    """With blocks and portions of a few rows."""
    folder = tmp_path_factory.mktemp("merge")
    files = [folder / f"{number}.jsonl" for number in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", 700)
        patch.setattr(segments, "PORTION_BYTES", 2_000)
        found = merged([folder], folder / "bronze")
    wanted = expected(files)
    assert rows_of(folder / "bronze") == wanted.rows
    assert {gap for gap in gaps_of(found) if gap[0] in ("HOLE", "SAME_NUMBER") and gap[3] > 1} == {
        gap for gap in wanted.gaps if gap[3] > 1
    }
    made = manifest_of(str(folder / "bronze"))
    assert made.lines == sum(lines.count(content) for content in contents)
    assert (made.quarantined, made.rows) == (wanted.quarantined, len(wanted.rows))
    assert made.lines == made.rows + made.quarantined + made.copies
    assert sum(each.rows for each in found.terms) == made.rows == sum(made.kinds.values())


def test_a_copied_folder_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = text(sound("c"))
    one = written(tmp_path / "one", a=log, b=text(term(3)))
    shutil.copytree(one, tmp_path / "two")
    read: list[str] = []

    def noted(source: segments.Source, *where: str) -> segments.Made:
        read.append(source.path)
        return segments.make(source, *where)

    monkeypatch.setattr(merge, "make", noted)
    found = merged([one, tmp_path / "two"], tmp_path / "bronze")
    assert [Path(path).parent.name for path in read] == ["one", "one"]
    assert (found.manifest.copies, found.manifest.rows) == (len(sound("c")) + 3, len(sound("c")) + 3)


def test_the_lines_of_large_journals_are_read_by_the_compiled_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = pytest.importorskip("pipeline.plain", reason="the extra pipeline is not installed")
    read: list[bool] = []

    class Noted(plain.Plain):  # type: ignore[misc, name-defined]  # imported where Numba is
        def read(self, block: bytes) -> Any:
            found = super().read(block)
            read.append(found is not None)
            return found

    monkeypatch.setattr(plain, "Plain", Noted)
    monkeypatch.setattr(merge, "COMPILED_BYTES_MIN", 1)
    log = [row | {"why": 'a "b"', "isr0": [1, 2]} for row in term(30)]
    compact = "".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n" for row in log)
    merged([written(tmp_path / "j", a=compact, b="{}\n" + text(term(3, daemon=2)))], tmp_path / "bronze")
    assert rows_of(tmp_path / "bronze") == sorted(map(as_text, [*log, *term(3, daemon=2)]))
    assert [why for _, _, why, _ in put_aside(tmp_path / "bronze")] == ["v is missing"]
    assert read == [True, False, False]


def test_a_torn_copy_adds_nothing_and_its_torn_line_is_named(tmp_path: Path) -> None:
    log = text(term(9))
    written(tmp_path / "one", a=log)
    written(tmp_path / "two", a=log[:-40])
    found = merged([tmp_path / "two", tmp_path / "one"], tmp_path / "bronze")
    assert rows_of(tmp_path / "bronze") == sorted(map(as_text, term(9)))
    assert (found.manifest.copies, gaps_of(found)) == (8, [])
    [(name, number, why, _)] = put_aside(tmp_path / "bronze")
    assert (name, number, why) == ("a.jsonl", 9, "it is torn")


def test_files_of_two_daemons_that_wrote_one_epoch_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "make_together", None)
    one, two = written(tmp_path / "1", a=text(term(6))), written(tmp_path / "2", a=text(term(7, daemon=2)))
    found = merged([one, two], tmp_path / "bronze")
    assert [(each.ctl_id, each.rows) for each in found.terms] == [(1, 6), (2, 7)]
    assert gaps_of(found) == []


def test_a_clock_that_steps_back_changes_no_order(tmp_path: Path) -> None:
    log = term(6)
    log[3]["ts_us"] = 5
    found = merged([written(tmp_path / "j", a=text(log[:2] + log[3:]))], tmp_path / "bronze")
    [each] = found.terms
    assert (each.first_us, each.last_us) == (5, log[-1]["ts_us"])
    [gap] = found.gaps
    assert (gap.kind, gap.seq, gap.ts_from_us, gap.ts_to_us) == ("HOLE", 3, log[1]["ts_us"], 5)


def test_kinds_and_fields_of_later_releases_are_kept_and_passed_over(tmp_path: Path) -> None:
    log = [term(1)[0] | {"kind": "OF_LATER", "of_later": [{"a": 1}]}, *term(2)[1:]]
    found = merged([written(tmp_path / "j", a=text(log))], tmp_path / "bronze")
    assert found.manifest.kinds == {"ISR": 1, "OF_LATER": 1}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"v":2,"seq":"x"}', "unknown version 2"),
        (b'{"v":1,"cluster":7}', "cluster: expected `str`, got `int`"),
        (b'{"v":1,"cluster":"c","ctl_id":9000000000}', "ctl_id: expected `int` <= 2147483647"),
        (b'{"v":1,"cluster":"c\xff"}', "byte 19 is no UTF-8"),
        (b'{"v":1,"cluster":"c"}', "ctl_id is missing"),
        (b"[]}", "it is no JSON object with the fields of a row"),
        (text(term(2)).replace("\n", "").encode(), "it is no JSON object with the fields of a row"),
        (b"x" * (3 * lines.LINE_BYTES_MAX), "it is too long for a row"),
        (b'{"why":"' + b"x" * lines.LINE_CHARACTERS_MAX + b'"}', "it is too long for a row"),
        (text(term(1)).replace('"ISR"', '"\\ud800"').strip().encode(), "it is no JSON object with the fields of a row"),
        (text(term(1, isr0=[1, "2"])).strip().encode(), "isr0[1]: expected `int`, got `str`"),
    ],
)
def test_each_bad_line_is_named_with_its_number_and_reason(tmp_path: Path, line: bytes, why: str) -> None:
    first, second = (each.encode() for each in text(term(2)).splitlines())
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([first, line, second]))
    merged([tmp_path], tmp_path / "bronze")
    [(name, number, found, value)] = put_aside(tmp_path / "bronze")
    assert (name, number, found) == ("a.jsonl", 2, why)
    assert len(value) <= lines.LINE_BYTES_MAX
    assert value[:9] == line.decode(errors="replace")[:9]
    assert rows_of(tmp_path / "bronze") == sorted(map(as_text, term(2)))


def test_a_corrupt_segment_loses_only_its_bad_lines(tmp_path: Path) -> None:
    chosen = random.Random(3)
    content = bytearray(text(term(300)).encode())
    for _ in range(12):
        content[chosen.randrange(len(content))] = chosen.randrange(256)
    (tmp_path / "a.jsonl").write_bytes(content)
    found = merged([tmp_path], tmp_path / "bronze").manifest
    assert found.lines == found.rows + found.quarantined
    assert found.rows > 270


def test_no_journal_is_named_and_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path, tmp_path / "a.jsonl"):
        with pytest.raises(NothingToRead, match=f"there is no journal in {path}"):
            merged([path], tmp_path / "bronze")
    with pytest.raises(NothingToRead, match="ftp: is not read: give a path, or one that begins with file:"):
        merge.files_of(["ftp://host/journal"])
    found = merged([written(tmp_path / "j", a="")], tmp_path / "bronze")
    assert (found.manifest.lines, rows_of(tmp_path / "bronze"), gaps_of(found)) == (0, [], [])


def test_a_path_may_have_the_scheme_file(tmp_path: Path) -> None:
    written(tmp_path / "j", a=text(term(4)))
    merge.merge(HERE, [f"file://{tmp_path}/j"], f"file:{tmp_path}/bronze")
    assert len(rows_of(tmp_path / "bronze")) == 4


def test_what_is_neither_a_folder_nor_a_journal_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(NothingToRead, match=r"a\.txt cannot be listed as a folder"):
        merge.files_of([str(tmp_path / "a.txt")])


def test_a_store_that_a_task_cannot_reach_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(path: str) -> Any:
        raise NothingToRead(f"{path}: its store does not open")

    monkeypatch.setattr(segments, "opened", unreachable)
    with pytest.raises(CannotMerge, match=r"a\.jsonl: its store does not open"):
        merged([written(tmp_path / "j", a=text(term(4)))], tmp_path / "bronze")


def test_a_kill_after_the_manifest_leaves_no_verdict_on_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: Any) -> None:
        raise Killed

    journal, bronze = written(tmp_path / "j", a=text(term(4))), tmp_path / "bronze"
    merged([journal], bronze)
    (bronze / "audit.json").write_text("{}")
    written(journal, b=text(term(9)))
    monkeypatch.setattr(merge, "_clear", kill)
    with pytest.raises(Killed):
        merged([journal], bronze)
    assert len(rows_of(bronze)) > 4
    assert not (bronze / "audit.json").exists()


@contextmanager
def full(path: str, aside: str) -> Iterator[Any]:
    """Has no room for rows."""
    with storage.written(path, aside) as stream:
        yield stream
        if "/rows/" in path:
            raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, bronze = written(tmp_path / "j", a=text(term(4))), tmp_path / "bronze"
    merged([journal], bronze)
    before = files_in(bronze)
    written(journal, b=text(term(9)))
    monkeypatch.setattr(segments, "written", full)
    with pytest.raises(CannotMerge, match=r"there is no room left to write .*bronze: free some"):
        merged([journal], bronze)
    assert files_in(bronze) == before
    assert len(rows_of(bronze)) == 4


def test_a_write_that_the_system_refuses_midway_leaves_what_was_there(tmp_path: Path) -> None:
    """No file may be larger than a footer: the rows are refused while they are written."""
    journal, bronze = written(tmp_path / "j", a=text(term(4))), tmp_path / "bronze"
    merged([journal], bronze)
    before = files_in(bronze)
    written(journal, b=text(term(9)))
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, most))
    try:
        with pytest.raises(CannotMerge, match=r"bronze: .*File too large"):
            merged([journal], bronze)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))
    assert files_in(bronze) == before
    assert len(rows_of(bronze)) == 4


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


class Killed(BaseException):
    """Ends an ingest at once."""


def killing(after: int) -> Callable[[str, str], AbstractContextManager[Any]]:
    """Returns a writer that is killed before it shows a file, once ``after`` files are shown."""
    left = [after]

    @contextmanager
    def writing(path: str, aside: str) -> Iterator[Any]:
        store, inside = storage.place(path)
        folder, _, name = inside.rpartition("/")
        store.create_dir(folder, recursive=True)
        with store.open_output_stream(f"{folder}/_{aside}-{name}") as stream:
            yield stream
        if not left[0]:
            raise Killed
        left[0] -= 1
        store.move(f"{folder}/_{aside}-{name}", inside)

    return writing


@pytest.mark.parametrize("again", [False, True])
def test_an_ingest_that_is_killed_anywhere_leaves_nothing_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    journal, bronze = written(tmp_path / "j", a=text(term(4))), tmp_path / "bronze"
    if again:
        merged([journal], bronze)
    written(journal, b=text([row | {"seq": row["seq"] + 4} for row in term(5)]), c="bad\n")
    steps = 0
    with monkeypatch.context() as patch:
        patch.setattr(merge, "_clear", lambda *_: None)
        while True:
            writer = killing(steps)
            patch.setattr(segments, "written", writer)
            patch.setattr(layout, "written", writer)
            patch.setattr(storage, "written", writer)
            try:
                merged([journal], bronze)
            except Killed:
                steps += 1
                if again:
                    assert len(rows_of(bronze)) == 4
                else:
                    with pytest.raises(NothingToRead, match="or that did not end"):
                        manifest_of(str(bronze))
            else:
                break
    assert steps == 6, "rows of two files, bad lines, terms, gaps, manifest"
    assert len(rows_of(bronze)) == 9
    merged([journal], bronze)
    made = manifest_of(str(bronze))
    named = {file.path for file in made.files} | {made.terms, made.gaps, *made.quarantine}
    assert files_in(bronze) == named | {"manifest.json"}, "what killed ones left is removed"


def test_each_gap_of_a_term_and_between_terms_has_its_place(tmp_path: Path) -> None:
    """Over files: rows that a daemon could not write are no hole besides."""
    resigned, torn = {"kind": "CTL_RESIGNED"}, {"kind": "CTL_RESIGNED", "pids": [1]}
    log = [
        *rows("c", 2, 1, {"kind": "ISR"}, {"kind": "ISR"}, resigned)[1:],
        *(row for row in rows("c", 4, 2, *[{"kind": "UNRECORDED", "lost": 3}] * 9) if row["seq"] in (1, 4)),
        *(row for row in rows("c", 5, 1, *[{"kind": "ISR"}] * 9) if row["seq"] in (2, 4)),
        *rows("c", 6, 1, torn),
        *rows("c", 7, 2, resigned),
    ]
    journal = written(tmp_path / "j", **{f"f{number}": text([row]) for number, row in enumerate(log)})
    found = merged([journal], tmp_path / "bronze")
    assert gaps_of(found) == [
        ("EXPIRED", 2, 1, 1, 1),
        ("NO_JOURNAL", 3, None, 1, None),
        ("UNRECORDED", 4, 2, 1, 3),
        ("UNRECORDED", 4, 2, 4, 3),
        ("CUT_SHORT", 4, 2, 7, None),
        ("HOLE", 5, 1, 1, 1),
        ("HOLE", 5, 1, 3, 1),
        ("CUT_SHORT", 5, 1, 5, None),
        ("IN_DOUBT", 6, 1, 2, None),
    ]
