"""regent regions, tables, namespaces and servers against a daemon with a real domain and two servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cli.commands.tables import UNIFORM_MAX
from cli.exit_codes import Exit
from controller.regions.dispatcher import Dispatcher
from controller.regions.metrics import RegionGauges
from controller.regions.operator.tables import TableCreation
from state_machines.regions.layout import key_of
from tests.kit.command import items, regent, unwrapped
from tests.kit.deadlines import eventually
from tests.kit.regions.daemon import Blocking, settings_of, world_in_thread


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Blocking]:
    """Runs the world of all tests here; each has tables of its own."""
    with world_in_thread(settings_of(tmp_path_factory.mktemp("regions"))) as found:
        yield found


@pytest.fixture(autouse=True)
def socket(world: Blocking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has commands find the daemon."""
    monkeypatch.setenv("REGENT_SERVER", str(world.socket))


def created(name: str, *options: object) -> list[dict[str, Any]]:
    """Creates a table, and returns its regions."""
    [found] = items("tables", "create", name, *options, "--wait", "--timeout", 30)
    assert (found["state"], found["kind"], found["result"]) == ("success", "create_table", "all regions are open")
    return items("regions", "list", "--table", name)


def test_the_status_in_one_look() -> None:
    [found] = items("regions", "status")
    assert (found["store"], found["transport"]) == ("sqlite", "poll")
    assert (found["mode"], found["epoch"], found["servers"], found["places"]) == ("active", 1, 2, True)
    assert "active" in regent("regions", "status").stdout


def test_a_table_with_keys_of_any_bytes() -> None:
    regions = created("keys", "--split", "g", "--split", "m\\x00", "--split", "\\xF0")
    assert [(one["start"], one["end"]) for one in regions] == [
        ("", "g"),
        ("g", "m\\x00"),
        ("m\\x00", "\\xF0"),
        ("\\xF0", ""),
    ]
    assert {one["state"] for one in regions} == {"OPEN"}
    assert {one["server"] for one in regions} == {"s1", "s2"}


def test_splits_from_a_file_and_options_for_the_service(world: Blocking, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("a\nb\n")
    assert len(created("filed", "--splits-file", file, "--option", "ttl=60", "--kind", "system")) == 3
    [found] = items("tables", "describe", "filed")
    assert (found["kind"], found["options"], found["openRegions"]) == ("system", {"ttl": "60"}, 3)
    opened = [one for service in world.world.services.values() for one in service.opened if one.table == "filed"]
    assert {one.options["ttl"] for one in opened} == {"60"}


def test_the_same_nonce_creates_once() -> None:
    first, again = (items("tables", "create", "once", "--nonce", "n-1")[0] for _ in range(2))
    assert first["pid"] == again["pid"]
    assert items("regions", "procedures", "wait", first["pid"])[0]["state"] == "success"
    refused = regent("tables", "create", "once", code=Exit.REFUSED).stderr
    assert "table 'once' exists already" in refused
    assert "regent tables describe once" in refused


def test_a_dry_run_changes_nothing() -> None:
    [found] = items("tables", "create", "dry", "--regions", 12, "--dry-run")
    assert (found["pid"], found["state"], found["detail"]) == (0, "planned", "table dry with 12 regions")
    assert "dry" not in {table["name"] for table in items("tables", "list")}


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("tables", "create", "x", "--split", "b", "--split", "a"), Exit.USAGE, "keys must ascend"),
        (("tables", "create", "x", "--split", "\\q"), Exit.USAGE, "a backslash begins \\xNN"),
        (("tables", "create", "x y"), Exit.USAGE, "letters, digits"),
        (("tables", "create", "none:x"), Exit.FAILED, "Remedy: 'regent namespaces create none'"),
        (("tables", "create", "x", "--split", "a", "--regions", 3), Exit.USAGE, "exclude each other"),
        (("tables", "create", "x", "--regions", UNIFORM_MAX + 1), Exit.USAGE, "--regions"),
        (
            ("regions", "procedures", "list", "--kind", "nix"),
            Exit.USAGE,
            "assign_many, assign_regions, balance, clone_table",
        ),
        (("tables", "create", "x", "--option", "ttl"), Exit.USAGE, "not NAME=VALUE"),
        (("tables", "create", "x", "--splits-file", "/none"), Exit.USAGE, "cannot be read"),
        (("tables", "describe", "nobody"), Exit.FAILED, "regent tables list"),
        (("tables", "enable", "nobody"), Exit.FAILED, "does not exist"),
        (("regions", "describe", 999_999), Exit.FAILED, "regent regions list"),
        (("regions", "explain", 999_999), Exit.FAILED, "'regent events show --region 999999' says what became of it"),
        (("regions", "move", 999_999, "s1"), Exit.FAILED, "does not exist"),
        (("regions", "procedures", "show", 999_999), Exit.FAILED, "'regent events show --regions --pid 999999' has"),
        (
            ("regions", "procedures", "abort", 999_999, "--yes"),
            Exit.FAILED,
            "'regent events show --regions --pid 999999' has",
        ),
        (("servers", "describe", "nobody"), Exit.FAILED, "regent servers list"),
        (("servers", "drain", "nobody"), Exit.FAILED, "not known"),
        (("namespaces", "create", "a:b"), Exit.USAGE, "no name of a namespace"),
        (("namespaces", "delete", "default"), Exit.REFUSED, "stays"),
        (("namespaces", "delete", "nobody"), Exit.FAILED, "does not exist"),
        (("tables", "delete", "x"), Exit.USAGE, "--yes"),
        (("tables", "truncate", "x"), Exit.USAGE, "--yes"),
        (("tables", "clone", "x"), Exit.USAGE, "--table or --snapshot"),
        (("tables", "clone", "x", "--snapshot", "none"), Exit.FAILED, "snapshot 'none' does not exist"),
        (("tables", "clone", "no:x", "--snapshot", "none"), Exit.FAILED, "Remedy: 'regent namespaces create no'"),
        (("tables", "clone", "x", "--table", "t", "--option", "regent.x=1"), Exit.USAGE, "is none of regent's"),
        (("tables", "modify", "nobody", "--option", "a=b"), Exit.FAILED, "does not exist"),
        (("tables", "snapshot", "nobody", "s"), Exit.FAILED, "does not exist"),
        (("tables", "snapshot", "nobody", "a:b"), Exit.USAGE, "no name of a snapshot"),
        (("tables", "restore", "nobody", "s", "--yes"), Exit.FAILED, "does not exist"),
        (("snapshots", "describe", "nobody"), Exit.FAILED, "regent snapshots list"),
        (("snapshots", "delete", "nobody", "--yes"), Exit.FAILED, "does not exist"),
        (("regions", "unassign", 1), Exit.USAGE, "--yes"),
        (("servers", "expire", "s1"), Exit.USAGE, "--yes"),
    ],
)
def test_an_error_says_what_to_do(words: tuple[object, ...], code: Exit, says: str) -> None:
    assert says in unwrapped(regent(*words, code=code).stderr)


@pytest.mark.seed("S1-9")
def test_options_of_a_table_change_and_its_regions_are_replaced() -> None:
    old = created("whole", "--regions", 3, "--option", "ttl=60")
    regent("tables", "modify", "whole", "--option", "ttl=90", "--option", "codec=lz4", "--wait")
    [found] = items("tables", "describe", "whole")
    assert (found["options"], found["outdatedRegions"]) == ({"ttl": "90", "codec": "lz4"}, 0)
    same = regent("tables", "modify", "whole", "--option", "ttl=90", code=Exit.USAGE).stderr
    assert "table 'whole' has these options already" in same
    refused = regent("tables", "truncate", "whole", "--yes", code=Exit.REFUSED).stderr
    assert "regent tables disable whole --wait" in refused
    regent("tables", "disable", "whole", "--yes", "--wait")
    regent("tables", "truncate", "whole", "--yes", "--wait")
    new = items("regions", "list", "--table", "whole")
    assert [(one["start"], one["end"]) for one in new] == [(one["start"], one["end"]) for one in old]
    assert {one["state"] for one in new} == {"OPEN"}
    assert {one["id"] for one in new}.isdisjoint({one["id"] for one in old})


@pytest.mark.seed("S1-10", "S1-52")
def test_a_region_is_moved_reopened_closed_and_assigned() -> None:
    [region] = created("one")
    there = "s2" if region["server"] == "s1" else "s1"
    assert f"is at {region['server']}" in unwrapped(
        regent("regions", "move", region["id"], region["server"], code=Exit.REFUSED).stderr
    )
    items("servers", "cordon", there)
    refused = unwrapped(regent("regions", "move", region["id"], there, code=Exit.REFUSED).stderr)
    assert f"server {there} is cordoned, and gets no regions: 'regent servers uncordon {there}' ends that" in refused
    items("servers", "uncordon", there)
    assert items("regions", "move", region["id"], there, "--dry-run")[0]["state"] == "planned"
    [moved] = items("regions", "move", region["id"], there, "--wait", "--reason", "hot")
    assert (moved["state"], moved["reason"]) == ("success", "hot")
    [found] = items("regions", "describe", region["id"])
    assert (found["server"], found["state"]) == (there, "OPEN")
    assert found["token"] > region["token"]
    items("regions", "reopen", region["id"], "--wait")
    assert items("regions", "describe", region["id"])[0]["token"] > found["token"]
    [done] = items("regions", "unassign", region["id"], "--wait", "--yes")
    assert done["detail"] == f"region one#{region['id']} at {there},1"
    [closed] = items("regions", "list", "--table", "one", "--state", "closed")
    assert "server" not in closed
    assert "must be OPEN to move" in regent("regions", "move", region["id"], there, code=Exit.REFUSED).stderr
    items("regions", "assign", region["id"], "--to", there, "--wait")
    assert items("regions", "describe", region["id"])[0]["server"] == there
    assert "already" in regent("regions", "assign", region["id"], code=Exit.REFUSED).stderr


def test_a_region_is_explained() -> None:
    [region] = created("explained")
    told = regent("regions", "explain", region["id"]).stdout
    assert told.startswith(
        f"region {region['id']} of explained, from the first key to the last\nOPEN: a server has opened it"
    )
    assert f"{region['server']},1 polls, its lease holds for" in told
    [found] = items("regions", "explain", region["id"])
    assert found["procedureBecause"] == "no procedure moves it"


@pytest.mark.seed("S1-9", "S2-47")
def test_tables_are_disabled_enabled_and_deleted() -> None:
    created("cycle", "--regions", 4)
    assert "regent tables disable cycle" in regent("tables", "delete", "cycle", "--yes", code=Exit.REFUSED).stderr
    items("tables", "disable", "cycle", "--wait", "--yes")
    assert items("tables", "describe", "cycle")[0]["state"] == "disabled"
    [region, *_] = items("regions", "list", "--table", "cycle")
    assert "'regent tables enable cycle' opens it" in regent("regions", "explain", region["id"]).stdout
    items("tables", "enable", "cycle", "--wait")
    assert items("tables", "describe", "cycle")[0]["openRegions"] == 4
    items("tables", "disable", "cycle", "--wait", "--yes")
    items("tables", "delete", "cycle", "--wait", "--yes")
    assert "cycle" not in {table["name"] for table in items("tables", "list")}


def test_a_namespace_goes_once_it_has_no_tables() -> None:
    items("namespaces", "create", "shop", "--wait")
    assert "exists already" in regent("namespaces", "create", "shop", code=Exit.REFUSED).stderr
    created("shop:orders")
    assert {"name": "shop", "tables": 1} in items("namespaces", "list")
    assert "delete them first" in regent("namespaces", "delete", "shop", code=Exit.REFUSED).stderr
    items("tables", "disable", "shop:orders", "--wait", "--yes")
    items("tables", "delete", "shop:orders", "--wait", "--yes")
    items("namespaces", "delete", "shop", "--wait")
    assert "shop" not in {one["name"] for one in items("namespaces", "list")}


def test_servers_with_their_load_and_lease() -> None:
    created("loaded", "--regions", 2)
    [first, second] = items("servers", "list")
    assert (first["name"], second["name"], first["state"], first["software"]) == ("s1", "s2", "online", "test 1")
    assert 0 < first["leaseLeftS"] <= 3
    assert first["load"] == {"requests": 7}
    assert "requests=7" in regent("servers", "describe", "s1,1").stdout
    here = items("regions", "list", "--server-name", "s1")
    assert len(here) == first["regions"] > 0
    assert {one["server"] for one in here} == {"s1"}


def test_lists_are_fetched_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.client.PAGE", 3)
    regions = created("paged", "--regions", 8)
    assert [one["start"] for one in regions] == ["", *(f"{n * 2**32 // 8:08x}" for n in range(1, 8))]
    everything = items("regions", "list")
    assert len({one["id"] for one in everything}) == len(everything) > 8
    assert everything == sorted(everything, key=lambda one: (one["table"], key_of(one["start"])))
    for server in ("s1", "s2"):
        assert len(items("regions", "list", "--server-name", server, "--table", "paged")) == 4
    names = [table["name"] for table in items("tables", "list")]
    assert names == sorted(set(names))


def test_a_region_that_no_server_can_open_is_in_transition_and_explained(
    world: Blocking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dispatcher, "shows", lambda self, region: f"its znode /{region} cannot be read")
    [region] = created("hard")
    for service in world.world.services.values():
        service.broken.add(region["id"])
    items("regions", "reopen", region["id"], "--reason", "try it")
    asyncio.run(eventually(lambda: "attempts failed" in regent("regions", "explain", region["id"]).stdout))
    assert f"; its znode /{region['id']} cannot be read" in regent("regions", "explain", region["id"]).stdout
    [found] = [one for one in items("regions", "transitions") if one["id"] == region["id"]]
    assert (found["table"], found["overdue"], found["kind"]) == ("hard", False, "assign")
    assert items("regions", "list", "--in-transition")[0]["id"] == region["id"]
    assert (
        f"procedure {found['pid']} moves it" in regent("regions", "move", region["id"], "s1", code=Exit.REFUSED).stderr
    )
    assert any(str(region["id"]) in lock["parts"] for lock in items("regions", "locks"))
    [parent] = items("regions", "procedures", "list", "--kind", "move", "--live")
    parts = items("regions", "procedures", "list", "--parts", "--live")
    assert {one.get("parent") for one in parts} == {None, parent["pid"]}
    assert (
        "cannot be undone" in regent("regions", "procedures", "abort", parent["pid"], "--yes", code=Exit.REFUSED).stderr
    )
    assert (
        "not ended after 1 s"
        in regent("regions", "procedures", "wait", parent["pid"], "--timeout", 1, code=Exit.UNFINISHED).stderr
    )
    for service in world.world.services.values():
        service.broken.clear()
    assert items("regions", "procedures", "wait", parent["pid"], "--timeout", 60)[0]["state"] == "success"


def test_a_script_sees_by_the_exit_code_that_regions_could_not_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world_in_thread(settings_of(tmp_path, open_attempts_max=1), servers=1) as world:
        monkeypatch.setenv("REGENT_SERVER", str(world.socket))
        world.world.services["s1"].broken.update(range(10_000))
        found = regent("tables", "create", "t", "--regions", 2, "--wait", "--timeout", 30, code=Exit.REFUSED).stdout
        assert "2 regions not open: see 'regent regions transitions'" in unwrapped(found)
        region = items("regions", "list", "--table", "t")[0]["id"]
        found = regent("regions", "assign", region, "--wait", "--timeout", 30, code=Exit.REFUSED).stdout
        assert "the region is not where it was wanted: failed_open: OSError: its file is broken" in unwrapped(found)
        [pid] = [one["pid"] for one in items("regions", "procedures", "list", "--kind", "create_table")]
        regent("regions", "procedures", "wait", pid, code=Exit.REFUSED)
        world.world.services["s1"].broken.clear()
        assert not items("regions", "assign", region, "--wait", "--timeout", 30)[0]["unmet"]


def test_a_procedure_is_bypassed(world: Blocking) -> None:
    """The region is given up: a server that may have it closes it, and it is opened once it is assigned."""
    [region] = created("stuck")
    for service in world.world.services.values():
        service.broken.add(region["id"])
    [move] = items("regions", "reopen", region["id"])
    asyncio.run(eventually(lambda: "attempts failed" in regent("regions", "explain", region["id"]).stdout))
    [pid] = [one["pid"] for one in items("regions", "transitions") if one["id"] == region["id"]]
    [ended] = items("regions", "procedures", "bypass", pid, "--yes", "--reason", "known")
    assert (ended["bypassed"], ended["endReason"]) == (True, "known")
    regent("regions", "procedures", "wait", move["pid"], "--timeout", 30, code=Exit.FAILED)
    assert items("regions", "procedures", "show", move["pid"])[0]["state"] == "bypassed"
    for service in world.world.services.values():
        service.broken.clear()
    asyncio.run(eventually(lambda: items("regions", "describe", region["id"])[0]["state"] == "CLOSED"))
    items("regions", "assign", region["id"], "--wait")
    assert items("regions", "describe", region["id"])[0]["state"] == "OPEN"


def test_regions_that_nothing_opens_are_counted_and_listed(world: Blocking) -> None:
    regions = created("alone", "--regions", 3)
    [left] = [one["id"] for one in regions if one["start"] == ""]
    assert items("regions", "list", "--table", "alone", "--stranded") == []
    items("regions", "unassign", left, "--wait", "--yes", "--reason", "its file is broken")
    assert [one["id"] for one in items("regions", "list", "--table", "alone", "--stranded")] == [left]
    assert items("tables", "describe", "alone")[0]["strandedRegions"] == 1
    [status] = items("regions", "status")
    assert status["strandedRegions"] >= 1
    assert any("no procedure opens" in one and "regent regions list --stranded" in one for one in status["warnings"])
    assert world.call(gauges(world)).stranded == status["strandedRegions"]
    items("regions", "assign", left, "--wait")
    assert items("regions", "list", "--table", "alone", "--stranded") == []


async def gauges(world: Blocking) -> RegionGauges:
    return world.world.view.region_gauges()


def test_marks_of_servers_and_regions() -> None:
    [region] = created("marked")
    there = "s2" if region["server"] == "s1" else "s1"
    items("servers", "cordon", there, "--reason", "slow disk")
    assert items("servers", "describe", there)[0]["cordoned"] is True
    items("servers", "hold", there, "--for", "10m")
    items("regions", "pin", region["id"], there)
    assert items("regions", "describe", region["id"])[0]["pinned"] == there
    explained = unwrapped(regent("regions", "explain", region["id"]).stdout)
    assert f"no pin moves it away from {region['server']}" in explained
    assert f"'regent regions move {region['id']} {there}' does" in explained
    marks = items("regions", "marks")
    assert [(one["kind"], one["subject"], one.get("server")) for one in marks] == [
        ("cordon", there, None), ("hold", there, None), ("pin", str(region["id"]), there),
    ]  # fmt: skip
    assert (marks[0]["reason"], marks[0]["principal"][:4]) == ("slow disk", "uid ")
    items("servers", "weight", there, "2.5", "--wait", "--timeout", "30")
    assert items("servers", "describe", there)[0]["weight"] == 2.5
    assert next(one for one in items("regions", "marks") if one["kind"] == "weight")["weight"] == 2.5
    items("servers", "weight", there, "1")
    assert items("servers", "describe", there)[0]["weight"] == 1
    assert "has no weight" in regent("servers", "weight", there, "1", code=Exit.FAILED).stderr
    assert "Invalid value" in regent("servers", "weight", there, "0.05", code=Exit.USAGE).stderr
    items("servers", "uncordon", there)
    items("servers", "release", there)
    items("regions", "reopen", region["id"], "--wait")
    items("regions", "unpin", region["id"], "--dry-run")
    items("regions", "unpin", region["id"])
    assert items("regions", "marks") == []
    assert "has no pin" in regent("regions", "unpin", region["id"], code=Exit.FAILED).stderr
    assert "no time" in regent("servers", "hold", there, "--for", "long", code=Exit.USAGE).stderr
    assert "not known" in regent("servers", "cordon", "nobody", code=Exit.FAILED).stderr


def test_drain_and_expiry_of_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a world of its own: it leaves other servers behind."""
    with world_in_thread(settings_of(tmp_path)) as world:
        monkeypatch.setenv("REGENT_SERVER", str(world.socket))
        _drained_and_expired(world)


@pytest.mark.parametrize("name", ["rack-1/kv-1", "a ?#%2F b"])
def test_commands_reach_a_server_whatever_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with world_in_thread(settings_of(tmp_path)) as world:
        monkeypatch.setenv("REGENT_SERVER", str(world.socket))
        world.call(world.world.start(name))
        assert [items("servers", "describe", one)[0]["name"] for one in (name, f"{name},1")] == [name, name]
        for act in ("cordon", "uncordon", "drain"):
            extra = ("--wait",) if act == "drain" else ()
            assert items("servers", act, name, *extra)[0]["state"] == "success"
        assert items("regions", "list", "--server-name", name) == []
        assert items("servers", "expire", name, "--wait", "--yes", "--timeout", 60)[0]["state"] == "success"
        assert items("servers", "forget", name, "--wait")[0]["state"] == "success"


def _drained_and_expired(world: Blocking) -> None:
    created("last", "--regions", 6)
    world.call(world.world.start("s3"))
    items("servers", "drain", "s3", "--dry-run")
    [drained] = items("servers", "drain", "s1", "--wait", "--reason", "disk")
    assert (drained["kind"], drained["state"]) == ("drain_server", "success")
    [found] = items("servers", "describe", "s1")
    assert (found["state"], found["regions"]) == ("leaving", 0)
    had = items("servers", "describe", "s2")[0]["regions"]
    assert had > 0
    assert items("servers", "expire", "s2", "--dry-run")[0]["state"] == "planned"
    [expired] = items("servers", "expire", "s2", "--wait", "--yes", "--reason", "it hangs", "--timeout", 60)
    assert (expired["kind"], expired["state"]) == ("crash", "success")
    assert "it hangs" in expired["detail"]
    assert {one["server"] for one in items("regions", "list", "--table", "last")} == {"s3"}
    assert world.world.agents["s2"].died.is_set()
    assert "is a member" in unwrapped(regent("servers", "forget", "s1", code=Exit.REFUSED).stderr)
    [forgotten] = items("servers", "forget", "s2", "--wait", "--reason", "its clock was ahead")
    assert (forgotten["kind"], forgotten["state"]) == ("forget_server", "success")
    assert forgotten["result"].startswith("processes of server s2 up to the incarnation ")
    assert "no fenced process" in unwrapped(regent("servers", "forget", "s2", code=Exit.FAILED).stderr)


def test_a_move_to_an_unknown_server_names_the_list_of_servers_and_a_table_shows_its_options() -> None:
    [region] = created("lost", "--option", "ttl=60")
    refused = regent("regions", "move", region["id"], "nobody", code=Exit.REFUSED).stderr
    assert "Remedy: see 'regent servers list'" in refused
    assert "ttl=60" in regent("tables", "describe", "lost").stdout


def test_the_bound_of_uniform_regions_is_that_of_the_request() -> None:
    assert TableCreation(name="t", uniform=UNIFORM_MAX).uniform == UNIFORM_MAX
    with pytest.raises(ValidationError):
        TableCreation(name="t", uniform=UNIFORM_MAX + 1)
