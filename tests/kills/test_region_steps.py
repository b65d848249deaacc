"""Procedures of regions whose daemon was killed: each goes on from the step that its record has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import mock

import pytest

from controller.procedures.kinds import Effect, Execute, Kind
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import every
from controller.regions.procedures.every import KINDS
from state_machines.procedures.outcome import Outcome
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from tests.kills.harness import Death, Deaths
from tests.kills.region_cases import CASES
from tests.kills.region_daemons import Domains, Opened
from tests.kills.test_regions import end_of, in_memory


class Steps:
    """What the store had as a daemon opened it, by pid, and how often the next daemon began with that."""

    def __init__(self) -> None:
        self.stored: dict[int, int] = {}
        self.compared = 0
        self.later = 0
        """How many of them were past their first step."""

    def domains(self, domains: Domains) -> Domains:
        """Returns domains whose records are looked at as they are opened."""

        @asynccontextmanager
        async def domain() -> AsyncIterator[Opened]:
            async with domains() as opened:
                records = (await opened.store.load()).records
                self.stored = {one.pid: one.step for one in records if one.state is not State.FAILED}
                yield opened

        return domain

    def compares(self, kind: Kind[RegionsEnv]) -> Kind[RegionsEnv]:
        """Returns a kind that compares the first step of each procedure that a daemon found."""

        def executing(number: int, execute: Execute[RegionsEnv]) -> Execute[RegionsEnv]:
            async def executed(env: RegionsEnv, record: Record) -> Outcome | Effect:
                if (stored := self.stored.pop(record.pid, None)) is not None:
                    assert stored == number, f"{record.kind}, pid {record.pid}, had reached step {stored}"
                    self.compared += 1
                    self.later += number > 0
                return await execute(env, record)

            return executed

        steps = (step._replace(execute=executing(at, step.execute)) for at, step in enumerate(kind.steps))
        return kind._replace(steps=tuple(steps))


@pytest.mark.seed("S1-36", "S2-37")
@pytest.mark.parametrize("name", ["create", "move", "drain", "disable in pieces", "crash, fence log"])
async def test_a_procedure_goes_on_from_the_step_that_was_stored_before_the_kill(name: str, tmp_path: Path) -> None:
    steps, clean, case = Steps(), Deaths(), CASES[name]
    await end_of(case, in_memory(tmp_path), clean)
    with mock.patch.object(every, "KINDS", tuple(map(steps.compares, KINDS))):
        for number in range(1, clean.writes + 1):
            for after in (False, True):
                domains = in_memory(tmp_path)
                await end_of(case, steps.domains(domains), Deaths([Death(number, after)]))
    assert steps.compared > steps.later > 0
