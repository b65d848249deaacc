"""Puts a calm into a run: hardly any actions for more than a minute, and stopped processes stay stopped.

Work that is stuck has no later event that would make it go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from tests.kit.simulation.script import Action, Word

SHARE: Final = 0.27
"""Share of seeds with a calm."""
LENGTH_S: Final = (72.0, 78.0)
"""A minute, and the time until troubles that began before it are over."""
TROUBLED: Final = ("crash-broker", "crash-broker", "cut-broker", "refuse-broker", "lag-broker", "kill-daemon")
TROUBLES_MAX: Final = 3


def with_calm(seed: int, actions: Sequence[Action], brokers: Sequence[int], daemons: int) -> list[Action]:
    """Returns the actions, in some seeds with a calm between two of them."""
    r = Random(f"{seed} calm")
    if r.random() >= SHARE:
        return list(actions)
    begin_s, length_s = r.choice(actions).at_s, r.uniform(*LENGTH_S)
    return [
        *(action if action.at_s <= begin_s else action.later(length_s) for action in actions),
        *(_trouble(r, begin_s, length_s, brokers, daemons) for _ in range(r.randint(0, TROUBLES_MAX))),
    ]


def _trouble(r: Random, begin_s: float, length_s: float, brokers: Sequence[int], daemons: int) -> Action:
    """Draws a fault that lasts for the whole calm."""
    verb, at_s = r.choice(TROUBLED), max(0.5, begin_s - r.uniform(0.0, 3.0))
    words: tuple[Word, ...] = r.choice(brokers) if verb != "kill-daemon" else r.randrange(daemons), round(length_s, 3)
    return Action(round(at_s, 3), verb, words)
