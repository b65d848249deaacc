"""Draws scenes: short rows of actions on a table of their own, which meet what other draws hardly ever meet.

A scene is as narrow as its bug. It leaves room for all other faults of its run, which go on beside it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from tests.kit.simulation.script import Action

SCENES_OF: Final = 0.5
"""Part of the runs that have a scene."""
FIRST_S: Final = 1.0
LAST_S: Final = 16.0
SHAKEN_S: Final = 0.4
"""Longest time by which an action of a scene comes late."""
Scene = tuple[tuple[float, str, tuple[str, ...]], ...]
LATE_WORD: Final[Scene] = (
    (0.0, "create", ("n1", "2", "1")),
    (2.5, "late-words", ("3.0",)),
    (3.0, "split", ("n1", "7")),
    *((after_s, "reopen-heirs", ("n1",)) for after_s in (6.5, 7.7, 8.9, 10.1)),
    (12.0, "late-words", ("0.0",)),
)
"""Heirs are opened again while the words about their first opens are on the way."""
SOURCE_DELETED: Final[Scene] = (
    (0.0, "create", ("n2", "2", "2")),
    (2.5, "disable", ("n2",)),
    (3.5, "late-words", ("6.0",)),
    (4.5, "clone", ("c3", "table", "n2")),
    *((after_s, "delete", ("n2",)) for after_s in (5.0, 6.0, 7.0)),
    (12.0, "late-words", ("0.0",)),
)
"""A table is deleted while the regions of its clone begin in it."""
SNAPSHOT_MET: Final[Scene] = (
    (0.0, "create", ("n3", "2", "5")),
    *((after_s, "freeze-server", ("s1", "2.5")) for after_s in (2.9, 8.9)),
    *((after_s, "snapshot", (f"n{after_s}", "n3")) for after_s in (3.0, 9.0)),
    *((after_s, "split", ("n3", "-")) for after_s in (3.5, 9.5)),
)
"""The first region of a table is split while a snapshot waits for a copy of another one, whose server is frozen."""
SNAPSHOTS_OF: Final = 0.12
"""Part of the runs that have it beside another one, by draws of its own."""
SCENES: Final = (LATE_WORD, SOURCE_DELETED)


def scene(seed: int) -> Iterator[Action]:
    """Yields the actions of the scenes of a seed, if it has any, by draws of their own."""
    chance = random.Random(f"{seed} scene")
    if chance.random() < SCENES_OF:
        yield from _played(chance, chance.choice(SCENES))
    chance = random.Random(f"{seed} snapshots")
    if chance.random() < SNAPSHOTS_OF:
        yield from _played(chance, SNAPSHOT_MET)


def _played(chance: random.Random, drawn: Scene) -> Iterator[Action]:
    at_s = chance.uniform(FIRST_S, LAST_S)
    for after_s, verb, words in drawn:
        yield Action(round(at_s + after_s + chance.random() * SHAKEN_S, 3), verb, words)
