"""Regions in virtual time: thirty seeds hold every invariant, and each command ends or names one that does."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kit.simulation.seeds import Violation, in_child
from tests.simulation.regions.generate import generate
from tests.simulation.regions.mutations import MUTATIONS
from tests.simulation.regions.mutations_moving import believe_rows_after_a_failover
from tests.simulation.regions.operating import Refusal
from tests.simulation.regions.plan import RegionPlan, parse
from tests.simulation.regions.runner import BENCH, play_planted, run_seeds
from tests.simulation.regions.situations import SITUATIONS
from tests.simulation.regions.ways_out import ALL, COMMANDS, EVENTS, NOTHING_HANGS, Play, played, played_names
from tests.simulation.regions.world import play

ROOT = Path(__file__).resolve().parents[3]
SEEDS = 30
QUICKLY_CAUGHT = "keep-the-token-of-the-first-server"
MET = (
    "abort",
    "balanced",
    "bypass",
    "cordon",
    "clone",
    "cut off",
    "died at a write",
    "discarded",
    "ended by an operator",
    "ended by the agent",
    "expire",
    "freeze-daemon",
    "hold",
    "hold-machine",
    "impostor client refused",
    "independent",
    "impostor server refused",
    "late",
    "late-words",
    "records lost",
    "left",
    "lost",
    "pin",
    "merge",
    "modify",
    "named by their ids",
    "operate",
    "records removed",
    "reopen-heirs",
    "replace-server",
    "reshaped",
    "snapshots made",
    "split",
    "unmark",
    "ways out",
    "wall",
    "write refused",
)
"""What the seeds have to meet, so that they show something."""


@pytest.mark.seed("S1-1", "S1-14", "S1-15", "S1-19", "S1-20", "S1-22", "S1-23")
@pytest.mark.seed("S0-11", "S1-83", "S1-84", "S1-85", "S1-86", "S1-87", "S1-91", "S3-1", "S3-36")
def test_seeds_hold_every_invariant_and_meet_every_fault() -> None:
    totals = run_seeds(0, SEEDS, jobs=2)
    assert not totals.failed
    assert totals.seeds == SEEDS
    assert not [name for name in MET if not totals.counts[name]]


def test_a_seed_is_the_same_run_under_other_hashes_of_strings() -> None:
    script = (
        "from tests.simulation.regions.generate import generate\n"
        "from tests.simulation.regions.world import play\n"
        "print(play(generate(3)).digest, flush=True)\n"
        "import os; os._exit(0)"
    )
    digests = {in_child(play_planted, generate(3)).digest}
    for hashes in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        digests.add(there.stdout.strip())
    assert len(digests) == 1


def test_a_script_survives_its_text() -> None:
    plan = generate(3)
    assert str(parse(str(plan))) == str(plan)
    assert in_child(play_planted, parse(str(plan))).digest == in_child(play_planted, plan).digest


def test_a_planted_bug_is_caught_and_its_story_is_short() -> None:
    [(_, caught)] = BENCH.catch_each([QUICKLY_CAUGHT], 20)
    assert caught is not None
    plan = generate(caught.seed)
    story = BENCH.shrunk(plan, caught.violation.invariant, QUICKLY_CAUGHT)
    assert len(story.actions) < len(plan.actions) / 2
    assert in_child(play_planted, story).violation is None


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_planted_bug_fits_the_product(name: str) -> None:
    with ExitStack() as stack:
        MUTATIONS[name](stack)


LOST_RECORDS = """
seed 1
servers good good good
placement round_robin
1.000 create t1 2 5
6.000 lose-records 1
9.000 lose-records 2
12.000 lose-records 3
"""


def test_a_region_whose_records_are_lost_is_not_given_away_while_a_server_may_have_it() -> None:
    plan = parse(LOST_RECORDS)
    assert in_child(play_planted, plan).violation is None
    violation = in_child(_believing, plan)
    assert violation is not None
    assert violation.invariant == "NoDoubleAssignment"


def _believing(plan: RegionPlan) -> Violation | None:
    with ExitStack() as stack:
        believe_rows_after_a_failover(stack)
        return play(plan).violation


EVERY = 53
"""Of so many cases one is played here, all of them in tests/verify; it has no factor in common with the commands."""
SOME = ALL[::EVERY]


@pytest.mark.parametrize("play", SOME, ids=str)
def test_a_command_is_accepted_and_ends_or_its_refusal_names_one_that_is(play: Play) -> None:
    played(play)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_each_command_that_an_explanation_names_is_accepted_and_leaves_nothing_half_way(situation: str) -> None:
    played_names(situation, "nothing")


def test_some_cases_have_every_situation_event_and_command() -> None:
    assert {one.situation for one in SOME} == set(SITUATIONS)
    assert {one.event for one in SOME} == set(EVENTS)
    assert {one.command for one in SOME} == set(COMMANDS)
    assert set(SITUATIONS) >= NOTHING_HANGS


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("it is closed | 'regent regions assign 17' opens it", ["regions assign 17"]),
        ("'regent tables enable t' opens it", ["tables enable t"]),
        ("regent regions move 17 SERVER moves it; wait", ["regions move 17 SERVER"]),
        ("wait, or 'regent regions procedures bypass 12', see 'regent servers list'",
         ["regions procedures bypass 12", "servers list"]),
        ("nothing helps", []),
    ],
)  # fmt: skip
def test_commands_are_found_in_sentences(text: str, commands: list[str]) -> None:
    assert Refusal(text).commands == commands
