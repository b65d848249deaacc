"""Every kind of procedure of the daemon has a kill test; a new kind without one fails here."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from controller.kafka.term.procedures import KINDS
from tests.kit.kafka.recorded_calls import CALLS

MODULES = [import_module(f"tests.kills.{path.stem}") for path in sorted(Path(__file__).parent.glob("test_*.py"))]


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS if kind.steps])
def test_the_kind_is_killed_at_every_write(kind: str) -> None:
    """Its module has its name."""
    own = [module for module in MODULES if module.__name__.startswith(f"tests.kills.test_{kind}")]
    names = [name for module in own for name in vars(module) if name.startswith("test_")]
    assert any("killed_at_any_write" in name for name in names), names


def test_every_kind_of_recorded_call_is_killed_at_every_write() -> None:
    """Calls have no steps: they are killed where clients make them."""
    recorded = {kind.name for kind in KINDS if not kind.steps}
    assert recorded == {call.kind.value for call in CALLS}
