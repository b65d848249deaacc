"""Whole clusters in virtual time: sixty seeds hold every invariant, and equal seeds are equal runs."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kit.simulation.seeds import in_child
from tests.simulation.kafka.__main__ import main, parsed
from tests.simulation.kafka.generate import generate
from tests.simulation.kafka.mutations import MUTATIONS
from tests.simulation.kafka.plan import parse
from tests.simulation.kafka.runner import BENCH, run_seeds
from tests.simulation.kafka.runner import play_planted as play

ROOT = Path(__file__).resolve().parents[3]
STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))
SEEDS = 60
EVENTS_MIN = 300
SMALL = 13
"""A seed with small limits that does not compare merged and unmerged requests."""
QUICKLY_CAUGHT = "skip-the-fence"
STOPPED = """\
seed 0
brokers 1 2 3
daemons 1
ibp 3.9-IV0
absence hold
servers 1
1.248 topic t2 3,1,2
6.000 stop-daemon 0 2.000
"""


def test_seeds_hold_every_invariant_and_meet_every_fault() -> None:
    totals = run_seeds(0, SEEDS)
    assert not totals.failed
    assert totals.seeds == SEEDS
    assert totals.fewest_events >= EVENTS_MIN
    assert not totals.rare


def test_a_seed_is_the_same_run_under_other_hashes_of_strings() -> None:
    """Checks I16."""
    script = (
        "from tests.simulation.kafka.generate import generate\n"
        "from tests.simulation.kafka.world import play\n"
        f"print(play(generate({SMALL})).digest)"
    )
    here = in_child(play, generate(SMALL)).digest
    assert in_child(play, generate(SMALL)).digest == here
    for hashes in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert there.stdout.strip() == here


def test_a_script_survives_its_text() -> None:
    plan = generate(SMALL)
    assert plan.limits is not None
    assert str(parse(str(plan))) == str(plan)
    assert in_child(play, parse(str(plan))).digest == in_child(play, plan).digest


def test_a_stopped_daemon_exits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    story = tmp_path / "story.txt"
    story.write_text(STOPPED)
    monkeypatch.setattr(sys, "argv", ["simulation", "--story", str(story), "--verbose"])
    assert main() == 0
    assert "daemon 0 exits" in capsys.readouterr().out


def test_a_planted_bug_is_caught_and_its_story_is_short() -> None:
    [(_, caught)] = BENCH.catch_each([QUICKLY_CAUGHT], 20)
    assert caught is not None
    plan = generate(caught.seed)
    story = BENCH.shrunk(plan, caught.violation.invariant, QUICKLY_CAUGHT)
    again = in_child(play, story, QUICKLY_CAUGHT).violation
    assert again is not None
    assert again.invariant == caught.violation.invariant
    assert len(story.actions) < len(plan.actions) / 4
    assert in_child(play, story).violation is None


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_planted_bug_fits_the_product(name: str) -> None:
    with ExitStack() as stack:
        MUTATIONS[name](stack)


def test_a_bug_that_seeds_meet_too_rarely_has_its_story() -> None:
    assert {parse(path.read_text(encoding="utf-8")).catches for path in STORIES} >= MUTATIONS.apart


@pytest.mark.parametrize("path", STORIES, ids=lambda path: str(path.stem))
def test_a_story_is_clean_and_catches_its_bug(path: Path) -> None:
    """Plays a story with and without the planted bug that it names; some bugs cannot be planted."""
    plan = parse(path.read_text(encoding="utf-8"))
    assert in_child(play, plan).violation is None
    if plan.catches is not None:
        assert in_child(play, plan, plan.catches).violation is not None


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("--seeds 0", "0 is not a number from 1 up"),
        ("--seeds -3", "-3 is not a number from 1 up"),
        ("--story nowhere.txt", "nowhere.txt cannot be read: No such file"),
        (f"--story {ROOT}/tests/stories/conflict.txt", "conflict.txt is no story as in tests/simulation/kafka/stories"),
        (f"--story {ROOT}/Makefile", "Makefile is no story as in tests/simulation/kafka/stories: it does not set seed"),
        ("--seed 7 --mutation no-such-bug", QUICKLY_CAUGHT),
        ("--mutations no-such-bug", QUICKLY_CAUGHT),
    ],
)
def test_unplayable_arguments_end_with_the_reason(capsys: pytest.CaptureFixture[str], arguments: str, why: str) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(arguments.split())
    printed = capsys.readouterr().err
    assert (ended.value.code, why in printed) == (2, True), printed


def test_an_unknown_verb_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = tmp_path / "story.txt"
    story.write_text(f"{generate(7).with_actions([])}4.250 paint-broker 3\n")
    with pytest.raises(SystemExit):
        parsed(["--story", str(story)])
    assert "does not know: paint-broker" in capsys.readouterr().err


def test_existing_stories_and_bugs_are_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    assert [parsed(["--story", str(file)]).story.brokers[0] for file in STORIES] == [1] * len(STORIES)
    assert parsed(["--mutations"]).mutations == []
    assert parsed(["--seeds", "5", "--mutation", QUICKLY_CAUGHT]).seeds == 5
    with pytest.raises(SystemExit):
        parsed(["--help"])
    assert "--story FILE                  a story" in capsys.readouterr().out


def test_a_planted_bug_that_survives_fails_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(MUTATIONS, "harmless", lambda stack: None)
    arguments = ["--mutations", "harmless", QUICKLY_CAUGHT, "--seeds", "2", "--json", str(tmp_path / "found.json")]
    monkeypatch.setattr(sys, "argv", ["simulation", *arguments])
    assert main() == 1
    printed = capsys.readouterr().out
    assert "NOTHING in 2 seeds" in printed
    assert "1 of 2 caught" in printed
