"""What-if for each broker and each rack agrees with their death, in fifty simulated clusters of any size."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="NumPy is not installed")

from tests.kit.simulation.seeds import pool
from tests.simulation.kafka.losing import Losses, lose_each

SEEDS = 50
BROKERS = 5, 30
PARTITIONS = 500, 700


@pytest.mark.timeout(3_000)
def test_each_loss_costs_what_was_said(tmp_path: Path) -> None:
    found: list[Losses] = []
    with pool(None) as children:
        for one in children.imap_unordered(_losses, [(seed, tmp_path / str(seed)) for seed in range(SEEDS)]):
            print(one, flush=True)
            found.append(one)
    assert [line for one in found for line in one.differences] == []
    assert min(one.partitions for one in found) >= PARTITIONS[0]
    assert sum(one.dead > 0 for one in found) > SEEDS // 4
    assert all(one.compared >= one.brokers - one.dead for one in found)
    assert min(one.offline for one in found) > 0


def _losses(of: tuple[int, Path]) -> Losses:
    return lose_each(*of, BROKERS, PARTITIONS)
