"""Operators see loads, when regions are split and merged by themselves, and why that does not begin now."""

from __future__ import annotations

from pathlib import Path

from cli.exit_codes import Exit
from controller.regions.metrics import BARS, RegionsCollector
from regent_agent.protocol import RegionLoad
from tests.kit.command import items, regent, unwrapped
from tests.kit.regions.daemon import Blocking, settings_of, world_in_thread


async def told(blocking: Blocking, region: int, size_bytes: int) -> None:
    """Enters loads as the server of a region would report them; has a look made at them."""
    term = blocking.world.domain.term
    assert term is not None
    server = term.env.model.regions[region].server
    assert server is not None
    term.env.loads.take(server, [RegionLoad(region, 70, 30, size_bytes, 3)])
    await term.growth.look()


def samples(blocking: Blocking) -> dict[str, float]:
    """Returns the figures of a scrape, by name and label."""
    world = blocking.world
    found = RegionsCollector(world.domain.counters, world.view.region_gauges).collect()
    return {f"{one.name} {''.join(one.labels.values())}".strip(): one.value for of in found for one in of.samples}


def test_loads_are_listed_and_the_policy_is_explained(tmp_path: Path) -> None:
    with world_in_thread(settings_of(tmp_path, split_size_bytes=1_000)) as blocking:
        at = ("--server", blocking.socket)
        items("tables", "create", "t", "--regions", "2", "--option", "regent.merge_size_bytes=400", "--wait", *at)
        [one, other] = items("regions", "list", *at)
        blocking.call(told(blocking, one["id"], 1_200))
        [shown] = items("regions", "describe", one["id"], *at)
        assert (shown["sizeBytes"], shown["files"]) == (1_200, 3)
        assert "readsPerS" not in shown or shown["readsPerS"] is None, "one report tells no rate"
        listed = regent("regions", "list", "--loads", *at).stdout
        assert "READS/S" in listed
        assert "1200" in listed
        assert [line["id"] for line in items("regions", "list", "--loads", *at)] == [one["id"], other["id"]]
        policy = "a region is split from 1.0 kB on; neighbours are merged up to 400 B together"
        [table] = items("tables", "describe", "t", *at)
        assert table["growth"] == policy
        explained = unwrapped(regent("regions", "explain", one["id"], *at).stdout)
        assert (
            "it has 1.2 kB, and is to be split (size); that does not begin now: its server names no split" in explained
        )
        assert f"'regent regions split {one['id']} --key KEY' splits it" in explained
        explained = unwrapped(regent("regions", "explain", other["id"], *at).stdout)
        assert f"its server has reported no size since the open; {policy}" in explained
        found = samples(blocking)
        assert {name: found[f"regent_regions_unsplit {name}"] for name in BARS} == dict.fromkeys(BARS, 0) | {
            "no_key": 1
        }


def test_an_option_without_a_meaning_is_refused_with_the_names_that_have_one(tmp_path: Path) -> None:
    with world_in_thread(settings_of(tmp_path)) as blocking:
        at = ("--server", blocking.socket)
        create = ("tables", "create", "t", "--option")
        refused = unwrapped(regent(*create, "regent.split_size_bytes=10GB", *at, code=Exit.USAGE).stderr)
        assert "option regent.split_size_bytes: '10GB', expected a whole number from 0 to" in refused
        refused = unwrapped(regent(*create, "regent.split_bytes=10", *at, code=Exit.USAGE).stderr)
        assert "'regent.split_bytes' is none of regent's: give one of regent.split_size_bytes" in refused
        assert items("tables", "list", *at) == []
        items("tables", "create", "t", "--wait", *at)
        refused = unwrapped(regent("tables", "modify", "t", "--option", "regent.x=1", *at, code=Exit.USAGE).stderr)
        assert "'regent.x' is none of regent's" in refused
        items("tables", "modify", "t", "--option", "regent.split_size_bytes=7000", "--wait", *at)
        assert items("tables", "describe", "t", *at)[0]["growth"].startswith("a region is split from 7.0 kB on")
