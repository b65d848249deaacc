"""Sums up many runs, as text and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.kafka.faults import REQUIRED
from tests.simulation.kafka.world import Outcome

SHARE_MIN: Final = 0.01
"""Share of the seeds in which each fault must occur."""


@dataclass
class Totals:
    """Holds sums over seeds. ``cpu_s`` is of the runs alone, ``elapsed_s`` of everything."""

    seeds: int = 0
    actions: int = 0
    events: int = 0
    handles: int = 0
    simulated_s: float = 0.0
    cpu_s: float = 0.0
    elapsed_s: float = 0.0
    fewest_events: int = 0
    slowest: tuple[float, int] = (0.0, 0)
    compared: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    seeds_with: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)

    def add(self, outcome: Outcome, actions: int, cpu_s: float, *, compared: bool) -> None:
        """Adds one run."""
        self.fewest_events = min(self.fewest_events or outcome.events, outcome.events)
        self.seeds += 1
        self.actions += actions
        self.events += outcome.events
        self.handles += outcome.handles
        self.simulated_s += outcome.simulated_s
        self.cpu_s += cpu_s
        self.slowest = max(self.slowest, (cpu_s, outcome.seed))
        self.compared += compared
        self.happened.update(outcome.counts)
        self.seeds_with.update(outcome.counts.keys())
        if outcome.violation is not None:
            self.failed[outcome.seed] = str(outcome.violation)

    @property
    def rare(self) -> list[str]:
        """Returns faults that occurred in too few seeds."""
        return [fault for fault in REQUIRED if self.seeds_with[fault] < SHARE_MIN * self.seeds]

    def as_json(self) -> str:
        """Returns all figures as JSON."""
        seeds = max(1, self.seeds)
        faults = {
            fault: {"times": times, "share_of_seeds": round(self.seeds_with[fault] / seeds, 4)}
            for fault, times in sorted(self.happened.items())
        }
        figures = {
            "seeds": self.seeds,
            "failed": self.failed,
            "simulated_hours": round(self.simulated_s / 3600, 2),
            "actions": self.actions,
            "events": self.events,
            "fewest_events_of_a_seed": self.fewest_events,
            "loop_turns": self.handles,
            "seeds_compared_with_unmerged_requests": self.compared,
            "cpu_s": round(self.cpu_s, 1),
            "elapsed_s": round(self.elapsed_s, 1),
            "seeds_per_s": round(self.seeds / max(self.elapsed_s, 1e-9), 2),
            "slowest_seed": {"seed": self.slowest[1], "cpu_s": round(self.slowest[0], 2)},
            "faults": faults,
        }
        return json.dumps(figures, indent=2)

    def as_text(self) -> str:
        """Returns the figures for people."""
        seeds = max(1, self.seeds)
        a_seed = f"{self.events // seeds} a seed, {self.fewest_events} at least"
        slowest = f"slowest {self.slowest[1]} with {self.slowest[0]:.1f} s"
        heads = [
            f"{self.seeds} seeds, {len(self.failed)} failed, {self.simulated_s / 3600:.1f} simulated hours",
            f"{self.actions} actions, {self.events} events ({a_seed})",
            f"{self.elapsed_s:.0f} s, {self.seeds / max(self.elapsed_s, 1e-9):.1f} seeds/s",
            f"{self.cpu_s / seeds:.2f} s of CPU a seed, {slowest}",
            f"merged and unmerged requests compared in {self.compared} seeds",
        ]
        shares = [
            f"  {self.happened[fault]:8} {100 * self.seeds_with[fault] / seeds:5.1f} % of seeds  {fault}"
            for fault in sorted(self.happened)
        ]
        return "\n".join(heads + shares)
