"""Registers planted bugs of the regions' simulation, also in single steps of procedures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

from controller.procedures.kinds import Kind
from controller.regions.procedures import every
from tests.kit.simulation.planting import Bugs, put

MUTATIONS = Bugs()
mutation = MUTATIONS.add
audited = MUTATIONS.add_apart
"""Registers a bug that the audit of the journals alone can see."""
Step = Callable[[Any, Any], Awaitable[Any]]


def put_step(stack: ExitStack, kind: Kind[Any], name: str, changed: Callable[[Step], Step]) -> None:
    """Replaces a step of a kind, by a function of the present one."""
    steps = tuple(step._replace(execute=changed(step.execute)) if step.name == name else step for step in kind.steps)
    kinds = tuple(one._replace(steps=steps) if one.name == kind.name else one for one in every.KINDS)
    put(stack, every, "KINDS", kinds)
