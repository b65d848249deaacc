"""Faults and commands on real sockets, on each store: no double owner, no ended term, nothing left at rest."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from random import SystemRandom

import pytest

from tests.verify.region_fuzz.stage import FENCES, ROUND_S, STORES, Stage

SECONDS = float(os.environ.get("REGENT_FUZZ_S") or 600)
"""Time on each store."""
LATE = 3


@pytest.mark.timeout(LATE * SECONDS + 900)
@pytest.mark.parametrize("store", STORES)
async def test_nothing_is_left_that_operators_cannot_end_or_see(
    store: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    seed = int(os.environ.get("REGENT_SEED") or SystemRandom().randrange(10**6))
    fence = FENCES[seed % len(FENCES)]
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))  # the path of a socket has at most 96 bytes
    print(f"REGENT_SEED={seed} repeats this run's choices, fence {fence}; its logs are in {folder}")
    stage = Stage(folder, store, fence, seed)
    await stage.run(SECONDS, ROUND_S)
    print(stage.figures())
    assert stage.owners.counts["opens"]
    assert not stage.faults(), "\n".join(stage.faults()[:20])
