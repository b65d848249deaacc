"""Plants bugs as patches of the product, by name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from unittest import mock

Plant = Callable[[ExitStack], None]
MUTATIONS: dict[str, Plant] = {}
IN_STORIES: set[str] = set()
"""Bugs that a story catches, because seeds meet them too rarely: not in the table of all."""


def mutation(plant: Plant) -> Plant:
    """Registers a bug under its name."""
    MUTATIONS[plant.__name__.replace("_", "-")] = plant
    return plant


def mutation_in_a_story(plant: Plant) -> Plant:
    """Registers a bug that a story catches."""
    IN_STORIES.add(plant.__name__.replace("_", "-"))
    return mutation(plant)


def put(stack: ExitStack, target: object, name: str, value: object) -> None:
    """Replaces an attribute while the bug is planted."""
    stack.enter_context(mock.patch.object(target, name, value))
