"""The result of a repair is one sentence: what was stored or removed, and where to look next."""

from __future__ import annotations

import pytest

from controller.regions.operator.records import procedure_item
from controller.regions.procedures.messages import CRASH, TABLE_TASK, Crash, TableTask
from controller.regions.procedures.repair import REPAIR, Repair
from state_machines.procedures.record import Record
from state_machines.procedures.states import State

FIXED = TABLE_TASK.encode(TableTask("t", first_id=17, count=3, made=3))
WHOLE = TABLE_TASK.encode(TableTask("t"))
NAME = CRASH.encode(Crash("a", 5))
ADOPTED = REPAIR.encode(Repair(17, "t", "lost", b"a", b"n", made=True))
FORGOTTEN = REPAIR.encode(Repair(17, "", "wrong", what="damaged"))
LEFT = "lists the faults that remain"
LISTED = f"'regent regions list --table t' shows them, 'regent regions report --table t' {LEFT}"
EXPLAINED = f"'regent regions explain 17' shows where it is, 'regent regions report --table t' {LEFT}"


def ended(kind: str, data: bytes, result: bytes, state: State = State.SUCCESS, *, bypassed: bool = False) -> str:
    """Returns the result that operators see."""
    return procedure_item(Record(7, kind, state, 0, 1, 1, data=data, result=result, bypassed=bypassed)).result


@pytest.mark.parametrize(
    ("kind", "data", "result", "expected"),
    [
        ("fix_keys", FIXED, b"0", f"3 regions stored, #17 to #19; {LISTED}"),
        ("fix_keys", FIXED, b"2", f"3 regions stored, #17 to #19, 2 regions not open; {LISTED}"),
        ("fix_keys", WHOLE, b"0", "each key of table t has a region: nothing was to be mended"),
        ("adopt", ADOPTED, b"0", f"region t#17 stored with the keys from a to n; {EXPLAINED}"),
        ("adopt", ADOPTED, b"1", f"region t#17 stored with the keys from a to n, 1 region not open; {EXPLAINED}"),
        ("forget_region", FORGOTTEN, b"", f"the catalog has forgotten region #17; 'regent regions report' {LEFT}"),
        ("forget_server", NAME, b"", "processes of server a up to the incarnation 5 may register again"),
        ("create_table", FIXED, b"0", "all regions are open"),
    ],
)
def test_a_repair_says_what_it_has_done_and_where_to_look(kind: str, data: bytes, result: bytes, expected: str) -> None:
    assert ended(kind, data, result) == expected


@pytest.mark.parametrize(("kind", "data"), [("fix_keys", FIXED), ("adopt", ADOPTED), ("forget_region", FORGOTTEN)])
def test_a_repair_that_did_not_come_to_its_end_has_no_result(kind: str, data: bytes) -> None:
    for state in (State.WAITING, State.ROLLEDBACK):
        assert ended(kind, data, b"", state) == ""
    assert ended(kind, data, b"", bypassed=True) == ""
