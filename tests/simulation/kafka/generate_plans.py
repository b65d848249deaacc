"""Draws reassign plans of operators in a run, apart from everything else: often together, and cancelled by others."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from tests.kit.simulation.script import Action, Word

SHARE: Final = 0.35
"""Share of seeds in which there are plans."""
PLANS: Final = (1, 4)
FOREIGN_RATE: Final = 100
"""First of the rates that other clients set."""


def plans(seed: int, topics: Sequence[str], brokers: Sequence[int], begin_s: float, end_s: float) -> list[Action]:
    """Draws plans, of which some are paused, given another rate, stopped or taken back."""
    r = Random(f"{seed} plans")
    if r.random() >= SHARE:
        return []
    actions: list[Action] = []
    for number in range(r.randint(*PLANS)):
        together = actions and r.random() < 0.4
        at_s = actions[-1].at_s + r.uniform(0.0, 1.0) if together else r.uniform(begin_s, max(begin_s, end_s))
        targets = [_target(r, topics, brokers) for _ in range(r.choice((1, 3, 8)))]
        caps: tuple[Word, ...] = r.choice((1, 2, 100)), r.choice((0, 0, 5_000))
        actions.append(Action(round(at_s, 3), "plan", (f"n{number}", *caps, *dict.fromkeys(targets))))
        if r.random() < 0.4:
            cancelled = [f"{target.rpartition('/')[0]}/-" for target in targets]
            actions.append(Action(round(at_s + r.uniform(0.0, 1.5), 3), "reassign", tuple(dict.fromkeys(cancelled))))
        for _ in range(r.choice((0, 1, 1, 2))):
            at_s += r.uniform(0.0, 8.0)
            verb, *words = r.choice(
                (
                    ("plan-abort",),
                    ("plan-abort",),
                    ("plan-command", "stop"),
                    ("plan-command", "pause"),
                    ("plan-command", "rate"),
                )
            )
            actions.append(Action(round(at_s, 3), verb, (f"n{number}", *words)))
    return actions


def throttles(seed: int, brokers: Sequence[int], planned: Sequence[Action]) -> list[Action]:
    """Draws rates that other clients set on brokers around plans with a throttle; no plan has such a rate."""
    r = Random(f"{seed} throttles")
    around = [action.at_s for action in planned if action.verb == "plan" and action.words[2]]
    actions: list[Action] = []
    for at_s in around:
        for _ in range(r.choice((0, 1, 3))):
            moment_s = max(0.0, at_s + r.uniform(-2.0, 6.0))
            actions.append(Action(round(moment_s, 3), "throttle", (r.choice(brokers), FOREIGN_RATE + len(actions))))
    return actions


def _target(r: Random, topics: Sequence[str], brokers: Sequence[int]) -> str:
    replicas = r.sample(brokers, r.randint(1, min(3, len(brokers))))
    return f"{r.choice(topics)}/{r.choice((0, 0, 1, 2))}/{','.join(map(str, replicas))}"
