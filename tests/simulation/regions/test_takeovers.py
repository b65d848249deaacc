"""What the oldest page does with a znode as a daemon takes over is what its procedure does (S0-72 to 76)."""

from __future__ import annotations

import pytest

from controller.regions.procedures import assign, close
from controller.regions.procedures.messages import TRANSIT, Transit
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.unassigned import Node, NodeState
from tests.simulation.regions.takeovers import disagreement

PID, TOKEN = 9, 5
N = NodeState
AGREES = {
    (assign.NAME, N.OFFLINE),
    (assign.NAME, N.OPENING),
    (assign.NAME, N.OPENED),
    (close.NAME, N.CLOSING),
    (close.NAME, N.CLOSED),
    (close.NAME, N.OPENED),
}


@pytest.mark.seed("S0-72", "S0-73", "S0-74", "S0-75", "S0-76")
@pytest.mark.parametrize("kind", [assign.NAME, close.NAME])
@pytest.mark.parametrize("state", N)
def test_page_and_procedure_come_to_the_same(kind: str, state: NodeState) -> None:
    task = Transit(1, "t", token=TOKEN, server="a", incarnation=1)
    record = Record(PID, kind, State.WAITING, assign.DISPATCH, 1, 1, data=TRANSIT.encode(task))
    node = Node(state, 1, PID, TOKEN, "a", 1)
    assert (disagreement(node, record, task, TOKEN) == "") == ((kind, state) in AGREES)
    assert disagreement(node._replace(token=TOKEN + 1), record, task, TOKEN) == "", "it is of another operation"
    assert (disagreement(node, record, task, TOKEN - 1) == "") == (kind == close.NAME or (kind, state) in AGREES)
