"""Says what a procedure that has ended did not bring about: it can do no more, and scripts must see that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from controller.process.wording import counted
from controller.regions.procedures.servers import CRASHED
from controller.regions.procedures.tables import SUPERSEDED
from state_machines.procedures.record import Record
from state_machines.procedures.states import State

MET: Final = frozenset({"", "open", "it is open already", "it is there already"})
"""Results of an assign or a move after which the region is where it was wanted."""
CLOSED: Final = frozenset({"", "the region is gone", "it is closed already", "it is failed_open already"})
"""Results of a close after which no server has the region."""

WHERE: Final = "see 'regent regions transitions' and 'regent regions list --state failed_open'"
STRANDED: Final = "'regent regions list --stranded' lists regions that it has left"
LEFT: Final[Mapping[str, str]] = {
    "crash": "it begins anew: 'regent regions procedures list --kind crash --live' has its pid",
    "drain_server": "the server may have regions still, and gets some again: 'regent servers list' counts them",
    "create_table": f"'regent tables list' shows the state of the table, and {STRANDED}",
    "enable_table": f"'regent tables list' shows the state of the table, and {STRANDED}",
    "disable_table": f"'regent tables list' shows the state of the table, and {STRANDED}",
    "delete_table": "'regent tables list' shows whether the table is there, and its state",
    "assign": STRANDED,
    "close": STRANDED,
    "move": STRANDED,
    "forget_server": "the name may be remembered still: the command may be repeated",
    "mark": "'regent regions marks' shows whether the mark is there",
    "unmark": "'regent regions marks' shows whether the mark is there",
    "create_namespace": "'regent namespaces list' shows whether it is there",
    "delete_namespace": "'regent namespaces list' shows whether it is there",
}
"""By kind, the end of a sentence about a procedure that was ended as it is: where its effect is to be seen."""


def unmet_of(record: Record) -> str:
    """Returns one sentence, empty where all is done, or where the procedure has not ended, or was undone."""
    if record.state is not State.SUCCESS:
        return ""
    if record.bypassed:
        by = f" by {record.ending.principal}" if record.ending.principal else ""
        left = LEFT.get(record.kind, "")
        return f"it was ended as it is{by}, before it was done" + (f"; {left}" if left else "")
    judge = _JUDGES.get(record.kind)
    return "" if judge is None else judge(record.result.decode("utf-8", "replace"))


def shown_state(record: Record, unmet: str) -> str:
    """Returns the state that operators see: success is for a procedure that an operator or a later one did not end."""
    if record.state is State.SUCCESS and record.bypassed:
        return "bypassed"
    return "superseded" if is_superseded(unmet) else record.state.name.lower()


def is_superseded(result: str) -> bool:
    """Checks whether a later change of the same table has ended a change with this result."""
    return result.startswith(SUPERSEDED.decode())


def _of_region(result: str) -> str:
    return "" if result in MET else f"the region is not where it was wanted: {result}"


def _of_close(result: str) -> str:
    return "" if result in CLOSED else f"the region may not be closed: {result}"


def _of_drain(result: str) -> str:
    return result if result.startswith(CRASHED.decode()) else ""


def _of_table(result: str) -> str:
    if is_superseded(result):
        return result
    count = int(result) if result.isdigit() else 0
    if not count:
        return ""
    return f"{counted(count, 'region')} not open: {WHERE}"


_JUDGES: Final[Mapping[str, Callable[[str], str]]] = {
    "assign": _of_region,
    "close": _of_close,
    "move": _of_region,
    "drain_server": _of_drain,
    "create_table": _of_table,
    "enable_table": _of_table,
}
