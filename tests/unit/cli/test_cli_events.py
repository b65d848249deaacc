"""``regent events`` on a small journal: two terms, a death, an offline partition, a gap."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from rich.console import Console
from typer.testing import Result

from cli.demo.story import Story as DemoStory
from cli.exit_codes import Exit
from controller.journal import query
from controller.journal.segments import SegmentName
from state_machines.journal.events import Kind, Row
from tests.kit.command import items, regent

BEGIN_S = 1_800_000_000
ROWS: list[dict[str, Any]] = [
    {"kind": Kind.CTL_ELECTED, "why": "broker 3 held the role", "broker": 3},
    {"kind": Kind.BROKER_DOWN, "broker": 1},
    {
        "kind": Kind.LEADER, "topic": "orders", "partition": 0, "leader0": 1, "leader1": 2, "leader_epoch0": 4,
        "leader_epoch1": 5, "isr0": [1, 2], "isr1": [2], "replicas": [1, 2], "steps": ["x"], "from_state": "ONLINE",
        "to_state": "ONLINE", "reason": "broker_failure", "strategy": "offline", "why": "brokers [1] are gone",
    },
    {
        "kind": Kind.LEADER, "topic": "orders", "partition": 1, "leader0": 1, "leader1": -1, "leader_epoch0": 4,
        "leader_epoch1": 5, "isr0": [1], "isr1": [1], "replicas": [1, 3], "steps": ["x"], "from_state": "ONLINE",
        "to_state": "OFFLINE", "reason": "broker_failure", "why": "brokers [1] are gone",
    },
    {"kind": Kind.UNRECORDED, "lost": 4, "why": "the queue was full"},
    {"kind": Kind.CTL_RESIGNED, "seq": 9, "why": "the daemon stops"},
    {"kind": Kind.CTL_ELECTED, "ctl_epoch": 2, "seq": 1, "why": "nobody held the role"},
    {
        "kind": Kind.ISR, "ctl_epoch": 2, "seq": 2, "topic": "orders", "partition": 0, "leader0": 2, "leader1": 2,
        "leader_epoch0": 5, "leader_epoch1": 5, "isr0": [2], "isr1": [2, 1], "replicas": [1, 2],
        "from_state": "ONLINE", "to_state": "ONLINE", "reason": "isr_by_leader", "why": "ISR changes of leaders",
    },
]  # fmt: skip


def row(at: int, fields: dict[str, Any]) -> Row:
    head: dict[str, Any] = {"v": 1, "cluster": "c", "ctl_id": 7, "ctl_epoch": 1, "seq": at + 1, "mono_us": 0}
    return Row(**(head | {"ts_us": (BEGIN_S + at) * 1_000_000} | fields))


def lines(found: list[Row]) -> bytes:
    return msgspec.json.Encoder().encode_lines(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "state" / "events"
    path.mkdir(parents=True)
    rows = [row(at, fields) for at, fields in enumerate(ROWS)]
    (path / str(SegmentName(1, 1, 0))).write_bytes(lines([r for r in rows if r.ctl_epoch == 1]))
    (path / str(SegmentName(2, 1, 0))).write_bytes(lines([r for r in rows if r.ctl_epoch == 2]))
    for file in path.iterdir():
        os.utime(file, (BEGIN_S + 100, BEGIN_S + 100))
    return path


def events(*arguments: object, code: Exit = Exit.DONE) -> Result:
    return regent("events", *arguments, code=code)


def numbers(*arguments: object) -> list[int]:
    """Returns the indexes of the rows that are shown."""
    return [item["ts_us"] // 1_000_000 - BEGIN_S for item in items("events", "show", *arguments)]


def test_rows_are_printed_as_sentences(folder: Path) -> None:
    result = events("show", "--directory", folder)
    text = result.stdout.splitlines()
    assert [line.split()[0] for line in text[1:]] == ["2027-01-15"] * len(ROWS)
    assert "orders-0  leader 1 -> 2, ISR [1,2] -> [2], leader epoch 5: brokers [1] are gone" in text[3]
    assert "orders-1  leader 1 -> none, ONLINE -> OFFLINE, leader epoch 5: brokers [1] are gone" in text[4]
    assert "4 rows are missing: the queue was full" in text[5]
    assert "leader 2 stays, ISR [2] -> [2,1], leader epoch 5: ISR changes of leaders" in text[8]
    assert "gap: rows 5 to 8 of epoch 1: the queue was full" in result.stderr


def test_the_journals_of_two_daemons_are_one_history(folder: Path, tmp_path: Path) -> None:
    """Each daemon has the terms that it served; the second one's folder is named first."""
    whole = numbers("--directory", folder)
    other = tmp_path / "other"
    other.mkdir()
    moved = str(SegmentName(1, 1, 0))
    (folder / moved).rename(other / moved)
    assert len(numbers("--directory", folder)) < len(whole)
    both: list[object] = ["--directory", folder, "--directory", other]
    assert numbers(*both) == whole
    assert numbers(*both, "--limit", 2) == [6, 7]
    assert numbers(*both, "--directory", other) == whole, "a folder that is named twice is read once"
    assert "orders-1  leader 1 -> none" in events("tail", "-n", 100, *both).stdout
    assert f"{len(whole)} rows" in events("check", *both).stderr
    assert "there is no journal in" in events("show", *both, "--directory", tmp_path / "none", code=Exit.FAILED).stderr


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["--topic", "orders"], [2, 3, 7]),
        (["--topic", "orders", "--partition", 0], [2, 7]),
        (["--broker", 2], [2, 7]),
        (["--broker", 1], [1, 2, 3, 7]),
        (["--broker", 1, "--kind", "isr"], [7]),
        (["--kind", "LEADER", "--kind", "ISR"], [2, 3, 7]),
        (["--since", "2027-01-15T08:00:06"], [6, 7]),
        (["--until", "2027-01-15T09:00:01+01:00"], [0, 1]),
        (["--limit", 2], [6, 7]),
        (["--topic", "no-such"], []),
    ],
)
def test_rows_are_filtered(folder: Path, filters: list[object], expected: list[int]) -> None:
    assert numbers("--directory", folder, *filters) == expected


@pytest.mark.parametrize(
    ("window", "shown"),
    [
        (["--since", "2027-01-15T08:00:06"], False),
        (["--until", "2027-01-15T08:00:02"], False),
        (["--since", "2027-01-15T08:00:03.5", "--until", "2027-01-15T08:00:03.8"], True),
        (["--since", "2027-01-15T08:00:01", "--until", "2027-01-15T08:00:08"], True),
        ([], True),
    ],
)
def test_gaps_outside_of_the_wanted_time_are_left_out(folder: Path, window: list[str], shown: bool) -> None:
    assert ("gap: " in events("show", "--directory", folder, *window).stderr) is shown


def test_without_any_row_a_message_replaces_the_table(folder: Path) -> None:
    for command in ("show", "tail"):
        result = events(command, "--directory", folder, "--topic", "no-such")
        assert result.stdout == ""
        assert "the journal has no such rows" in result.stderr


def test_the_demo_explains_the_gaps_in_its_journal(folder: Path) -> None:
    for path in folder.iterdir():
        kept = [line for line in path.read_bytes().splitlines(keepends=True) if b"CTL_RESIGNED" not in line]
        path.write_bytes(b"".join(kept))
    printed = io.StringIO()
    console = Console(file=printed, width=1_000, highlight=False)
    demo = DemoStory(console, mock.Mock(), mock.Mock(journal=folder))
    assert demo.judged()
    assert "0 violations, 2 gaps" in printed.getvalue()
    assert "gap: rows 5 to 8 of epoch 1: the queue was full" in printed.getvalue()
    assert "its last second may be missing: the kill -9 of regent above" in printed.getvalue()


def test_a_time_may_be_relative_to_now(folder: Path) -> None:
    fresh = row(0, {"seq": 10, "ts_us": int((time.time() - 60) * 1e6), "kind": Kind.CTL_PHASE})
    with (folder / str(SegmentName(1, 1, 0))).open("ab") as file:
        file.write(lines([fresh]))
    shown = items("events", "show", "--directory", folder, "--since", "5m", "--until", "30s")
    assert [item["seq"] for item in shown] == [10]


def test_the_settings_name_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGENT_STATE__DIRECTORY", str(folder.parent))
    assert numbers() == list(range(len(ROWS)))


def test_tail_prints_the_newest_rows(folder: Path) -> None:
    text = events("tail", "-n", 1, "--directory", folder).stdout
    assert "orders-0" in text
    assert "CTL_ELECTED" not in text


def test_following_prints_each_added_row_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line without its end is printed once it is complete."""
    path = folder / str(SegmentName(2, 1, 0))
    data = lines([row(20, {"ctl_epoch": 2, "seq": 3, "kind": Kind.BROKER_UP, "broker": 1})])

    def append(some: bytes) -> None:
        with path.open("ab") as file:
            file.write(some)

    def stop() -> None:
        raise KeyboardInterrupt

    pauses = iter([lambda: append(data[:30]), lambda: append(data[30:]), lambda: None, stop])
    monkeypatch.setattr("cli.commands.events.time.sleep", lambda _: next(pauses)())
    result = events("tail", "-f", "-n", 1, "--directory", folder, code=Exit.DETACHED)
    assert [line.split()[2] for line in result.stdout.splitlines()] == ["ISR", "BROKER_UP"]


def test_following_leaves_out_no_row_that_is_written_as_it_begins(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row comes between the look at the newest rows and the first look at what was added."""
    path = folder / str(SegmentName(2, 1, 0))
    data = lines([row(20, {"ctl_epoch": 2, "seq": 3, "kind": Kind.BROKER_UP, "broker": 1})])
    newest = query.last

    def last(*given: Any) -> Any:
        found = newest(*given)
        with path.open("ab") as file:
            file.write(data)
        return found

    def stop() -> None:
        raise KeyboardInterrupt

    pauses = iter([lambda: None, stop])
    monkeypatch.setattr(query, "last", last)
    monkeypatch.setattr("cli.commands.events.time.sleep", lambda _: next(pauses)())
    result = events("tail", "-f", "-n", 1, "--directory", folder, code=Exit.DETACHED)
    assert [line.split()[2] for line in result.stdout.splitlines()] == ["ISR", "BROKER_UP"]


def test_a_sound_journal_passes_the_check(folder: Path) -> None:
    result = events("check", "--directory", folder)
    assert "8 rows, 0 violations, 1 gap" in result.stderr


def test_a_broken_invariant_is_printed_and_has_its_exit_code(folder: Path) -> None:
    with (folder / str(SegmentName(2, 1, 0))).open("ab") as file:
        file.write(lines([row(9, {**ROWS[2], "ctl_epoch": 2, "seq": 3, "leader1": 9})]))
    result = events("check", "--directory", folder, code=Exit.REFUSED)
    assert "A3: orders-0 at epoch 2, row 3: leader 9 is not in the ISR [2]" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--partition", 1], Exit.USAGE, "--partition needs --topic"),
        (["--kind", "NOISE"], Exit.USAGE, "there is no kind NOISE"),
        (["--region", 17, "--broker", 3], Exit.USAGE, "no row has both --broker and --region"),
        (["--table", "a b"], Exit.USAGE, "--table: name 'a b': letters, digits"),
        (["--server-name", "kv-1,x"], Exit.USAGE, "--server-name kv-1,x is no server"),
        (["--server-name", ",5"], Exit.USAGE, "--server-name ,5 is no server"),
        (["--since", "yesterday"], Exit.USAGE, "--since yesterday is no time"),
        (["--since", "1m", "--until", "5m"], Exit.USAGE, "--until 5m is before --since 1m"),
        (["--directory", "/nowhere/at/all"], Exit.FAILED, "there is no journal in /nowhere/at/all"),
        (["--directory", "/nowhere/at/all"], Exit.FAILED, "name the settings with --config"),
    ],
)
def test_wrong_arguments_are_refused_with_a_remedy(
    folder: Path, arguments: list[object], code: Exit, message: str
) -> None:
    where = [] if "--directory" in arguments else ["--directory", folder]
    result = events("show", *arguments, *where, code=code)
    assert message in result.stderr
    assert "Remedy: " in result.stderr


def test_only_the_needed_files_are_read(folder: Path) -> None:
    """A journal may have gigabytes, so the newest rows are read from its end."""
    (folder / str(SegmentName(0, 1, 0))).write_bytes(b"\xff" * 1_000 + b"\n")
    assert "gap" not in events("show", "--directory", folder, "--limit", 1).stderr
    assert "there are more" in events("show", "--directory", folder, "--limit", 7).stderr
    everything = events("show", "--directory", folder)
    assert "there are more" not in everything.stderr
    assert "a line is not a row" in everything.stderr


@pytest.mark.seed("S3-34")
def test_the_history_of_a_procedure_is_shown_by_pid_and_by_topic_and_broker(tmp_path: Path) -> None:
    common: dict[str, Any] = {"kind": Kind.PROC_STATE, "root": 12}
    family = [
        common | {"pid": 12, "procedure": "drain", "to_state": "RUNNABLE", "why": "submitted", "brokers": [3]},
        common | {"pid": 13, "ppid": 12, "procedure": "reassign", "to_state": "RUNNABLE", "topics": ["orders"]},
        common | {"pid": 20, "root": 20, "procedure": "grow", "to_state": "RUNNABLE", "locks": ["topic orders 0"]},
    ]
    path = tmp_path / str(SegmentName(1, 1, 0))
    path.write_bytes(lines([row(at, fields) for at, fields in enumerate(family)]))

    def pids(*options: object) -> list[int]:
        return [item["pid"] for item in items("events", "show", "--directory", tmp_path, *options)]

    assert pids("--pid", 12) == [12, 13]
    assert pids("--pid", 13) == [13]
    assert pids("--topic", "orders") == [13, 20]
    assert pids("--broker", 3) == [12]
    told = regent("events", "show", "--directory", tmp_path, "--pid", 12).stdout
    assert "pid 13 reassign of pid 12" in told


A, B = {"server": "kv-1", "incarnation": 1795}, {"server": "kv-2", "incarnation": 1796}
OF_REGIONS: list[dict[str, Any]] = [
    {"kind": Kind.CTL_ELECTED},
    {"kind": Kind.SERVER_STATE, "to_state": "ONLINE", **A},
    {"kind": Kind.SERVER_STATE, "to_state": "ONLINE", **B},
    {"kind": Kind.TABLE_STATE, "table": "kv", "to_state": "CREATING", "pid": 1},
    {"kind": Kind.PROC_STATE, "pid": 4, "root": 4, "procedure": "assign", "table": "kv", "region": 101, "why": "begun"},
    {"kind": Kind.REGION_STATE, "table": "kv", "region": 101, "to_state": "OPEN", "pid": 4, **A},
    {"kind": Kind.REGION_STATE, "table": "shop:t", "region": 102, "to_state": "OPEN", "pid": 5, **A},
    {
        "kind": Kind.REGION_STATE, "table": "kv", "region": 101, "to_state": "OPENING", "pid": 6,
        "server0": "kv-1", "incarnation0": 1795, **B,
    },
    {"kind": Kind.REGION_DISPATCH, "batch": 1, "pids": [6], "operations": ["open"], **B},
    {"kind": Kind.SERVER_STATE, "to_state": "ONLINE", "server": "kv-1", "incarnation": 1800},
]  # fmt: skip


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["--region", 101], [4, 5, 7]),
        (["--table", "kv"], [3, 4, 5, 7]),
        (["--table", "shop:t"], [6]),
        (["--server-name", "kv-1"], [1, 5, 6, 7, 9]),
        (["--server-name", "kv-1,1795"], [1, 5, 6, 7]),
        (["--server-name", "kv-2"], [2, 7, 8]),
        (["--server-name", "kv-2", "--region", 101, "--kind", "REGION_STATE"], [7]),
        (["--region", 102, "--table", "kv"], []),
    ],
)
def test_rows_of_regions_are_filtered_in_the_journal_of_regions(
    folder: Path, monkeypatch: pytest.MonkeyPatch, filters: list[object], expected: list[int]
) -> None:
    """Without a directory the filter alone says which of a daemon's two journals is read."""
    monkeypatch.setenv("REGENT_STATE__DIRECTORY", str(folder.parent))
    path = folder / "regions" / str(SegmentName(1, 1, 0))
    path.parent.mkdir()
    path.write_bytes(lines([row(at, fields) for at, fields in enumerate(OF_REGIONS)]))
    assert numbers(*filters) == expected
    assert len(events("tail", "-n", 5, *filters).stdout.splitlines()) == (len(expected[-5:]) + 1 if expected else 0)


def test_the_journal_of_regions_is_read_without_a_filter_of_regions(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both journals of a daemon have pids and epochs of their own."""
    monkeypatch.setenv("REGENT_STATE__DIRECTORY", str(folder.parent))
    path = folder / "regions" / str(SegmentName(1, 1, 0))
    path.parent.mkdir()
    path.write_bytes(lines([row(at, fields) for at, fields in enumerate(OF_REGIONS)]))
    assert numbers("--regions", "--pid", 4) == [4, 5]
    assert numbers("--pid", 4) == []
    assert len(events("tail", "-n", 3, "--regions").stdout.splitlines()) == 4
    assert f"{len(OF_REGIONS)} rows" in events("check", "--regions", code=Exit.REFUSED).output
    refused = events("show", "--regions", "--directory", folder, code=Exit.USAGE).stderr
    assert f"--directory {folder}/regions" in refused.replace("\n", "")


def test_a_daemon_of_regions_alone_has_their_journal_by_default(folder: Path, tmp_path: Path) -> None:
    path = folder / "regions" / str(SegmentName(1, 1, 0))
    path.parent.mkdir()
    path.write_bytes(lines([row(at, fields) for at, fields in enumerate(OF_REGIONS)]))
    settings = tmp_path / "regent.toml"
    settings.write_text(f'[state]\ndirectory = "{folder.parent}"\n[regions]\nport = 9190\n')
    assert numbers("--pid", 4, "--config", settings) == [4, 5]
    settings.write_text(f'{settings.read_text()}[zookeeper]\nconnect = "zk:2181"\n')
    assert numbers("--pid", 4, "--config", settings) == []
