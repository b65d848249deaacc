"""Plants bugs in ways out: in what operators see, in what refusals name, in records that are removed or ended."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from controller.http.documents import ViewRefused
from controller.procedures import parking, running
from controller.regions import bypassed, loading
from controller.regions.operator import counts, explain, procedures, region_changes, regions
from controller.regions.operator.requests import requested
from state_machines.regions import changes
from state_machines.regions.entities import Region
from state_machines.regions.states import RegionState
from tests.kit.simulation.planting import put
from tests.simulation.regions import commands
from tests.simulation.regions.planting import mutation


@mutation
def show_no_closed_region_as_stranded(stack: ExitStack) -> None:
    """Leaves regions out of the list that a server gave up, and that nothing opens."""
    is_stranded = changes.is_stranded

    def blind(region: Region) -> bool:
        return region.state is not RegionState.CLOSED and is_stranded(region)

    for module in (regions, counts):
        put(stack, module, "is_stranded", blind)
    put(stack, counts, "stranded_at_rest", lambda _: 0)


@mutation
def count_no_region_that_is_stranded_at_rest(stack: ExitStack) -> None:
    """Lists stranded regions that the status does not count."""
    put(stack, counts, "stranded_at_rest", lambda _: 0)


@mutation
def name_no_table_that_stands_still(stack: ExitStack) -> None:
    """Leaves a table on its way to another state without a word."""
    put(stack, commands, "halted", lambda _model, _records: [])


@mutation
def explain_no_way_to_open_a_region(stack: ExitStack) -> None:
    """Explains a region that is not open without the command that opens it."""
    put(stack, explain, "_changes", lambda _region, _env: iter(()))


@mutation
def name_a_list_alone_where_a_region_is_in_transition(stack: ExitStack) -> None:
    """Refuses a command about a region on its way, and names no command that ends that."""
    remedy = region_changes.region_remedy

    def vague(term: Any, region: Region, *others: Any) -> str:
        return "see 'regent regions transitions'" if region.pid else remedy(term, region, *others)

    put(stack, region_changes, "region_remedy", vague)


@mutation
def name_no_command_that_removes_an_unusable_record(stack: ExitStack) -> None:
    """Refuses a bypass of a record that cannot be used as that of one that is not known."""

    async def vague(work: Any) -> Any:
        try:
            return await requested(work)
        except ViewRefused as refused:
            raise ViewRefused(refused.message, "see 'regent regions procedures list'") from refused

    put(stack, procedures, "requested", vague)


@mutation
def forget_a_removed_record_and_keep_it_in_the_store(stack: ExitStack) -> None:
    """Removes a record from memory alone: the next daemon finds it again."""
    removal = parking.UnusableRecords.removal

    def kept(records: Any, pid: int, ending: Any, now_ms: int) -> Any:
        return removal(records, pid, ending, now_ms)._replace(deletes=())

    put(stack, parking.UnusableRecords, "removal", kept)


@mutation
def bypass_what_waits_for_a_lock_with_that_lock_alone(stack: ExitStack) -> None:
    """Has a procedure that an operator has ended wait for its locks before it ends."""
    put(stack, running.Running, "_only_ends", lambda _running, _pid: False)


@mutation
def trust_a_process_whose_crash_was_ended_or_cannot_be_used(stack: ExitStack) -> None:
    """Lets a process back after a failover that counted as crashed before."""
    put(stack, loading, "distrust", lambda _env, _records: None)
    if hasattr(bypassed, "resume_bypassed"):
        from controller.regions import term

        put(stack, term, "resume_bypassed", lambda _env, _records: None)


@mutation
def end_a_crash_as_it_is_and_begin_none(stack: ExitStack) -> None:
    """Leaves the regions of a crashed process without an owner once an operator has ended its crash."""
    put(stack, bypassed, "_again", lambda _env, _task: None)
