"""Whole clusters in virtual time: some hundred seeds hold every invariant, and a seed is a run, exactly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.generate import generate
from tests.simulation.plan import parse
from tests.simulation.runner import catch_each, in_child, run_seeds, shrunk
from tests.simulation.runner import play_planted as play

ROOT = Path(__file__).resolve().parents[2]
STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))
SEEDS = 300
EVENTS_MIN = 300
QUICKLY_CAUGHT = "skip-the-fence"


def test_seeds_hold_every_invariant_and_meet_every_fault() -> None:
    totals = run_seeds(0, SEEDS)
    assert not totals.failed
    assert totals.seeds == SEEDS
    assert totals.fewest_events >= EVENTS_MIN
    assert not totals.rare


def test_a_seed_is_the_same_run_whatever_the_hashes_of_strings() -> None:
    """I16."""
    script = (
        "from tests.simulation.generate import generate\n"
        "from tests.simulation.world import play\n"
        "print(play(generate(7)).digest)"
    )
    here = in_child(play, generate(7)).digest
    assert in_child(play, generate(7)).digest == here
    for hashes in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert there.stdout.strip() == here


def test_a_script_survives_its_text() -> None:
    plan = generate(11)
    assert str(parse(str(plan))) == str(plan)
    assert in_child(play, parse(str(plan))).digest == in_child(play, plan).digest


def test_a_planted_bug_is_caught_and_its_story_is_short() -> None:
    [(_, caught)] = catch_each([QUICKLY_CAUGHT], 20)
    assert caught is not None
    _, outcome = caught
    assert outcome.violation is not None
    plan = generate(outcome.seed)
    story = shrunk(plan, outcome.violation.invariant, QUICKLY_CAUGHT)
    again = in_child(play, story, QUICKLY_CAUGHT).violation
    assert again is not None
    assert again.invariant == outcome.violation.invariant
    assert len(story.actions) < len(plan.actions) / 4
    assert in_child(play, story).violation is None


@pytest.mark.parametrize("path", STORIES, ids=lambda path: str(path.stem))
def test_a_story_that_once_failed(path: Path) -> None:
    """Its bug is planted once more, where it is known by a name: the story catches it, and is clean without it."""
    plan = parse(path.read_text(encoding="utf-8"))
    assert in_child(play, plan).violation is None
    if plan.catches is not None:
        assert in_child(play, plan, plan.catches).violation is not None
