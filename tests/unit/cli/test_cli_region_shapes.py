"""regent regions split, merge and parents against a daemon with a real domain and two servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cli.exit_codes import Exit
from tests.kit.command import items, regent, unwrapped
from tests.kit.deadlines import eventually
from tests.kit.regions.daemon import Blocking, settings_of, world_in_thread


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Blocking]:
    """Runs the world of all tests here; each has a table of its own."""
    with world_in_thread(settings_of(tmp_path_factory.mktemp("shapes"))) as found:
        yield found


@pytest.fixture(autouse=True)
def socket(world: Blocking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has commands find the daemon."""
    monkeypatch.setenv("REGENT_SERVER", str(world.socket))


def created(name: str, *options: object) -> list[dict[str, Any]]:
    """Creates a table, and returns its regions."""
    items("tables", "create", name, *options, "--wait", "--timeout", 30)
    return items("regions", "list", "--table", name)


def independent(world: Blocking, *regions: int) -> None:
    """Has the servers say that regions have data of their own."""
    for name, service in world.world.services.items():
        for one in {one.region: one for one in service.opened if one.region in regions}.values():
            if world.world.agents[name].owns(one.region, one.token):
                world.world.loop.call_soon_threadsafe(world.world.agents[name].independent, one)


async def test_a_region_is_split_described_and_its_parent_forgotten_once_the_heirs_are_independent(
    world: Blocking,
) -> None:
    [region] = created("grows")
    planned = regent("regions", "split", region["id"], "--key", "m", "--dry-run")
    assert [line.split()[0] for line in planned.stdout.splitlines()] == ["kind", "detail"]
    assert f"region grows#{region['id']}: split at 'm'" in planned.stdout
    assert planned.stderr == "nothing was changed\n"
    [done] = items("regions", "split", region["id"], "--key", "m", "--wait", "--reason", "it is large")
    heirs = items("regions", "list", "--table", "grows")
    assert (done["kind"], done["state"], done["reason"]) == ("split", "success", "it is large")
    assert done["result"] == ", ".join(f"#{one['id']}" for one in heirs)
    assert [(one["start"], one["end"], one["state"]) for one in heirs] == [("", "m", "OPEN"), ("m", "", "OPEN")]
    assert [one["sources"] for one in items("regions", "describe", heirs[0]["id"])] == [[region["id"]]]
    assert f"#{region['id']}" in unwrapped(regent("regions", "explain", heirs[0]["id"]).stdout)
    [parent] = items("regions", "parents", "--table", "grows")
    assert (parent["state"], parent["heirs"], parent["dependent"]) == ("SPLIT", *2 * [[one["id"] for one in heirs]])
    gone = unwrapped(regent("regions", "describe", region["id"], code=Exit.FAILED).stderr)
    assert f"region {region['id']} was split" in gone
    assert "regent regions parents" in gone
    independent(world, *(one["id"] for one in heirs))
    await eventually(lambda: items("regions", "parents", "--table", "grows") == [])
    assert items("regions", "list", "--table", "grows") != []


async def test_neighbours_are_merged_once_they_are_independent(world: Blocking) -> None:
    regions = created("shrinks", "--split", "g", "--split", "n")
    ids = [one["id"] for one in regions]
    twice = unwrapped(regent("regions", "merge", ids[0], ids[0], code=Exit.REFUSED).stderr)
    assert f"shrinks#{ids[0]} is given twice" in twice
    assert "Remedy: give each region once" in twice
    assert "give neighbours" in regent("regions", "merge", ids[0], ids[2], code=Exit.REFUSED).stderr
    [done] = items("regions", "merge", ids[1], ids[0], "--wait")
    assert done["state"] == "success"
    [heir, last] = items("regions", "list", "--table", "shrinks")
    assert (heir["start"], heir["end"], heir["sources"], last["id"]) == ("", "n", ids[:2], ids[2])
    refused = unwrapped(regent("regions", "merge", heir["id"], last["id"], code=Exit.REFUSED).stderr)
    assert f"is not yet independent of #{ids[0]}, #{ids[1]}" in refused
    independent(world, heir["id"])
    await eventually(lambda: items("regions", "parents", "--table", "shrinks") == [])
    [done] = items("regions", "merge", heir["id"], last["id"], "--wait")
    assert [(one["start"], one["end"]) for one in items("regions", "list", "--table", "shrinks")] == [("", "")]


def test_what_cannot_be_split_says_what_would_help(world: Blocking) -> None:
    [region] = created("refuses")
    for options, code, text in (
        (("--key", "\\xZZ"), Exit.USAGE, "key: "),
        (("--key", "m" * 1_100), Exit.REFUSED, "1100 bytes, at most 1024"),
    ):
        assert text in unwrapped(regent("regions", "split", region["id"], *options, code=code).stderr)
    assert [one["state"] for one in items("regions", "list", "--table", "refuses")] == ["OPEN"]
