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
async def test_a_clients_call_reaches_a_daemon(tmp_path: Path) -> None:
    """The other calls take longer: see ``tests/verify/test_benchmarks_calls.py``."""
    turns = await calls.play(TINY, tmp_path, None, ("T1c",))
    assert [len(turns["T1c"]), bool(turns["T1c"][0].ready_s)] == [TINY.rounds, True]
