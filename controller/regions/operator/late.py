"""Warns of regions that hang, or whose attempts fail again and again: the first few by name."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from controller.process.wording import counted
from controller.regions.environment import RegionsEnv
from controller.regions.in_transition import LATE_MAX, Aged, age_ms, wait_of
from controller.regions.operator.items import cause_of, message_of
from controller.regions.procedures.messages import Transit
from controller.regions.term import RegionsTerm
from state_machines.procedures.kernel import STUCK_ATTEMPTS

LOOKED_AT_MAX: Final = 1_000
"""Failed attempts that one look goes through, the latest first."""


def late(term: RegionsTerm, overdue: int) -> Iterator[str]:
    """Yields a sentence for each of the first regions that are overdue, or fail again and again; counts the others."""
    found = term.ages.late()
    named = {one.region.id for one in found}
    stuck = (one for one in _stuck(term) if one.region.id not in named)
    shown = [*found, *islice(stuck, LATE_MAX - len(found))]
    for one in shown:
        yield _told(one, term.env)
    if overdue > len(found):
        yield (
            f"{counted(overdue - len(found), 'more region')} in transition for over "
            f"{term.options.transit_warning_ms / 1000:g} s: see 'regent regions transitions'"
        )


def _stuck(term: RegionsTerm) -> Iterator[Aged]:
    """Yields regions whose opens failed too often."""
    for pid, cause in islice(term.env.causes.items(), LOOKED_AT_MAX):
        region, record = term.env.model.regions.get(cause.region), term.engine.records.get(pid)
        if region is None or record is None or region.pid != pid:
            continue
        task = message_of(record)
        if isinstance(task, Transit) and task.retries >= STUCK_ATTEMPTS:
            yield Aged(region, age_ms(region, record, term.env), record)


def _told(one: Aged, env: RegionsEnv) -> str:
    region, record = one.region, one.record
    mover = "" if record is None else f"procedure {record.pid} ({record.kind}): "
    waits = f"it waits until {wait_of(region, env).what}"
    parts = [f"{mover}region {region} is in transition for {one.age_ms / 1000:.0f} s: {waits}"]
    if record is not None:
        task = message_of(record)
        if isinstance(task, Transit) and task.retries:
            parts.append(f"{counted(task.retries, 'attempt')} in vain")
        if cause := cause_of(record, env):
            parts.append(f"in the last attempt {cause}")
    parts.append(f"see 'regent regions explain {region.id}'")
    return "; ".join(parts)
