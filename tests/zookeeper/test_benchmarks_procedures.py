"""The benchmark of steps runs on a real ZooKeeper."""

from __future__ import annotations

from pathlib import Path

from benchmarks.procedures import steps
from benchmarks.procedures.plan import TINY


async def test_procedures_run_on_zookeeper(tmp_path: Path) -> None:
    rows = await steps.measure(TINY, tmp_path)
    assert [row.case for row in rows] == ["S4-100", "S4-400"]
    assert all(row.ours.rounds == steps.ROUNDS for row in rows)
