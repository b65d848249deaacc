"""Plants bugs in what happens once a server has crashed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from controller.procedures.kinds import Effect
from controller.regions import loading
from controller.regions.admission import Admission
from controller.regions.manager import Manager
from controller.regions.procedures import crash
from controller.regions.procedures.messages import CRASH, Crash
from metadata_store.catalog.rows import DropServer
from state_machines.procedures.outcome import Done, Next
from state_machines.procedures.record import Record
from state_machines.regions import transit
from state_machines.regions.changes import abandoned
from state_machines.regions.entities import Region, Server
from state_machines.regions.model import Regions
from state_machines.regions.states import ServerState
from tests.kit.simulation.planting import put
from tests.simulation.regions.planting import Step, mutation, put_step


@mutation
def skip_the_fence(stack: ExitStack) -> None:
    """Takes a server whose crash began for one that cannot write any more."""

    def changed(_: Step) -> Step:
        async def fence(_env: Any, record: Record) -> Next:
            return Next(crash.SPLIT, record.data)

        return fence

    put_step(stack, crash.CRASH_OF_SERVER, "fence", changed)


@mutation
def open_before_the_log_is_split(stack: ExitStack) -> None:
    """Releases the regions of a crashed server with its edits still in its log."""

    def changed(_: Step) -> Step:
        async def split(_env: Any, record: Record) -> Next:
            return Next(crash.RELEASE, record.data)

        return split

    put_step(stack, crash.CRASH_OF_SERVER, "split", changed)


@mutation
def end_a_crash_with_regions_left(stack: ExitStack) -> None:
    """Looks once at the regions of a crashed server: those that come to it later are lost (HBASE-21508)."""

    def changed(step: Step) -> Step:
        async def assign(env: Any, record: Record) -> Any:
            if crash.ASSIGN not in record.done:
                return await step(env, record)
            task: Crash = CRASH.decode(record.data)
            key = task.server, task.incarnation
            return Effect(Done(), (DropServer(*key),), lambda _: env.model.drop_server(key))

        return assign

    put_step(stack, crash.CRASH_OF_SERVER, "assign", changed)


@mutation
def serve_a_server_that_crashed(stack: ExitStack) -> None:
    """Accepts polls and reports of a server whose crash has begun."""
    known = Manager.server

    def server(manager: Manager, name: str, incarnation: int, epoch: int, proof: str = "") -> Server:
        found = manager.env.model.servers.get((name, incarnation))
        return known(manager, name, incarnation, epoch, proof) if found is None or not found.here else found

    put(stack, Manager, "server", server)


@mutation
def begin_a_crash_twice(stack: ExitStack) -> None:
    """Starts a second procedure for a crash that is under way (HBASE-22263)."""

    def expire(manager: Manager, server: Server, why: str) -> None:
        if server.state is ServerState.ONLINE:
            task = Crash(*server.key, manager.env.options.fence, why)
            manager.start(crash.NAME, CRASH.encode(task), "")
            manager.start(crash.NAME, CRASH.encode(task), "")
            server.state = ServerState.CRASHED
            manager.env.dispatcher.drop(server)

    put(stack, Manager, "expire", expire)


@mutation
def forget_crashes_at_a_failover(stack: ExitStack) -> None:
    """Takes all servers of the catalog for online ones."""
    resume = loading.resume

    async def forgetful(env: Any, records: Iterable[Record], park: Any) -> None:
        await resume(env, [one for one in records if one.kind != crash.NAME], park)

    put(stack, loading, "resume", forgetful)


@mutation
def forget_to_wake_after_the_fence(stack: ExitStack) -> None:
    """Leaves procedures waiting for the answer of a server that is fenced (HBASE-28522)."""

    def released(_env: Any, server: Server) -> None:
        server.state = ServerState.FENCED

    put(stack, crash, "released", released)


@mutation
def wait_for_a_fenced_server_to_close(stack: ExitStack) -> None:
    """Ends a close by the server's answer alone (HBASE-28522)."""
    closing = transit.closing

    def waiting(_: bool, answer: transit.Answer) -> transit.Act:
        return closing(fenced=False, answer=answer)

    put(stack, transit, "closing", waiting)


@mutation
def assign_user_tables_first(stack: ExitStack) -> None:
    """Assigns all classes of tables together."""

    def together(regions: Iterable[Region]) -> Any:
        closed, _ = abandoned(regions)
        tables: dict[str, list[Region]] = {}
        for one in sorted(regions, key=lambda region: -region.table.kind):
            if not one.pid and one not in closed:
                tables.setdefault(one.table.name, []).append(one)
        return closed, list(tables.values())

    put(stack, crash, "abandoned", together)


@mutation
def let_fenced_processes_come_back(stack: ExitStack) -> None:
    """Registers a process that was fenced once more, with the regions that it believes to have."""

    def never(_: Regions, _key: tuple[str, int]) -> bool:
        return False

    def unchecked(_: Admission, _key: tuple[str, int], _regions: int) -> None:
        """Takes each process for a new one."""

    put(stack, Regions, "is_buried", never)
    put(stack, Admission, "_check_new", unchecked)
