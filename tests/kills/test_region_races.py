"""What an operator begins in any turn of a crash: no region is opened twice, and tokens only grow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from controller.regions.environment import Options
from controller.regions.kinds import assign, close, crash, move
from controller.regions.kinds.messages import MOVE, TRANSIT, Move, Transit
from state_machines.procedures.record import Record
from tests.kills.harness import Clock, Deaths
from tests.kills.region_cases import CREATED, TABLE
from tests.kills.region_daemons import LEASE_MS, Life, play
from tests.kills.region_servers import Service
from tests.kills.test_regions import in_memory

TURNS_MAX = 60

BEGUN: dict[str, Callable[[int], tuple[str, bytes]]] = {
    "move": lambda region: (move.NAME, MOVE.encode(Move(region, TABLE, "s3"))),
    "reopen": lambda region: (move.NAME, MOVE.encode(Move(region, TABLE, reopens=True))),
    "assign": lambda region: (assign.NAME, TRANSIT.encode(Transit(region, TABLE))),
    "close": lambda region: (close.NAME, TRANSIT.encode(Transit(region, TABLE))),
}


def is_crash(record: Record) -> bool:
    return record.kind == crash.NAME


@pytest.mark.parametrize("fence", ["lease", "log"])
@pytest.mark.parametrize("what", BEGUN)
async def test_what_begins_in_any_turn_of_a_crash_opens_no_region_twice(what: str, fence: str, tmp_path: Path) -> None:
    over: list[int] = []
    for turn in range(TURNS_MAX):
        domains, service, clock = in_memory(tmp_path), Service(), Clock()
        for name in ("s1", "s2", "s3"):
            service.start(name)
        options = Options(lease_ms=LEASE_MS, fence=fence)
        for story in CREATED:
            await play(domains, service, clock, options, story, Deaths())

        async def begins(life: Life, turn: int = turn) -> None:
            await life.turns(1)
            mine = list(life.term.env.model.servers["s1", 1].regions)
            life.service.servers["s1", 1].dies()
            await life.until(lambda: any(map(is_crash, life.term.engine.records.values())))
            await life.turns(turn)
            if not any(map(is_crash, life.term.engine.live())):
                over.append(turn)
            for region in mine:
                life.term.manager.start(*BEGUN[what](region), f"{what} {region}")

        await play(domains, service, clock, options, begins, Deaths())
        if over:
            break
    assert over, "the crash lasts longer than that"
