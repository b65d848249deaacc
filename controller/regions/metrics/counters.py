"""Declares plain counters of the regions' domain, which the metrics read at scrape time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.metrics.counters import Timer
from state_machines.procedures.states import State
from state_machines.procedures.transition import Transition

CRASH: Final = "crash"
"""Kind of the procedures that deal with crashed servers."""


@dataclass
class RegionCounters:
    """Counts that only grow, over all terms of the process."""

    terms: int = 0
    batches: int = 0
    operations: int = 0
    reports: int = 0
    results: int = 0
    journal_rows: int = 0
    journal_rows_lost: int = 0
    journal_bytes: int = 0
    journal_failing: str = ""
    refusals: Counter[str] = field(default_factory=Counter)
    hellos_refused: Counter[str] = field(default_factory=Counter)
    submitted: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    times: defaultdict[str, Timer] = field(default_factory=lambda: defaultdict(Timer))

    @property
    def crashes(self) -> Timer:
        """Returns the times of crash handling, from the start of a procedure to its end."""
        return self.times[CRASH]

    def moved(self, moved: Sequence[Transition]) -> None:
        """Counts durable changes of procedures."""
        for before, after in moved:
            if before is None:
                self.submitted[after.kind] += 1
            if after.state.is_final and (before is None or not before.state.is_final):
                self.times[after.kind].record(max(0, after.updated_ms - after.submitted_ms) / 1000)
                if after.state is not State.SUCCESS:
                    self.failed[after.kind] += 1
