"""regent regions report: exit codes, lines and documents of a daemon, and of a store that no daemon has."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import pytest

from cli.commands.regions_report import Kind, verdict
from cli.exit_codes import Exit
from controller.regions.procedures.messages import TRANSIT, Transit
from metadata_store.catalog.sqlite import SqliteCatalog
from metadata_store.records.sqlite import SqliteRecords
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from state_machines.regions.findings import FindingKind
from tests.kit.command import items, regent, unwrapped
from tests.kit.regions.daemon import Blocking, settings_of, world_in_thread


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Blocking]:
    with world_in_thread(settings_of(tmp_path_factory.mktemp("report"))) as found:
        yield found


@pytest.fixture(autouse=True)
def socket(world: Blocking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has commands find the daemon."""
    monkeypatch.setenv("REGENT_SERVER", str(world.socket))


def reported(*words: object, code: Exit = Exit.REFUSED) -> dict[str, Any]:
    body = json.loads(regent("regions", "report", *words, "-o", "json", code=code).stdout)
    assert (body["kind"], len(body["items"])) == ("RegionsReport", 1)
    found: dict[str, Any] = body["items"][0]
    return found


def kinds(found: dict[str, Any]) -> list[str]:
    return [one["kind"] for one in found["findings"]]


@pytest.mark.seed("S1-96")
def test_what_is_wrong_is_listed_with_the_command_that_mends_it(world: Blocking) -> None:
    items("tables", "create", "t", "--regions", 3, "--wait")
    clean = regent("regions", "report", code=Exit.DONE)
    assert (clean.stdout, clean.stderr.strip()) == ("", "nothing is wrong with 3 regions of 1 table")
    region = items("regions", "list", "--table", "t")[1]
    items("regions", "unassign", region["id"], "--wait", "--yes")
    told = regent("regions", "report", code=Exit.REFUSED)
    [head, line] = told.stdout.splitlines()
    assert head.split() == ["KIND", "WHAT", "PID", "PROCEDURE", "STEP", "MENDS-IT"]
    mend = f"'regent regions assign {region['id']}' opens it"
    assert line.split("  ")[0] == "not_open"
    assert line.endswith(mend)
    assert told.stderr.strip() == "1 finding in 3 regions of 1 table: 1 not_open"
    found = reported("--table", "t", "--kind", "not_open")
    [one] = found["findings"]
    assert (one["regions"], one["start"], one["mend"]) == ([region["id"]], region["start"], mend)
    assert (found["total"], found["counts"], found["inWork"]) == (1, {"not_open": 1}, 0)
    assert reported("--kind", "hole", code=Exit.DONE)["total"] == 0
    regent(*mend.split("'")[1].removeprefix("regent ").split(), "--wait")
    regent("regions", "report", code=Exit.DONE)


def test_a_refusal_names_what_would_succeed(world: Blocking) -> None:
    assert "table 'none' does not exist" in regent("regions", "report", "--table", "none", code=Exit.FAILED).stderr
    assert "not_open" in unwrapped(regent("regions", "report", "--kind", "lost", code=Exit.USAGE).stderr)
    store = world.world.settings.regions_file
    refused = unwrapped(regent("regions", "report", "--offline", store, code=Exit.REFUSED).stderr)
    assert "the daemon on " in refused
    assert "ask it: 'regent regions report' without --offline; or stop it first" in refused
    missing = unwrapped(regent("regions", "report", "--offline", store.with_name("none.db"), code=Exit.FAILED).stderr)
    assert "none.db is no file" in missing
    assert not list(store.parent.glob("none.db*")), "nothing is made"


def test_the_kinds_of_the_option_are_those_of_the_report() -> None:
    assert get_args(Kind) == tuple(FindingKind)


def test_a_verdict_counts_what_is_not_listed_and_what_is_in_work() -> None:
    found = {"regions": 1_000, "tables": 2, "inWork": 1, "total": 3, "counts": {"hole": 1, "not_open": 2}}
    text = (
        "3 findings in 1,000 regions of 2 tables: 1 hole, 2 not_open; 2 of them not listed; procedures see to 1 region"
    )
    assert verdict(found | {"findings": [{}]}) == text


# -- without a daemon


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The store of a daemon that is gone: two tables, all of whose regions are open at s1 or s2."""
    with world_in_thread(settings_of(tmp_path)) as found:
        server = ("--server", str(found.socket))
        for table in ("t", "u"):
            regent("tables", "create", table, "--regions", 4, "--wait", *server)
    return found.world.settings.regions_file


def offline(store: Path, *words: object, code: Exit = Exit.REFUSED) -> dict[str, Any]:
    return reported("--offline", store, *words, code=code)


def ids(store: Path, table: str) -> list[int]:
    with closing(sqlite3.connect(store)) as db:
        return [id_ for [id_] in db.execute("SELECT id FROM region WHERE tbl = ? ORDER BY first", [table])]


def edited(store: Path, *statements: str) -> None:
    with closing(sqlite3.connect(store)) as db, db:
        for statement in statements:
            db.execute(statement)


def test_a_store_without_a_daemon_is_judged_and_stays_as_it_is(store: Path) -> None:
    found = offline(store, code=Exit.DONE)
    assert (found["tables"], found["regions"], found["inWork"]) == (2, 8, 0)
    [_, gone, bad, _], [left, given_up, *_] = ids(store, "t"), ids(store, "u")
    edited(
        store,
        f"DELETE FROM region WHERE id = {gone}",
        f"UPDATE region SET state = 99 WHERE id = {bad}",
        f"UPDATE region SET server = 'gone' WHERE id = {left}",
        f"UPDATE region SET state = 4, server = '', incarnation = 0 WHERE id = {given_up}",
    )
    before = dump(store)
    found = offline(store)
    assert kinds(found) == ["hole", "unknown_server", "not_open", "damaged"]
    hole, owner, closed, damaged = found["findings"]
    assert (hole["table"], owner["regions"], owner["server"]) == ("t", [left], "gone,1")
    assert owner["mend"].startswith("start the daemon")
    assert closed["mend"] == f"start the daemon: 'regent regions assign {given_up}' opens it"
    assert "state is 99" in damaged["what"]
    assert kinds(offline(store, "--table", "u")) == ["unknown_server", "not_open"]
    assert (
        "tables of the store: t, u"
        in regent("regions", "report", "--offline", store, "--table", "v", code=Exit.FAILED).stderr
    )
    assert dump(store) == before


def dump(store: Path) -> list[str]:
    with closing(sqlite3.connect(store)) as db:
        return list(db.iterdump())


def test_a_region_that_a_stored_procedure_has_is_in_work(store: Path) -> None:
    region = ids(store, "u")[1]
    edited(store, f"UPDATE region SET state = 4, server = '', incarnation = 0 WHERE id = {region}")

    async def pending() -> None:
        records = await SqliteRecords.open(store, SqliteCatalog())
        pid = await records.reserve(1)
        data = TRANSIT.encode(Transit(region, "u"))
        await records.write([Record(pid, "assign", State.RUNNABLE, 0, 1, 1, data=data, caller=Caller("ops"))])
        await records.close()

    asyncio.run(pending())
    assert offline(store, code=Exit.DONE)["inWork"] == 1


def test_a_store_of_an_earlier_release_is_judged_without_a_change_of_its_form(store: Path) -> None:
    edited(store, "ALTER TABLE region DROP COLUMN former", "PRAGMA user_version = 0")
    assert offline(store, code=Exit.DONE)["regions"] == 8
    with closing(sqlite3.connect(store)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (0,)
        assert "former" not in {name for _, name, *_ in db.execute("PRAGMA table_info(region)")}
    edited(store, "PRAGMA user_version = 99")
    refused = unwrapped(regent("regions", "report", "--offline", store, code=Exit.FAILED).stderr)
    assert "a later release wrote the catalog" in refused
