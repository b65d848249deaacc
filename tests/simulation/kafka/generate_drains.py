"""Draws drains and shutdowns by command in a run, apart from everything else."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from tests.kit.simulation.script import Action, Word

SHARE: Final = 0.35
"""Share of seeds in which brokers are drained."""
DRAINS: Final = (1, 4)


def drains(seed: int, brokers: Sequence[int], begin_s: float, end_s: float) -> list[Action]:
    """Draws drains, of which some move replicas, some are taken back, and most are undone; and shutdowns."""
    r = Random(f"{seed} drains")
    if r.random() >= SHARE:
        return []
    actions: list[Action] = []
    for number in range(r.randint(*DRAINS)):
        at_s = r.uniform(begin_s, max(begin_s, end_s))
        chosen: tuple[Word, ...] = tuple(r.sample(brokers, min(r.choice((1, 1, 2, len(brokers) - 1)), len(brokers))))
        replicas = r.choice((0, 0, 1))
        actions.append(Action(round(at_s, 3), "drain", (f"d{number}", replicas, *chosen)))
        if r.random() < 0.4:
            actions.append(
                Action(round(at_s + r.choice((0.001, 0.02, r.uniform(0.0, 8.0))), 3), "drain-abort", (f"d{number}",))
            )
        if r.random() < 0.6:
            actions.append(Action(round(at_s + r.uniform(0.5, 20.0), 3), "undrain", chosen))
    for _ in range(r.choice((0, 1, 2))):
        words: tuple[Word, ...] = r.choice(brokers), round(r.choice((0.05, 1.0, 8.0)), 3)
        actions.append(Action(round(r.uniform(begin_s, max(begin_s, end_s)), 3), "shutdown-broker", words))
    return actions
