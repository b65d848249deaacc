"""Takes the changes that operators request: checks them against the model, and starts their procedures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from controller.http.errors import Invalid, NotFound, Refused
from controller.http.procedures import Procedure
from controller.procedures.engine import DATA_BYTES_MAX
from controller.process.wording import counted
from controller.regions.damaged import REMEDY
from controller.regions.domain import RegionsDomain
from controller.regions.http.ports import RegionAct, ServerAct, TableAct
from controller.regions.http.requests import Change, NamespaceCreation, RegionChange, ServerChange, TableCreation
from controller.regions.operator import checks, ways
from controller.regions.operator.access import acting_term, name_of, region_of, server_of, table_of
from controller.regions.operator.crashes import crash_of
from controller.regions.operator.items import procedure_item
from controller.regions.operator.starting import caller_of, known, start
from controller.regions.procedures import assign, close, crash, move, namespaces, servers, tables
from controller.regions.procedures.messages import CRASH, MOVE, TABLE_TASK, TRANSIT, Crash, Move, TableTask, Transit
from controller.regions.procedures.namespaces import NAMESPACE_TASK, NamespaceTask
from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Caller
from state_machines.regions.layout import NotAKey, count_of, key_of, layout_problem, name_problem
from state_machines.regions.model import Region, Server
from state_machines.regions.states import ServerState, TableKind

TABLE_KINDS: Final[Mapping[TableAct, str]] = {
    "enable": "enable_table",
    "disable": "disable_table",
    "delete": "delete_table",
}


REGION_KINDS: Final[Mapping[RegionAct, str]] = {
    "assign": assign.NAME,
    "unassign": close.NAME,
    "move": move.NAME,
    "reopen": move.NAME,
}
SERVER_KINDS: Final[Mapping[ServerAct, str]] = {
    "drain": servers.DRAIN,
    "expire": crash.NAME,
    "forget": servers.FORGET,
}


class Changes:
    """Implements :class:`controller.regions.http.ports.RegionChanges`."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    # -- regions

    async def change_region(self, act: RegionAct, region: int, request: RegionChange, principal: str) -> Procedure:
        """Assigns, unassigns, moves or reopens a region."""
        term, caller = self._term(), caller_of(request, principal)
        if (again := known(term, caller, request, REGION_KINDS[act], str(region))) is not None:
            return again
        found = region_of(term.env.model, region)
        _refuse(
            checks.region_problem(term.env, found, act, request.server, force=request.force),
            checks.region_remedy(term.env.model, found, act, request.server, _of_crash(term, found)),
        )
        kind, data = _of_region(act, found, request)
        return await start(term, kind, data, caller, request, f"region {found}: {act}")

    # -- tables and namespaces

    async def create_table(self, request: TableCreation, principal: str) -> Procedure:
        """Creates a table."""
        term, caller = self._term(), caller_of(request, principal)
        if (again := known(term, caller, request, tables.CREATE.name, request.name)) is not None:
            return again
        try:
            splits = tuple(map(key_of, request.splits))
        except NotAKey as error:
            raise Invalid(f"splits: {error}", "write other bytes than printable ASCII as \\xNN") from error
        if (problem := name_problem(request.name)) is not None:
            raise Invalid(problem, "give another name")
        if (problem := layout_problem(splits, request.uniform)) is not None:
            raise Invalid(problem, "correct it; keys are text, other bytes in them \\xNN")
        model = term.env.model
        _refuse(checks.creation_problem(model, request.name), checks.creation_remedy(model, request.name))
        kind = TableKind[request.kind.upper()]
        task = TableTask(request.name, kind, request.options, splits, request.uniform, why=request.reason)
        count = count_of(splits, request.uniform)
        about = f"table {request.name} with {counted(count, 'region')}"
        if len(data := TABLE_TASK.encode(task)) > DATA_BYTES_MAX:
            why = f"the table has {len(data):,} bytes of split keys and options, at most {DATA_BYTES_MAX:,} are stored"
            raise Refused(why, "give fewer or shorter split keys or options")
        return await start(term, tables.CREATE.name, data, caller, request, about)

    async def change_table(self, act: TableAct, table: str, request: Change, principal: str) -> Procedure:
        """Enables, disables or deletes a table."""
        term, caller = self._term(), caller_of(request, principal)
        if (again := known(term, caller, request, TABLE_KINDS[act], table)) is not None:
            return again
        found = table_of(term.env.model, table)
        model, opens = term.env.model, _opens(term, table)
        _refuse(checks.table_problem(model, found, act, opens), checks.table_remedy(model, found, act))
        data = TABLE_TASK.encode(TableTask(table, why=request.reason))
        about = f"table {table} with {counted(len(found.regions), 'region')}: {act}"
        return await start(term, TABLE_KINDS[act], data, caller, request, about)

    async def create_namespace(self, request: NamespaceCreation, principal: str) -> Procedure:
        """Creates a namespace."""
        term, caller = self._term(), caller_of(request, principal)
        if (again := known(term, caller, request, namespaces.CREATE_NAMESPACE, request.name)) is not None:
            return again
        if ":" in request.name or name_problem(request.name) is not None:
            raise Invalid(f"name {request.name[:80]!r} is no name of a namespace", "use letters, digits, '_', '-', '.'")
        if request.name in term.env.model.namespaces:
            raise Refused(f"namespace {request.name!r} exists already", "see 'regent namespaces list'")
        if request.name in term.env.model.damages.namespaces:
            raise Refused(f"namespace {request.name!r} is stored already, and left out: it is damaged", REMEDY)
        data = NAMESPACE_TASK.encode(NamespaceTask(request.name, request.reason))
        about = f"namespace {request.name}"
        return await start(term, namespaces.CREATE_NAMESPACE, data, caller, request, about)

    async def delete_namespace(self, name: str, request: Change, principal: str) -> Procedure:
        """Deletes a namespace."""
        term, caller = self._term(), caller_of(request, principal)
        if (again := known(term, caller, request, namespaces.DELETE_NAMESPACE, name)) is not None:
            return again
        if name not in term.env.model.namespaces:
            raise NotFound(f"namespace {name!r} does not exist", "see 'regent namespaces list'")
        _refuse(namespaces.undeletable(term.env.model, name), "see 'regent tables list'")
        data = NAMESPACE_TASK.encode(NamespaceTask(name, request.reason))
        return await start(term, namespaces.DELETE_NAMESPACE, data, caller, request, f"namespace {name}")

    # -- servers

    async def change_server(self, act: ServerAct, server: str, request: ServerChange, principal: str) -> Procedure:
        """Drains a server, has its process dealt with as crashed, or forgets the name of a fenced one."""
        term, caller = self._term(), caller_of(request, principal)
        if (again := known(term, caller, request, SERVER_KINDS[act], name_of(server))) is not None:
            return again
        if act == "forget":
            return await self._forget(term, server, request, caller)
        found = server_of(term.env.model, server)
        if act == "drain":
            return await self._drain(term, found, request, caller)
        return await self._expire(term, found, request, caller)

    async def _drain(self, term: RegionsTerm, server: Server, request: ServerChange, caller: Caller) -> Procedure:
        """Begins a drain, once for each process: another one would begin all over when the first is ended.

        A forced one is taken beside one that is not, which moves the resting regions then, too.
        """
        env = term.env
        _refuse(checks.drain_problem(env.model, server), checks.drain_remedy(env.model, server))
        again = request.force and not server.forced
        if not again and (pid := _drain_of(term, server)):
            raise Refused(
                f"server {server} is drained already: procedure {pid} does that",
                f"'regent regions procedures show {pid}' says how far it is, and what ends it where it hangs",
            )
        if not again and server.key in env.drains_asked:
            raise Refused(
                f"server {server} is drained already: that begins at this moment", "see 'regent servers list'"
            )
        data = CRASH.encode(Crash(*server.key, why=request.reason, force=request.force))
        about = f"server {server} with {counted(len(server.regions), 'region')}: drain"
        if request.dry_run:
            return await start(term, servers.DRAIN, data, caller, request, about)
        env.drains_asked.add(server.key)
        try:
            begun = await start(term, servers.DRAIN, data, caller, request, about)
        finally:
            env.drains_asked.discard(server.key)
        server.forced |= request.force
        return begun

    async def _forget(self, term: RegionsTerm, name: str, request: Change, caller: Caller) -> Procedure:
        model = term.env.model
        if (why := servers.unforgettable(model, name)) is not None:
            if model.latest(name) is not None:
                raise Refused(why, "see 'regent servers list'")
            raise NotFound(why, "where its process is refused, its log names the cause")
        last = model.buried[name]
        data = CRASH.encode(Crash(name, last, why=request.reason))
        about = f"server {name}: processes up to the incarnation {last} may register again"
        return await start(term, servers.FORGET, data, caller, request, about)

    async def _expire(self, term: RegionsTerm, server: Server, request: Change, caller: Caller) -> Procedure:
        """Begins the crash of a process as the manager does, once for each process.

        The nonce is stored with it: the request, repeated, must not end a next process with this name.
        """
        if not request.dry_run and (pid := crash_of(server, term.engine)):
            return procedure_item(term.engine.records[pid])
        # its crash is not stored yet, or an operator has ended it
        if server.state is not ServerState.ONLINE or server.key in term.env.expiring:
            raise Refused(f"server {server} counts as crashed already, and its crash begins soon", "repeat the request")
        why = f"expired by {caller.principal}" + (f": {caller.reason}" if caller.reason else "")
        about = f"server {server} with {counted(len(server.regions), 'region')}: {why}"
        named = caller if caller.nonce else replace(caller, nonce=f"crash of {server}")
        data = term.manager.crash_of(server, why)
        if not request.dry_run:
            term.env.expiring.add(server.key)
        try:
            begun = await start(term, crash.NAME, data, named, request, about)
        finally:
            term.env.expiring.discard(server.key)
        record = term.engine.records.get(begun.pid)
        if record is not None and record.data == data:  # else the nonce is that of an earlier process
            term.manager.crashed(server, why)
        return begun

    # -- all of them

    def _term(self) -> RegionsTerm:
        return acting_term(self._domain)


def _opens(term: RegionsTerm, table: str) -> int:
    """Returns the procedure that opens the regions of a table that is being created or enabled, 0 without one."""
    for record in term.engine.live():
        if record.kind in (tables.CREATE.name, tables.ENABLE.name) and not record.bypassed:
            task: TableTask = TABLE_TASK.decode(record.data)
            if task.table == table:
                return record.pid
    return 0


def _drain_of(term: RegionsTerm, server: Server) -> int:
    """Returns the drain of a process that goes on, 0 without one; one that is being undone does not count."""
    records = term.engine.records
    found = (pid for pid, key in term.env.draining.items() if key == server.key)
    return next((pid for pid in found if pid in records and not records[pid].aborted), 0)


def _of_crash(term: RegionsTerm, region: Region) -> str:
    """Returns what goes on with the crash of a region's server; empty where that has not crashed."""
    server = region.server
    if server is None or server.state is ServerState.ONLINE:
        return ""
    return "; ".join(ways.of_crash(server, term.env, term.engine))


def _refuse(problem: str | None, remedy: str) -> None:
    if problem is not None:
        raise Refused(problem, remedy)


def _of_region(act: RegionAct, region: Region, request: RegionChange) -> tuple[str, bytes]:
    """Returns the kind and the message of a change of a region."""
    table, why = region.table.name, request.reason
    match act:
        case "assign":
            return assign.NAME, TRANSIT.encode(Transit(region.id, table, why, to=request.server))
        case "unassign":
            return close.NAME, TRANSIT.encode(Transit(region.id, table, why))
        case "move":
            return move.NAME, MOVE.encode(Move(region.id, table, request.server, why))
        case "reopen":
            return move.NAME, MOVE.encode(Move(region.id, table, "", why, reopens=True))
