"""Some of all situations, events and commands: each is accepted and ends, or is refused with a command that is."""

from __future__ import annotations

import pytest

from tests.simulation.regions.operating import Refusal
from tests.simulation.regions.situations import SITUATIONS
from tests.simulation.regions.ways_out import ALL, COMMANDS, EVENTS, NOTHING_HANGS, Play, played, played_names

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
