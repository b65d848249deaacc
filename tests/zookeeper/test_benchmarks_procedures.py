"""The benchmark of steps runs on a real ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.procedures import calls, steps, terms
from benchmarks.procedures.plan import TINY


async def test_procedures_run_on_zookeeper(tmp_path: Path) -> None:
    rows = await steps.measure(TINY, tmp_path)
    assert [row.case for row in rows] == ["S4x100", "S4x400"]
    assert all(row.ours.rounds == steps.ROUNDS for row in rows)


async def test_plans_begin_as_procedures_and_by_the_handler(tmp_path: Path) -> None:
    [row] = await terms.plans(TINY, tmp_path)
    assert (row.ours.rounds, row.ratio is not None) == (TINY.rounds, True)


async def test_a_daemon_takes_office_with_and_without_records(tmp_path: Path) -> None:
    rows = await terms.failovers(TINY, tmp_path)
    assert [row.case for row in rows] == ["F4", "F4t"]
    assert all(row.ratio is not None for row in rows)


@pytest.mark.timeout(300)  # a busy machine takes long
async def test_clients_calls_reach_a_daemon(tmp_path: Path) -> None:
    turns = await calls.play(TINY, tmp_path, None)
    assert {case: len(found) for case, found in turns.items()} == dict.fromkeys(("T1c", "R1c", "P1c"), TINY.rounds)
    assert all(turn.ready_s for found in turns.values() for turn in found)
