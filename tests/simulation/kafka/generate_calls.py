"""Draws calls of admin clients in a run, apart from everything else."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from tests.kit.simulation.script import Action

SHARE: Final = 0.6
"""Share of seeds in which there are calls."""
CALLS: Final = (2, 12)


def calls(seed: int, topics: Sequence[str], brokers: int, begin_s: float, end_s: float) -> list[Action]:
    """Draws topics that clients create, grow and delete by call; ``topics``: those that a script makes otherwise."""
    r = Random(f"{seed} calls")
    if r.random() >= SHARE:
        return []
    names, own = list(topics), 0
    actions: list[Action] = []
    for at_s in sorted(r.uniform(begin_s, max(begin_s, end_s)) for _ in range(r.randint(*CALLS))):
        verb = r.choice(("call-create", "call-create", "call-grow", "call-delete"))
        if verb == "call-create":
            name, own = (f"c{own}", own + 1) if r.random() < 0.9 else (r.choice(names), own)
            names += [name, name, name]
            words: tuple[str | int, ...] = name, r.choice((1, 2, 6)), r.randint(1, min(3, brokers))
        else:
            words = (r.choice(names), r.randint(1, 3)) if verb == "call-grow" else (r.choice(names),)
        actions.append(Action(round(at_s, 3), verb, words))
    return actions
