"""Judges what one row of a region shows by itself: its transition is in the table (A6)."""

from __future__ import annotations

from typing import Final

from state_machines.journal.events import Row
from state_machines.regions.states import VALID_PREVIOUS, RegionState

REGION_STEPS: Final = frozenset(
    {(before.name, after.name) for after, froms in VALID_PREVIOUS.items() for before in froms}
    | {(state.name, state.name) for state in RegionState}
    | {("", RegionState.OFFLINE.name)}
)
"""States of a region before and after. One that is new has none before; where a procedure begins it keeps its state."""


def region_states(row: Row) -> str | None:
    """Checks A6 of regions."""
    before, after = row.from_state or "", row.to_state or ""
    return None if (before, after) in REGION_STEPS else f"illegal transition {before or 'nothing'} -> {after}"
