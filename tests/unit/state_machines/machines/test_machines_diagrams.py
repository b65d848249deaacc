"""The documented diagrams are the tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from state_machines.machines.diagrams import document, mermaid
from state_machines.machines.partition import PartitionStateMachine
from state_machines.machines.replica import ReplicaStateMachine

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "state-machines.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == document(), "run: make docs"


@pytest.mark.parametrize("machine", [PartitionStateMachine, ReplicaStateMachine])
def test_every_transition_is_drawn_once(machine: type[PartitionStateMachine] | type[ReplicaStateMachine]) -> None:
    lines = mermaid(machine).splitlines()
    arrows = [line for line in lines if "-->" in line and "[*]" not in line]
    assert len(arrows) == len(set(arrows)) == sum(len(previous) for previous in machine.VALID_PREVIOUS.values())
    assert "    [*] --> NonExistent" in lines
