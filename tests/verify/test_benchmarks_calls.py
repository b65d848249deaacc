"""The benchmark of clients' calls runs on a real ZooKeeper, with each kind of call."""

from __future__ import annotations

from pathlib import Path

from benchmarks.procedures import calls
from benchmarks.procedures.plan import TINY


async def test_clients_calls_reach_a_daemon(tmp_path: Path) -> None:
    turns = await calls.play(TINY, tmp_path, None)
    assert {case: len(found) for case, found in turns.items()} == dict.fromkeys(("T1c", "R1c", "P1c"), TINY.rounds)
    assert all(turn.ready_s for found in turns.values() for turn in found)
