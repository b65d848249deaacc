"""Draws the machines' tables as Mermaid state diagrams, so that the docs cannot drift from the code."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from state_machines.machines.partition import PartitionStateMachine
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.machines.table import StateMachine


def mermaid(machine: type[StateMachine[Any, Any]]) -> str:
    """Returns the table of ``machine`` as a Mermaid ``stateDiagram-v2``; NonExistent is start and end."""
    lines = ["stateDiagram-v2"]
    for target, previous in machine.VALID_PREVIOUS.items():
        lines += [f"    {_label(state)} --> {_label(target)}" for state in sorted(previous)]
    lines += ["    [*] --> NonExistent", "    NonExistent --> [*]"]
    return "\n".join(lines) + "\n"


def _label(state: IntEnum) -> str:
    return "".join(word.capitalize() for word in state.name.split("_"))


def document() -> str:
    """Returns the page ``docs/reference/state-machines.md``."""
    parts = ["# State machines", "", "Drawn from the tables in `state_machines/` by `make docs`; do not edit.", ""]
    for title, machine in (("Partition", PartitionStateMachine), ("Replica", ReplicaStateMachine)):
        parts += [f"## {title}", "", "```mermaid", mermaid(machine).rstrip(), "```", ""]
    return "\n".join(parts)
