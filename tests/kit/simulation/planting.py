"""Plants bugs as patches of the product, by name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from unittest import mock

Plant = Callable[[ExitStack], None]


class Bugs(dict[str, Plant]):
    """Planted bugs of a simulation. ``apart``: those that its seeds alone do not catch."""

    def __init__(self) -> None:
        super().__init__()
        self.apart: set[str] = set()

    def add(self, plant: Plant) -> Plant:
        """Registers a bug under its name."""
        self[plant.__name__.replace("_", "-")] = plant
        return plant

    def add_apart(self, plant: Plant) -> Plant:
        """Registers a bug that seeds alone do not catch."""
        self.apart.add(plant.__name__.replace("_", "-"))
        return self.add(plant)

    def planted(self, name: str | None) -> ExitStack:
        """Plants a bug, if one is named, until the stack closes."""
        stack = ExitStack()
        if name is not None:
            self[name](stack)
        return stack


def put(stack: ExitStack, target: object, name: str, value: object) -> None:
    """Replaces an attribute while the bug is planted."""
    stack.enter_context(mock.patch.object(target, name, value))
