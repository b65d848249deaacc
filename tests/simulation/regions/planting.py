"""Plants bugs as patches of the product, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

from controller.procedures.kinds import Kind
from controller.regions.kinds import every
from tests.simulation.kafka.planting import Plant, put

__all__ = ["AUDITED", "MUTATIONS", "audited", "mutation", "put", "put_step"]

MUTATIONS: dict[str, Plant] = {}
AUDITED: set[str] = set()
"""Bugs that the audit of the journals alone can see."""
Step = Callable[[Any, Any], Awaitable[Any]]


def mutation(plant: Plant) -> Plant:
    """Registers a bug under its name."""
    MUTATIONS[plant.__name__.replace("_", "-")] = plant
    return plant


def audited(plant: Plant) -> Plant:
    """Registers a bug that the audit alone can see."""
    AUDITED.add(plant.__name__.replace("_", "-"))
    return mutation(plant)


def put_step(stack: ExitStack, kind: Kind[Any], name: str, changed: Callable[[Step], Step]) -> None:
    """Replaces a step of a kind, by a function of the present one."""
    steps = tuple(step._replace(execute=changed(step.execute)) if step.name == name else step for step in kind.steps)
    kinds = tuple(one._replace(steps=steps) if one.name == kind.name else one for one in every.KINDS)
    put(stack, every, "KINDS", kinds)
