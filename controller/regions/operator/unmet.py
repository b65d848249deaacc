"""Says what a procedure that has succeeded did not bring about: it can do no more, and scripts must see that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from controller.process.wording import counted
from controller.regions.kinds.tables import SUPERSEDED
from state_machines.procedures.record import Record
from state_machines.procedures.states import State

MET: Final = frozenset({"", "open", "it is open already", "it is there already"})
"""Results of an assign or a move after which the region is where it was wanted."""

WHERE: Final = "see 'regent regions transitions' and 'regent regions list --state failed_open'"


def unmet_of(record: Record) -> str:
    """Returns one sentence, empty where all is done, or where the procedure has not succeeded."""
    judge = _JUDGES.get(record.kind)
    if judge is None or record.state is not State.SUCCESS or record.bypassed:
        return ""
    return judge(record.result.decode("utf-8", "replace"))


def is_superseded(result: str) -> bool:
    """Checks whether a later change of the same table has ended a change with this result."""
    return result.startswith(SUPERSEDED.decode())


def _of_region(result: str) -> str:
    return "" if result in MET else f"the region is not where it was wanted: {result}"


def _of_table(result: str) -> str:
    if is_superseded(result):
        return result
    count = int(result) if result.isdigit() else 0
    if not count:
        return ""
    return f"{counted(count, 'region')} not open: {WHERE}"


_JUDGES: Final[Mapping[str, Callable[[str], str]]] = {
    "assign": _of_region,
    "move": _of_region,
    "create_table": _of_table,
    "enable_table": _of_table,
}
