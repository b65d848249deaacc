"""What-if agrees with simulated clusters whose brokers and racks really die; tests/verify has fifty larger ones."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("numpy", reason="NumPy is not installed")

from pipeline import what_if
from state_machines.machines.selectors import offline
from tests.kit.simulation.seeds import in_child
from tests.simulation.kafka.losing import Losses, lose_each

SMALL = (5, 6), (60, 80)


@pytest.mark.parametrize("seed", [1, 3, 6])
def test_each_loss_costs_what_was_said(tmp_path: Path, seed: int) -> None:
    found = in_child(lose_each, seed, tmp_path, *SMALL)
    assert found.differences == []
    assert found.compared >= 6
    assert found.moved > 100
    assert found.under > 0


def test_a_rule_that_elects_the_last_replica_is_found_out(tmp_path: Path) -> None:
    found = in_child(_with_another_rule, 1, tmp_path)
    assert len(found.differences) > found.compared // 2


def _with_another_rule(seed: int, folder: Path) -> Losses:
    """Breaks the rule and the count alike, which would hide it from their comparison."""

    def last(replicas: Any, isr: Any, **known: Any) -> Any:
        return offline(replicas[::-1], isr, **known)

    def counted(self: Any, lost: tuple[int, ...]) -> Any:
        return self.decided(frozenset(lost))

    with ExitStack() as broken:
        broken.enter_context(mock.patch.object(what_if, "offline", last))
        broken.enter_context(mock.patch.object(what_if._World, "counted", counted))
        return lose_each(seed, folder, *SMALL)
