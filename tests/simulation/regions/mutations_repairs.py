"""Plants bugs in the repair of tables that have lost rows of regions."""

from __future__ import annotations

from contextlib import ExitStack

from controller.regions.procedures import every, fixing, messages
from controller.regions.procedures.messages import TABLE_TASK
from state_machines.procedures.locks import Demand
from state_machines.procedures.record import Record
from tests.kit.simulation.planting import put
from tests.simulation.regions.planting import mutation


@mutation
def fill_keys_before_all_processes_have_listed(stack: ExitStack) -> None:
    """Gives keys to an empty region while a process may serve the region whose row is lost."""
    put(stack, fixing, "waits_for", lambda _: "")


@mutation
def fill_keys_beside_other_changes(stack: ExitStack) -> None:
    """Has the repair of a table lock nothing but the table, shared."""

    def demand(record: Record) -> Demand:
        return messages.share_of_table(TABLE_TASK.decode(record.data).table)

    kind = fixing.FIX_KEYS._replace(demand=demand)
    put(stack, every, "KINDS", tuple(kind if one.name == kind.name else one for one in every.KINDS))
