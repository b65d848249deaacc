"""Records of regions that this daemon cannot use: shown, refused with the command that removes them, removed, told."""

from __future__ import annotations

import asyncio
import re
import shlex
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.exit_codes import Exit
from controller.regions.procedures.every import KINDS
from controller.regions.procedures.messages import CRASH, MOVE, TABLE_TASK, TRANSIT, Crash, Move, TableTask, Transit
from metadata_store.catalog.sqlite import SqliteCatalog
from metadata_store.records.sqlite import SqliteRecords
from state_machines.procedures.record import Caller, Ending, Record
from state_machines.procedures.states import State
from state_machines.regions.states import RegionState
from tests.kit.command import items, regent, unwrapped
from tests.kit.regions.daemon import Blocking, settings_of, world_in_thread
from tests.kit.regions.term import WAIT_S, Log, Stage, stage

KEPT = Caller("User:ops", "", "of a newer daemon", "n-1")


def of_kind(pid: int, kind: str, data: bytes = b"", parent: int = 0, **more: object) -> Record:
    ancestors = (parent,) if parent else ()
    return Record(pid, kind, State.RUNNABLE, 0, 1, 2, parent, ancestors, data=data, caller=KEPT, **more)  # type: ignore[arg-type]


async def stored(file: Path, records: list[Record], torn: int = 0) -> None:
    """Writes records as another daemon left them, one of them damaged."""
    store = await SqliteRecords.open(file, SqliteCatalog())
    await store.load()
    await store.reserve(100)
    await store.write(records)
    await store.close()
    if torn:
        with sqlite3.connect(file) as db:
            db.execute("UPDATE record SET body = ? WHERE pid = ?", (b"{", torn))


FAMILY = [
    of_kind(40, "create_table", TABLE_TASK.encode(TableTask("lost", uniform=2)), born=(41,)),
    of_kind(41, "assign_many", b"?", parent=40),
]
NEWER = of_kind(50, "merge_regions")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Blocking]:
    """A daemon whose store has a record of a newer one, and a family with a damaged child."""
    settings = settings_of(tmp_path)
    asyncio.run(stored(settings.regions_file, [*FAMILY, NEWER], torn=41))
    with world_in_thread(settings, servers=1) as found:
        monkeypatch.setenv("REGENT_SERVER", str(found.socket))
        yield found


def remedy_in(text: str) -> list[str]:
    """Returns the command that a refusal names."""
    [command] = re.findall(r"'(regent [^']*)'", text)
    return shlex.split(command)[1:]


@pytest.mark.seed("S2-49")
def test_a_record_that_cannot_be_used_is_shown_and_the_refusals_name_the_command_that_removes_it(
    world: Blocking,
) -> None:
    shown = {one["pid"]: one for one in items("regions", "procedures", "list")}
    assert {pid: one["kind"] for pid, one in shown.items()} == {40: "create_table", 41: "unknown", 50: "merge_regions"}
    assert "kind 'merge_regions' is not known to this daemon" in shown[50]["unusable"]
    assert "its child, cannot be used" in shown[40]["unusable"]
    [status] = items("regions", "status")
    assert any("3 procedures cannot go on (pid 40, 41, 50)" in one for one in status["warnings"])
    for pid in (41, 50):
        refused = ""
        for act in ("bypass", "abort"):
            refused = unwrapped(regent("regions", "procedures", act, pid, "--yes", code=Exit.REFUSED).stderr)
            assert f"pid {pid}: " in refused
            assert remedy_in(refused) == ["regions", "procedures", "remove", str(pid)]
        regent(*remedy_in(refused), "--yes", "--reason", "not needed")
    assert items("regions", "procedures", "list") == []
    assert items("regions", "status")[0]["warnings"] == []
    [again] = items("regions", "procedures", "remove", 50, "--yes")
    assert again["state"] == "removed", "its response may have been lost"
    missing = regent("regions", "procedures", "remove", 99, "--yes", code=Exit.FAILED).stderr
    assert "procedure 99 is not known" in unwrapped(missing)


def test_a_removal_names_its_family_its_caller_and_its_reason_and_asks_before(world: Blocking) -> None:
    asked = regent("regions", "procedures", "remove", 40, code=Exit.USAGE).stderr
    assert "the question needs a terminal" in unwrapped(asked)
    [gone] = items("regions", "procedures", "remove", 40, "--yes", "--reason", "its disk was broken")
    assert (gone["state"], gone["ended"], gone["endRequested"], gone["endReason"]) == (
        "removed", True, "remove", "its disk was broken",
    )  # fmt: skip
    assert gone["endPrincipal"].startswith("uid ")
    assert "removed with pid 41 of its family" in gone["detail"]
    [left] = items("regions", "procedures", "list")
    assert left["pid"] == 50


async def test_the_log_and_the_journal_say_by_whom_and_why_a_record_was_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(caplog)
    await stored(tmp_path / "regions.db", [*FAMILY, NEWER], torn=41)
    async with stage(tmp_path) as found:
        await found.term.engine.remove(40, Ending("remove", "uid 7", "its disk was broken"))
        await found.term.engine.remove(50, Ending("remove", "uid 7"))
        await found.until(lambda: bool(log.grep("pid=50")))
    assert "'regent regions procedures remove 41' removes its record" in log.grep("pid=41")[0]
    told = "its record could not be used, and is removed by uid 7 (its disk was broken): all else stays as it is"
    assert log.grep("pid=41")[1:] == [f"pid=41 unknown: SUCCESS, {told}"]
    assert log.grep("pid=40")[1:] == [f"pid=40 create_table: SUCCESS, {told}"]
    assert [line for line in log.grep("pid=50") if "merge_regions: SUCCESS" in line]


# -- what a removed record was about


async def with_a_region(found: Stage) -> int:
    await found.join("s1")
    await found.create("t", 1)
    [region] = found.term.env.model.regions
    return region


@pytest.mark.parametrize("kind", ["assign", "move"])
async def test_a_region_of_a_removed_record_goes_to_a_server_once_it_is_assigned(tmp_path: Path, kind: str) -> None:
    async with stage(tmp_path) as found:
        region = await with_a_region(found)
        await found.close("t", region)
    task = TRANSIT.encode(Transit(region, "t")) if kind == "assign" else MOVE.encode(Move(region, "t", "s1"))
    await stored(tmp_path / "regions.db", [of_kind(70, kind, task, born=(71,)), of_kind(71, "gone", parent=70)])
    async with stage(tmp_path) as found:
        await found.join("s1", 2)
        assert await found.term.engine.remove(71) == [70, 71]
        record = await found.assign("t", region)
        assert record.result == b""
        assert found.term.env.model.regions[region].state is RegionState.OPEN


@pytest.mark.parametrize("kind", [one.name for one in KINDS])
async def test_a_record_whose_message_cannot_be_read_is_removed_and_the_term_goes_on(tmp_path: Path, kind: str) -> None:
    await stored(tmp_path / "regions.db", [of_kind(40, kind, b"\xc1")])
    async with stage(tmp_path) as found:
        await found.join("s1")
        assert await found.term.engine.remove(40, Ending("remove", "uid 7")) == [40]
        await asyncio.wait_for(found.create("t", 1), WAIT_S)


async def test_a_process_whose_crash_is_removed_crashes_anew_unless_it_is_here_again(tmp_path: Path) -> None:
    async with stage(tmp_path) as found:
        region = await with_a_region(found)
    crashes = [of_kind(70, "crash", CRASH.encode(Crash("s1", 1)), born=(71,)), of_kind(71, "gone", parent=70)]
    await stored(tmp_path / "regions.db", crashes)
    async with stage(tmp_path) as found:
        await found.join("s2")
        await found.term.engine.remove(70)
        model = found.term.env.model
        await found.until(lambda: ("s1", 1) not in model.servers)
        await found.until(lambda: model.regions[region].state is RegionState.OPEN)
        assert str(model.regions[region].server) == "s2,1"
