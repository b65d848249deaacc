"""Operators who have many regions closed, and opened again, by their ids, and how often they do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from controller.regions.procedures import by_ids
from tests.kit.simulation.script import Action
from tests.simulation.regions.actions import submit, verb

if TYPE_CHECKING:
    from tests.simulation.regions.world import SimulatedRegions

RUNS: Final = 0.2
"""Part of the runs in which operators do."""
FIRST_S: Final = 3.0
LAST_S: Final = 26.0
AGAIN_S: Final = (0.1, 4.0)
"""Time from the close of regions to the request that they are opened."""
GONE: Final = 9_999_999


@verb
def close_named(world: SimulatedRegions, number: str) -> None:
    """Has some regions closed, of all tables, and one that is not there."""
    _submit(world, by_ids.CLOSE, number)


@verb
def assign_named(world: SimulatedRegions, number: str) -> None:
    """Has some regions opened, of all tables, and one that is not there."""
    _submit(world, by_ids.ASSIGN, number)


def _submit(world: SimulatedRegions, kind: str, number: str) -> None:
    some = [one for one in sorted(world.disk.regions) if (one + int(number)) % 3]
    submit(world, kind, by_ids.BY_IDS.encode(by_ids.naming([*some, GONE], "a test")))
    world.counts["named by their ids"] += len(some)


def named(seed: int) -> Iterator[Action]:
    """Yields such requests of a seed, by draws of their own."""
    chance = random.Random(f"{seed} named")
    if chance.random() >= RUNS:
        return
    at_s, number = chance.uniform(FIRST_S, LAST_S), str(chance.randint(0, 2))
    yield Action(round(at_s, 3), "close-named", (number,))
    yield Action(round(at_s + chance.uniform(*AGAIN_S), 3), "assign-named", (number,))
