"""Plants bugs in the repair of tables that have lost rows of regions."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from controller.procedures.kinds import Effect
from controller.regions.procedures import adopting, every, fixing, messages
from controller.regions.procedures.messages import REPAIR, TABLE_TASK
from metadata_store.catalog.rows import Drop, HeirRow, Put
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Demand
from state_machines.procedures.record import Record
from tests.kit.simulation.planting import put
from tests.simulation.regions.planting import Step, mutation, put_step


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


@mutation
def adopt_what_a_process_serves(stack: ExitStack) -> None:
    """Stores the row of a lost region again while a process may serve it."""
    put(stack, fixing, "waits_for", lambda _: "")
    put(stack, adopting, "unserved", lambda *_: None)


@mutation
def adopt_without_what_it_refers_to(stack: ExitStack) -> None:
    """Stores the row of a lost region again without the regions in whose data its own begins."""

    def changed(step: Step) -> Step:
        async def store(env: Any, record: Record) -> Any:
            found = await step(env, record)
            if not isinstance(found, Effect) or (entered_before := found.entered) is None:
                return found
            id_ = REPAIR.decode(record.data).region

            def entered(change: Change) -> None:
                entered_before(change)
                env.model.sources.pop(id_, None)

            rows = tuple(one for one in found.rows if not isinstance(one, Put))
            return Effect(found.outcome, (*rows, Drop(HeirRow, (id_,))), entered)

        return store

    put_step(stack, adopting.ADOPT, "store", changed)
