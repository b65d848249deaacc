"""Operators see loads, when regions are split and merged by themselves, and why that does not begin now."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cli.exit_codes import Exit
from controller.regions import growing
from controller.regions.metrics import BARS, RegionsCollector
from regent_agent import news
from regent_agent.protocol import RegionLoad
from tests.kit.command import items, regent, unwrapped
from tests.kit.deadlines import eventually
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
        items("regions", "pin", one["id"], one["server"], *at)
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
            "it has 1.2 kB, and is to be split (size); that does not begin now: it is pinned to a server" in explained
        )
        explained = unwrapped(regent("regions", "explain", other["id"], *at).stdout)
        assert f"its server has reported no size since the open; {policy}" in explained
        items("regions", "unassign", other["id"], "--yes", "--wait", *at)
        explained = unwrapped(regent("regions", "explain", other["id"], *at).stdout)
        assert policy in explained
        assert "has reported no size" not in explained, "no server has it"
        found = samples(blocking)
        assert {name: found[f"regent_regions_unsplit {name}"] for name in BARS} == dict.fromkeys(BARS, 0) | {
            "pinned": 1
        }


def test_a_region_whose_server_reports_its_size_is_split_and_the_listing_says_by_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing, "LOOK_S", 0.1)
    monkeypatch.setattr(news, "LOOK_S", 0.1)
    with world_in_thread(settings_of(tmp_path, split_size_bytes=1_000), servers=1) as blocking:
        at = ("--server", blocking.socket)
        items("tables", "create", "t", "--wait", *at)
        [region] = items("regions", "list", *at)
        service = blocking.world.services["s1"]
        service.keys[region["id"]] = b"m"
        service.sizes[region["id"]] = 1_000
        asyncio.run(eventually(lambda: len(items("regions", "list", *at)) == 2))
        assert [(one["start"], one["end"]) for one in items("regions", "list", *at)] == [("", "m"), ("m", "")]
        [split] = items("regions", "procedures", "list", "--kind", "split", *at)
        assert split["principal"] == "regent"
        assert split["reason"] == "it has 1.0 kB"
        asyncio.run(eventually(lambda: samples(blocking)["regent_region_reshapes_total size"] == 1))
        assert samples(blocking)["regent_region_loads_ignored_total"] >= 0


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
