"""regent regions upgrade: the level of a store in the status, what is refused below it, and how it is raised."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.exit_codes import Exit
from state_machines.regions.marks import STORE, Mark, MarkKind
from tests.kit.command import items, regent, unwrapped
from tests.kit.regions.daemon import Blocking, settings_of, world_in_thread


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Blocking]:
    """Runs a daemon with two servers, and a table."""
    with world_in_thread(settings_of(tmp_path)) as found:
        monkeypatch.setenv("REGENT_SERVER", str(found.socket))
        items("tables", "create", "t", "--wait")
        yield found


def status() -> dict[str, Any]:
    [found] = items("regions", "status")
    return found


async def lower(world: Blocking) -> None:
    """Has the store be one of the first level, as a release of before has left it."""
    term = world.world.domain.term
    assert term is not None
    term.env.model.marks.put(Mark(MarkKind.LEVEL, STORE, "1"))


@pytest.mark.seed("S1-18", "S1-97")
def test_a_store_of_the_first_level_is_raised_by_command(world: Blocking) -> None:
    found = status()
    assert (found["level"], found["newestLevel"], found["lackingFeatures"]) == (2, 2, [])
    refused = regent("regions", "upgrade", "--yes", code=Exit.REFUSED)
    assert "the store has level 2, the highest one that this daemon knows" in unwrapped(refused.output)

    world.call(lower(world))
    assert status()["level"] == 1
    refused = regent("regions", "stop", "--yes", code=Exit.REFUSED)
    text = unwrapped(refused.output)
    assert "stop_tables needs level 2 of the store, and it has 1, which older daemons read" in text
    assert "'regent regions upgrade' raises it once all daemons of the store know that level" in text
    [dry] = items("regions", "upgrade", "--dry-run")
    assert (dry["state"], dry["detail"]) == ("planned", "level of the store: 1, then 2; it never falls again")
    assert status()["level"] == 1

    [done] = items("regions", "upgrade", "--wait", "--yes", "--reason", "all daemons are new")
    assert (done["kind"], done["state"], done["detail"]) == ("mark", "success", "level of store to 2")
    assert status()["level"] == 2
    assert items("regions", "marks") == [], "it is no mark of a server or a region"
    [stopped] = items("regions", "stop", "--wait", "--yes")
    assert (stopped["state"], stopped["result"]) == ("success", "1 table")
    [region] = items("regions", "list")
    ways = items("regions", "explain", region["id"])[0]["wouldChange"]
    assert ways[0] == "'regent regions start' enables all tables that were stopped, this one among them"
