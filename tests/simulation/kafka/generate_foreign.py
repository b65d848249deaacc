"""Draws writes of tools and people as no controller makes them, and a run's IBP, apart from everything else."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from brokers.wire.versions import accepted
from tests.kit.simulation.script import Action

SHARE: Final = 0.4
"""Share of seeds in which there is such a tool."""
WRITES: Final = (2, 8)
SUCCEEDED: Final = 0.5
"""Share of the writes shortly before or after which a daemon is killed: the next term has no model yet."""
ALL: Final = 0.15
"""Share of the rewrites of all topics: then no topic seems to have had an id."""
SILENCED: Final = 0.5
"""Share of the killed daemons whose successor finds a broker frozen or cut off."""
ANY_IBP: Final = 0.5
"""Share of seeds with any of the IBPs that are accepted; the others have the oldest or the newest kind."""


def ibp_of(seed: int, extreme: str) -> str:
    """Returns the IBP of a seed."""
    r = Random(f"{seed} ibp")
    return r.choice(accepted()) if r.random() < ANY_IBP else extreme


def foreign(
    seed: int, topics: Sequence[str], brokers: Sequence[int], daemons: int, begin_s: float, end_s: float
) -> list[Action]:
    """Draws topics rewritten without their ids while brokers fall silent, and states that are garbage for a while."""
    r = Random(f"{seed} foreign")
    if r.random() >= SHARE:
        return []
    actions: list[Action] = []
    for _ in range(r.randint(*WRITES)):
        at_s, name = r.uniform(begin_s, max(begin_s, end_s)), r.choice(topics)
        if r.random() < 0.5:
            names = topics if r.random() < ALL else (name,)
            actions += [Action(round(at_s, 3), "rewrite-topic", (one,)) for one in names]
        else:
            words = name, r.choice((0, 0, 1, 2)), round(r.uniform(0.5, 12.0), 3)
            actions.append(Action(round(at_s, 3), "scribble-state", words))
        if r.random() < SUCCEEDED:
            killed_s = max(begin_s, at_s + r.uniform(-0.5, 0.5))
            words_ = r.randrange(daemons), round(r.uniform(0.1, 4.0), 3)
            actions.append(Action(round(killed_s, 3), "kill-daemon", words_))
            if r.random() < SILENCED:
                silent_s = max(begin_s, killed_s + words_[1] + r.uniform(-1.0, 1.0))
                silenced = r.choice(brokers), round(r.uniform(0.5, 12.0), 3)
                actions.append(Action(round(silent_s, 3), r.choice(("freeze-broker", "cut-broker")), silenced))
    return actions
