"""regent balancer against a daemon whose third server comes last: plans, runs, refusals, and the switch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.commands import balancer
from cli.exit_codes import Exit
from tests.kit.command import items, regent, unwrapped
from tests.kit.regions.daemon import Blocking, settings_of, world_in_thread

REGIONS = 9


def rows(text: str, head: str) -> list[list[str]]:
    """Returns the rows of the table whose first column has a heading."""
    lines = [line.split() for line in text.splitlines()]
    at = next(number for number, one in enumerate(lines) if one[:1] == [head])
    return lines[at:]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Blocking]:
    """Runs a daemon with nine regions of two tables at two servers; a third one has none."""
    never = {"balancer_period_ms": 3_600_000, "balancer_joins_ms": 0}
    with world_in_thread(settings_of(tmp_path, balancer_moves_together=2, **never)) as found:
        monkeypatch.setenv("REGENT_SERVER", str(found.socket))
        items("tables", "create", "t", "--regions", REGIONS - 1, "--wait")
        items("tables", "create", "u", "--wait")
        found.call(found.world.start("s3"))
        yield found


def status() -> dict[str, Any]:
    [found] = items("balancer", "status")
    return found


def counts() -> Counter[str]:
    return Counter(one["server"] for one in items("regions", "list"))


@pytest.mark.seed("S1-11", "S0-6")
def test_a_balance_by_command_says_what_it_would_do_does_it_and_shows_its_plan(world: Blocking) -> None:
    before = status()
    assert (before["state"], before["waitsFor"], before["servers"]) == ("on", "", 3)
    assert (before["regionsMin"], before["regionsMax"], before["uneven"], before["periodS"]) == (0, 5, True, 3_600)
    gauges = world.world.view.region_gauges()
    assert (gauges.fewest, gauges.most, gauges.uneven) == (0, 5, True)
    [dry] = items("balancer", "run", "--dry-run")
    assert (dry["pid"], dry["state"]) == (0, "planned")
    assert dry["detail"].startswith("3 of 9 regions would move between 3 servers, 2 at a time; cost 0.")
    assert {(one["to"], one["state"]) for one in dry["moves"]} == {("s3", "waits")}
    assert len({one["region"] for one in dry["moves"]}) == 3
    [cost] = dry["costs"]
    assert (cost["name"], cost["before"] > cost["after"], cost["after"]) == ("regions", True, 0)
    assert counts()["s3"] == 0
    [done] = items("balancer", "run", "--wait", "--reason", "s3 is new")
    assert (done["state"], done["result"], done["reason"]) == ("success", "3 of 3 regions moved", "s3 is new")
    assert counts() == {"s1": 3, "s2": 3, "s3": 3}
    plan = items("balancer", "plan", done["pid"])
    assert [(one["to"], one["state"]) for one in plan] == 3 * [("s3", "there")]
    assert {one["because"] for one in plan} == {"its server has more regions than its share"}
    assert "s3" in regent("balancer", "plan", done["pid"]).stdout
    after = status()
    assert (after["last"], after["lastResult"], after["uneven"]) == (done["pid"], "3 of 3 regions moved", False)
    assert not world.world.view.region_gauges().uneven
    assert "nothing to move: 9 regions at 3 servers" in items("balancer", "run", "--dry-run")[0]["detail"]
    shown = regent("regions", "procedures", "show", done["pid"]).stdout
    assert "3 of 3 moves begun" in shown
    assert world.world.domain.counters.balance_moves == 3


def test_the_same_nonce_balances_once(world: Blocking) -> None:
    first, again = (items("balancer", "run", "--nonce", "n-1", "--wait")[0] for _ in range(2))
    assert first["pid"] == again["pid"]
    assert "is that of procedure" in unwrapped(regent("balancer", "off", "--nonce", "n-1", code=Exit.REFUSED).stderr)


def test_it_is_switched_off_and_on_and_that_is_stored(world: Blocking) -> None:
    assert "the balancer is on already" in regent("balancer", "on", code=Exit.REFUSED).stderr
    assert items("balancer", "off", "--dry-run")[0]["detail"] == "the balancer: off"
    assert items("balancer", "off", "--reason", "a backup runs")[0]["state"] == "success"
    found = status()
    assert (found["state"], found["offReason"]) == ("off", "a backup runs")
    refused = unwrapped(regent("balancer", "run", code=Exit.REFUSED).stderr)
    assert "the balancer is switched off by" in refused
    assert "Remedy: 'regent balancer on' switches it on" in refused
    assert ("off", "balancer") in {(one["kind"], one["subject"]) for one in items("regions", "marks")}
    assert world.world.view.region_gauges().balancer_off
    assert world.world.domain.counters.balance_refusals == {"off": 1}
    items("balancer", "on")
    assert (status()["state"], world.world.view.region_gauges().balancer_off) == ("on", False)
    assert items("balancer", "run", "--wait")[0]["state"] == "success"


def test_what_stands_in_the_way_is_named_with_the_way_out(world: Blocking) -> None:
    for name in ("s2", "s3"):
        items("servers", "cordon", name)
    refused = unwrapped(regent("balancer", "run", code=Exit.REFUSED).stderr)
    assert "1 server may get regions, and a balance needs two" in refused
    assert "regent servers uncordon" in refused
    assert status()["waitsFor"].startswith("1 server may get regions")
    assert "is no balance" in regent("balancer", "plan", 999_999, code=Exit.FAILED).stderr
    [mark] = items("regions", "procedures", "list", "--kind", "mark")[:1]
    assert "'regent balancer status'" in unwrapped(regent("balancer", "plan", mark["pid"], code=Exit.FAILED).stderr)


def test_a_dry_run_shows_costs_and_moves_also_while_the_balancer_is_off(
    world: Blocking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balancer, "MOVES_SHOWN", 2)
    items("balancer", "off", "--reason", "a backup runs")
    shown = regent("balancer", "run", "--dry-run")
    assert "none begins now: the balancer is switched off by" in unwrapped(shown.stdout)
    head, cost = rows(shown.stdout, "COST")[:2]
    assert (head, cost[:2], cost[3]) == (["COST", "WEIGHT", "BEFORE", "AFTER"], ["regions", "500.0"], "0.000")
    head, *moves = rows(shown.stdout, "REGION")
    assert head == ["REGION", "TABLE", "FROM", "TO"]
    assert [(len(one), one[3]) for one in moves] == 2 * [(4, "s3")]
    assert "and 1 more: 'regent balancer run --dry-run -o json' lists all" in unwrapped(shown.stderr)
    [dry] = items("balancer", "run", "--dry-run")
    assert len(dry["moves"]) == 3, "programs get all"
    for name in ("s2", "s3"):
        items("servers", "cordon", name)
    refused = unwrapped(regent("balancer", "run", "--dry-run", code=Exit.REFUSED).stderr)
    assert "1 server may get regions, and a balance needs two" in refused, "what no plan can be made with"
    assert counts()["s3"] == 0
