"""All situations, events and commands of regions: each command is accepted and ends, or names one that is."""

from __future__ import annotations

import pytest

from tests.simulation.regions.situations import SITUATIONS
from tests.simulation.regions.ways_out import ALL, EVENTS, played, played_names


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_command_has_a_way_out_whatever_happened_in_a_situation(situation: str) -> None:
    failed: dict[str, str] = {}
    for play in ALL:
        if play.situation == situation:
            try:
                played(play)
            except AssertionError as error:
                failed[str(play)] = str(error)[:300]
    assert not failed


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("event", EVENTS)
def test_every_command_that_an_explanation_names_is_accepted_whatever_happened(event: str, situation: str) -> None:
    played_names(situation, event)
