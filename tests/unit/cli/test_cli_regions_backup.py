"""regent regions backup and restore: what they say and refuse, the documented commands, and a real daemon restored."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from cli.copies_of_stores import Plan, sentences
from cli.demo.regions_process import KvServer, RegionsProcess
from cli.exit_codes import Exit
from configs import loading
from controller.regions.restored import NUMBERS_ROOM
from examples.kv.client import Client
from metadata_store.catalog.sqlite_backup import Summary
from metadata_store.catalog.sqlite_restore import Difference
from tests.kit.command import items, regent, unwrapped
from tests.kit.deadlines import eventually
from tests.kit.regions.daemon import Blocking, settings_of, world_in_thread

PAGE: Final = Path(__file__).parents[3] / "docs" / "how-to" / "assign-regions.md"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Blocking]:
    """A daemon with the table "t"."""
    with world_in_thread(settings_of(tmp_path / "state")) as found:
        server = ("--server", str(found.socket))
        regent("tables", "create", "t", "--regions", 4, "--wait", *server)
        yield found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The store of a daemon that is gone: the table "u" is younger than the backup beside it."""
    with world_in_thread(settings_of(tmp_path)) as found:
        server = ("--server", str(found.socket))
        store = found.world.settings.regions_file
        regent("tables", "create", "t", "--regions", 4, "--wait", *server)
        regent("regions", "backup", tmp_path / "b.db", "--store", store)
        regent("tables", "create", "u", "--regions", 3, "--wait", *server)
    return store


def told(*words: object, code: Exit = Exit.DONE) -> str:
    return unwrapped(regent("regions", *words, code=code).stderr)


@pytest.mark.parametrize(("moved", "says"), [((7,), "1 region was opened"), ((7, 8), "2 regions were opened")])
def test_a_restore_counts_the_regions_that_were_opened_since(moved: tuple[int, ...], says: str) -> None:
    had, none = Summary(*11 * (1,)), Difference((), (), (), ())
    last = [*sentences(Plan(had, had, 1, 1, none._replace(moved=moved), none, ""))][-1]
    assert last == f"{says} anew since the backup: servers are asked who has them"


def test_a_backup_beside_a_daemon_says_what_it_has(world: Blocking, tmp_path: Path) -> None:
    store = world.world.settings.regions_file
    [found] = items("regions", "backup", tmp_path / "b.db", "--store", store)
    assert (found["tables"], found["regions"], found["servers"], found["damaged"]) == (1, 4, 2, 0)
    assert found["format"] == 2
    assert found["highestNumber"] >= max(found["highestToken"], found["highestRegion"]) > 0
    assert "b.db exists: name a new file" in told("backup", tmp_path / "b.db", "--store", store, code=Exit.FAILED)
    again = told("backup", tmp_path / "b.db", "--store", store, "--force")
    assert "b.db is whole: regions: 4, tables: 1" in again


def test_a_restore_is_refused_while_a_daemon_has_the_store(world: Blocking, tmp_path: Path) -> None:
    store = world.world.settings.regions_file
    regent("regions", "backup", tmp_path / "b.db", "--store", store)
    refused = told("restore", tmp_path / "b.db", "--store", store, "--yes", code=Exit.REFUSED)
    assert "the daemon on " in refused
    assert "stop all daemons of this store first" in refused


def test_a_dry_run_says_what_is_lost_and_changes_nothing(store: Path) -> None:
    before = store.read_bytes()
    backup = store.with_name("b.db")
    words = ("regions", "restore", backup, "--store", store, "--dry-run")
    [found] = items(*words)
    assert (found["lost"]["tables"], found["lost"]["names"], found["lost"]["regions"]) == (1, ["u"], 3)
    assert found["numbersAbove"] == found["presentHighestNumber"] + NUMBERS_ROOM
    assert "lost, for only the present store has it: 1 table (u), 3 regions (" in told(*words[1:])
    assert store.read_bytes() == before
    assert [*store.parent.glob("regions.db.*")] == [store.with_name("regions.db.lock")]


def test_a_restore_says_how_to_go_back_and_that_way_works(store: Path) -> None:
    backup = store.with_name("b.db")
    assert "needs a terminal" in told("restore", backup, "--store", store, code=Exit.USAGE)
    said = told("restore", backup, "--store", store, "--yes")
    [back] = re.findall(r"'regent (regions restore .*)' goes back", said)
    [found] = items(*shlex.split(back), "--dry-run")
    assert (found["lost"]["names"], found["returns"]["names"]) == ([], ["u"])
    assert "servers may have discarded its data" in told(*shlex.split(back)[1:], "--yes")
    [again] = items("regions", "restore", backup, "--store", store, "--dry-run")
    assert again["lost"]["names"] == ["u"]


def test_where_no_store_names_the_numbers_they_are_given(store: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    words = ("restore", store.with_name("b.db"), "--store", new / "regions.db")
    assert "new is no folder" in told(*words, "--yes", code=Exit.FAILED)
    new.mkdir()
    assert "give --epoch and --number" in told(*words, "--dry-run")
    [found] = items("regions", *words, "--yes", "--epoch", 120, "--number", 910_000)
    assert (found["epochAbove"], found["numbersAbove"]) == (120, 910_000 + NUMBERS_ROOM)
    assert "aside" not in found
    assert items("regions", "restore", store, "--store", new / "regions.db", "--dry-run")[0]["epochAbove"] == 120


def test_what_is_no_backup_is_refused_before_anything_is_touched(store: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("no store " * 200)
    assert "not a database" in told("restore", text, "--store", store, "--yes", code=Exit.FAILED)
    for missing in (tmp_path / "none.db", "zookeeper"):
        said = told("restore", missing, "--store", store, "--yes", code=Exit.FAILED)
        assert f"{missing} is no fileRemedy: name a file of 'regent regions backup'" in said
    assert "is the store itself" in told("restore", store, "--store", store, "--yes", code=Exit.USAGE)
    store.write_text("spoiled " * 200)
    unread = told("restore", store.with_name("b.db"), "--store", store, "--yes")
    assert "what is lost is not known, for the present store cannot be read" in unread


def test_a_store_in_zookeeper_is_backed_up_there(tmp_path: Path) -> None:
    file = tmp_path / "regent.toml"
    file.write_text('[regions]\nhost = "127.0.0.1"\nstore = "zookeeper"\n[zookeeper]\nconnect = "127.0.0.1:1"\n')
    for words in (("backup", tmp_path / "b.db"), ("restore", tmp_path / "b.db")):
        refused = told(*words, "--config", file, code=Exit.USAGE)
        assert "the store is below /regent/regions there" in refused
        assert "back ZooKeeper itself up" in refused


def test_without_a_settings_file_the_store_or_the_settings_are_to_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "DEFAULT_FILE", tmp_path / "none.toml")
    monkeypatch.delenv("REGENT_CONFIG", raising=False)
    for words in (("backup", tmp_path / "b.db"), ("restore", tmp_path / "b.db")):
        said = told(*words, code=Exit.USAGE)
        assert f"there is no settings file {tmp_path / 'none.toml'}" in said
        assert "name the settings with --config, or the file of the store with --store" in said
        assert "zookeeper.connect" not in said
    monkeypatch.setenv("REGENT_REGIONS__PORT", "none")
    assert "regions.port" in told("backup", tmp_path / "b.db", code=Exit.USAGE), "a problem that is there is named"


def documented() -> list[list[str]]:
    """Returns the commands of the page about backups."""
    section = PAGE.read_text(encoding="utf-8").split("## Back the store up")[1].split("\n## ")[0]
    return [shlex.split(one) for one in re.findall(r"(?m)^regent (regions (?:backup|restore|report) .*)$", section)]


def test_the_documented_commands_do_what_the_page_says(store: Path, tmp_path: Path) -> None:
    places = {"/var/lib/regent/": f"{store.parent}/", "/var/backups/regent/": f"{tmp_path / 'backups'}/"}
    (tmp_path / "backups").mkdir()
    config = tmp_path / "regent.toml"
    config.write_text(f'[regions]\nhost = "127.0.0.1"\n[state]\ndirectory = "{store.parent}"\n')
    commands = documented()
    assert [one[1] for one in commands] == ["backup", "backup", "restore", "restore", "report"]
    for words in commands:
        for place, here in places.items():
            words = [one.replace(place, here) for one in words]
        regent(*words, "--config", config)
    assert len([*store.parent.glob("regions.db.before-*")]) == 1


# -- a real daemon


async def ran(*words: object, code: Exit = Exit.DONE) -> list[dict[str, Any]]:
    """Runs a command while processes are watched; returns what it prints."""
    return await asyncio.to_thread(items, *words, code=code)


async def nothing_is_wrong(daemon: RegionsProcess) -> bool:
    [found] = (await daemon.get("/v1/regions/report"))["items"]
    return not found["total"]


async def is_above(daemon: RegionsProcess, region: int, token: int) -> bool:
    """Checks whether a region is open with a token that no process has had."""
    found = {one["id"]: one for one in await daemon.listed("orders")}
    assert found[region]["token"] > token
    return await daemon.are_open("orders")


@pytest.mark.timeout(600)
async def test_a_restored_daemon_goes_on_with_the_servers_that_are_there(tmp_path: Path) -> None:
    """The daemon is killed; its servers, with all that clients wrote, live on over the restore."""
    daemon = RegionsProcess(tmp_path / "daemon", {"regions.startup_wait_ms": 0})
    servers = [KvServer(f"kv-{n}", tmp_path, daemon) for n in (1, 2)]
    store, backup = daemon.folder / "state" / "regions.db", tmp_path / "b.db"
    client = Client([("127.0.0.1", daemon.port)], timeout_s=60)
    try:
        await daemon.boot()
        await asyncio.gather(*(server.boot() for server in servers))
        await daemon.create("orders", uniform=4)
        await client.put("orders", b"before", b"1")
        [copy] = await ran("regions", "backup", backup, "--config", daemon.config)
        await daemon.create("later", uniform=3)
        region = (await daemon.regions("orders"))[1]  # it has the keys
        await daemon.done(f"/v1/regions/{region['id']}/reopen", {})
        await client.put("orders", b"after", b"2")
        seen = await daemon.status()
        highest = max(one["token"] for one in await daemon.regions("orders"))
        restore = ("regions", "restore", backup, "--config", daemon.config)
        refused = await asyncio.to_thread(regent, *restore, "--yes", code=Exit.REFUSED)
        assert "stop all daemons" in refused.stderr
        await daemon.kill()
        assert store.with_name("regions.db-wal").stat().st_size > 0
        [plan] = await ran(*restore, "--dry-run")
        assert (plan["regions"], plan["lost"]["names"], plan["moved"]) == (4, ["later"], 1)
        [done] = await ran(*restore, "--yes")
        assert copy["highestNumber"] < done["numbersAbove"]
        await daemon.boot()
        await eventually(lambda: daemon.are_open("orders"))
        assert seen is not None
        assert ((await daemon.status()) or {})["epoch"] == seen["epoch"] + 1, (
            "one term: nothing was learned from servers"
        )
        await eventually(lambda: is_above(daemon, region["id"], highest))
        assert (await daemon.listed("later")) == []
        assert {(await client.get("orders", key)).value for key in (b"before", b"after")} == {b"1", b"2"}  # type: ignore[union-attr]
        assert all(server.running for server in servers)
        await eventually(lambda: nothing_is_wrong(daemon))
        await asyncio.to_thread(regent, "regions", "report", "--server", daemon.socket)
    finally:
        await client.close()
        for process in (*servers, daemon):
            await process.kill()
