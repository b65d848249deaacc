"""Plants bugs in marks of operators, in what they end, and in rows of the journal that an audit alone can see."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from controller.regions import bypassed, entering, term
from controller.regions.bypassed import picked_up
from controller.regions.journal.journal import RELEASED, RegionsJournal
from controller.regions.procedures import assign, servers
from metadata_store.catalog.rows import Content
from state_machines.procedures.record import Record
from state_machines.regions.entities import Server
from state_machines.regions.model import Regions
from tests.kit.simulation.planting import put
from tests.simulation.regions.planting import Step, audited, mutation, put_step


@mutation
def forget_marks_at_a_failover(stack: ExitStack) -> None:
    """Begins a term without the marks that are stored."""
    enter = entering.enter

    async def unmarked(model: Regions, content: Content, now_ms: int) -> None:
        await enter(model, content._replace(marks=[]), now_ms)

    put(stack, entering, "enter", unmarked)


@mutation
def enter_a_mark_before_it_is_stored(stack: ExitStack) -> None:
    """Has a cordon in memory that the next daemon may not know."""

    def changed(step: Step) -> Step:
        async def store(env: Any, record: Any) -> Any:
            effect = await step(env, record)
            effect.entered(None)
            return replace(effect, rows=())

        return store

    put_step(stack, servers.MARK_SUBJECT, "store", changed)


@mutation
def remove_a_hold_and_wake_nobody(stack: ExitStack) -> None:
    """Leaves regions without an owner until the time of a hold that was removed, and which the wall clock may move."""

    def changed(step: Step) -> Step:
        async def remove(env: Any, record: Any) -> Any:
            effect = await step(env, record)
            task: servers.MarkTask = servers.MARK_TASK.decode(record.data)
            return replace(effect, entered=lambda _: env.model.marks.drop(task.kind, task.subject))

        return remove

    put_step(stack, servers.UNMARK_SUBJECT, "remove", changed)


@mutation
def place_on_cordoned_servers(stack: ExitStack) -> None:
    """Takes a cordoned server for one like the others."""
    online = Regions.online

    def every(model: Regions) -> Any:
        put_aside, model.marks = model.marks, type(model.marks)()
        try:
            return iter(list(online(model)))
        finally:
            model.marks = put_aside

    put(stack, Regions, "online", every)


@mutation
def keep_the_region_of_a_bypassed_procedure(stack: ExitStack) -> None:
    """Leaves a region attached to a procedure that an operator ended as it is."""

    def kept(_env: Any, _record: Record) -> None:
        """Lets nothing go."""

    put(stack, bypassed, "_detach", kept)


@mutation
def open_a_bypassed_region_elsewhere_at_once(stack: ExitStack) -> None:
    """Opens a region that a server may have by an ended procedure, without a close at that server."""
    put(stack, assign, "closes_first", lambda _: False)


@mutation
def pick_up_nothing_after_a_bypass(stack: ExitStack) -> None:
    """Leaves the region of a procedure that an operator ended as it is."""
    put(stack, term, "picked_up", lambda _env, left: None if left.pid else picked_up(_env, left))


@audited
def record_no_release_of_a_crashed_server(stack: ExitStack) -> None:
    """Leaves out of the journal that a fenced process was released."""
    server = RegionsJournal.server

    def silent(
        journal: RegionsJournal, of: Server, change: tuple[str, str], why: str, pid: int = 0, *, troubles: bool = True
    ) -> None:
        if change[1] != RELEASED:
            server(journal, of, change, why, pid, troubles=troubles)

    put(stack, RegionsJournal, "server", silent)


@audited
def record_a_dispatch_of_the_server_before(stack: ExitStack) -> None:
    """Names in the row of a batch the process that got the one before."""
    dispatched = RegionsJournal.dispatched
    latest: list[Server] = []

    def late(journal: RegionsJournal, server: Server, number: int, operations: Any) -> None:
        latest.append(server)
        dispatched(journal, latest[-2] if len(latest) > 1 else server, number, operations)

    put(stack, RegionsJournal, "dispatched", late)
