"""How bugs are planted: patches of the product, by name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from unittest import mock

Plant = Callable[[ExitStack], None]
MUTATIONS: dict[str, Plant] = {}


def mutation(plant: Plant) -> Plant:
    """Registers one under its name."""
    MUTATIONS[plant.__name__.replace("_", "-")] = plant
    return plant


def put(stack: ExitStack, target: object, name: str, value: object) -> None:
    """Replaces an attribute while the bug is planted."""
    stack.enter_context(mock.patch.object(target, name, value))
