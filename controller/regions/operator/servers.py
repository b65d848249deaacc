"""Shows the processes of servers, and takes requests to drain, expire and forget them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal

from fastapi import FastAPI, Request, Response
from msgspec.structs import replace
from pydantic import Field

from controller.http.documents import NotFound, ViewRefused, document
from controller.http.models import Document, Item
from controller.http.peers import principal_of
from controller.http.procedures import Procedure, time_of
from controller.process.wording import counted
from controller.regions.domain import RegionsDomain
from controller.regions.environment import RegionsEnv
from controller.regions.operator import ways
from controller.regions.operator.counts import owned_by_state
from controller.regions.operator.records import procedure_item
from controller.regions.operator.requests import (
    Change,
    acting_term,
    active_term,
    caller_of,
    known,
    named_server,
    needs_reason,
    refuse,
    server_of,
    start,
)
from controller.regions.operator.ways import crash_of, crashes
from controller.regions.procedures import crash, servers
from controller.regions.procedures.messages import CRASH, Crash
from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Caller
from state_machines.regions.entities import Server
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState, ServerState

ServerAct = Literal["drain", "expire", "forget", "recover"]
SERVER_KINDS: Final[Mapping[ServerAct, str]] = {
    "drain": servers.DRAIN,
    "expire": crash.NAME,
    "forget": servers.FORGET,
    "recover": servers.RECOVER,
}
S = RegionState


class RegionServer(Item):
    """One process of a server."""

    name: str
    incarnation: int
    state: str = Field(description="online, leaving, crashed or fenced")
    address: str
    software: str = ""
    lease_left_s: float = Field(0.0, description="until it counts as crashed without a further poll")
    regions: int = 0
    opening: int = 0
    closing: int = 0
    weight: float = Field(1.0, description="share of regions beside other servers")
    cordoned: bool = Field(False, description="it gets no region; those that it has stay")
    held_until: datetime | None = Field(None, description="until then its regions wait for its next process")
    note: str = Field("", description="why it gets no regions, or what deals with its crash, and the command")
    features: list[str] = Field([], description="what it can do, as it named when it registered")
    load: dict[str, int] = Field({}, description="figures of its latest poll, named by the service")


class ServerChange(Change):
    """A server to drain or expire. ``force``: a drain moves regions, too, that rest after a move."""

    force: bool = False


class ServerView:
    """Shows the processes of servers that the active term knows, and starts changes of them."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    def list_servers(self) -> list[RegionServer]:
        """Lists processes of servers by name and incarnation."""
        term = active_term(self._domain)
        known = crashes(term.engine)
        return [_noted_item(one, term.env, known) for _, one in sorted(term.env.model.servers.items())]

    def describe_server(self, server: str) -> RegionServer:
        """Describes one process, by its name alone or with its incarnation."""
        term = active_term(self._domain)
        return _noted_item(server_of(term.env.model, server), term.env, crashes(term.engine))

    async def change_server(self, act: ServerAct, server: str, request: ServerChange, principal: str) -> Procedure:
        """Drains a server, has its process dealt with as crashed, forgets a fenced name, or stores a lost row again."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, SERVER_KINDS[act], named_server(server))) is not None:
            return again
        if act == "forget":
            return await self._forget(term, server, request, caller)
        if act == "recover":
            return await self._recover(term, server, request, caller)
        found = server_of(term.env.model, server)
        if act == "drain":
            return await self._drain(term, found, request, caller)
        return await self._expire(term, found, request, caller)

    async def _drain(self, term: RegionsTerm, server: Server, request: ServerChange, caller: Caller) -> Procedure:
        """Begins a drain, once for each process: another one would begin all over when the first is ended.

        A forced one is taken beside one that is not, which moves the resting regions then, too.
        """
        env = term.env
        refuse(drain_problem(env.model, server), drain_remedy(env.model, server))
        again = request.force and not server.forced
        if not again and (pid := _drain_of(term, server)):
            raise ViewRefused(
                f"server {server} is drained already: procedure {pid} does that",
                f"'regent regions procedures show {pid}' says how far it is, and what ends it where it hangs",
            )
        if not again and server.key in env.drains_asked:
            raise ViewRefused(
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
                raise ViewRefused(why, "see 'regent servers list'")
            raise NotFound(why, "where its process is refused, its log names the cause")
        last = model.buried[name]
        data = CRASH.encode(Crash(name, last, why=request.reason))
        about = f"server {name}: processes up to the incarnation {last} may register again"
        return await start(term, servers.FORGET, data, caller, request, about)

    async def _recover(self, term: RegionsTerm, server: str, request: Change, caller: Caller) -> Procedure:
        """Has a process become a member again of which rows of regions alone tell."""
        needs_reason(request)
        model, (name, _, incarnation) = term.env.model, server.partition(",")
        key = model.stranger(name, incarnation)
        if key is None:
            found = server_of(model, server)
            raise ViewRefused(
                str(servers.unrecoverable(model, found.key)), f"'regent servers expire {found}' begins it now"
            )
        refuse(servers.unrecoverable(model, key), "restart the daemon, which has its regions then")
        data = CRASH.encode(Crash(*key, why=request.reason))
        left_out = counted(model.strangers[key], "region")
        about = (
            f"server {name},{key[1]}: its row is stored; its {left_out} that are left out are its own after a restart"
        )
        return await start(term, servers.RECOVER, data, caller, request, about)

    async def _expire(self, term: RegionsTerm, server: Server, request: Change, caller: Caller) -> Procedure:
        """Begins the crash of a process as the manager does, once for each process.

        The nonce is stored with it: the request, repeated, must not end a next process with this name.
        """
        if not request.dry_run and (pid := crash_of(server, term.engine)):
            return procedure_item(term.engine.records[pid])
        # its crash is not stored yet, or an operator has ended it
        if server.state is not ServerState.ONLINE or server.key in term.env.expiring:
            raise ViewRefused(
                f"server {server} counts as crashed already, and its crash begins soon", "repeat the request"
            )
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


def add_server_routes(app: FastAPI, view: ServerView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/regions/servers", response_model=Document[RegionServer])
    async def servers() -> Response:
        return document("RegionServer", view.list_servers())

    @app.get("/v1/regions/servers/{server:path}", response_model=Document[RegionServer])
    async def server(server: str) -> Response:
        return document("RegionServer", [view.describe_server(server)])

    @app.post("/v1/regions/servers/{server:path}/{act}", response_model=Document[Procedure])
    async def change(server: str, act: ServerAct, wanted: ServerChange, request: Request) -> Response:
        return document("Procedure", [await view.change_server(act, server, wanted, principal_of(request))])


def server_item(server: Server, env: RegionsEnv) -> RegionServer:
    """Describes a process of a server."""
    states = owned_by_state(env.model, server.key)
    leaving = server.leaving and server.state is ServerState.ONLINE
    return RegionServer(
        name=server.name,
        incarnation=server.incarnation,
        state="leaving" if leaving else server.state.name.lower(),
        address=server.address,
        software=server.software,
        lease_left_s=max(0.0, server.deadline_s - env.clock()),
        regions=len(server.regions),
        opening=states[S.OPENING],
        closing=states[S.CLOSING],
        weight=env.model.marks.weight(server.name),
        cordoned=env.model.marks.is_cordoned(server.name),
        held_until=time_of(env.shown_ms(env.model.marks.held_until_ms(server.name, env.wall_ms()))),
        features=sorted(server.features),
        load=server.load,
    )


def _noted_item(server: Server, env: RegionsEnv, known: Mapping[tuple[str, int], int]) -> RegionServer:
    """Describes a process, with why it gets no regions, or the procedure of its crash."""
    note = "; ".join(filter(None, (ways.of_unheard(server, env), ways.of_leaving(server, env))))
    if server.state is not ServerState.ONLINE and (pid := known.get(server.key)):
        note = f"procedure {pid} ({crash.NAME}) deals with its crash"
    return server_item(server, env).model_copy(update={"note": note})


def _drain_of(term: RegionsTerm, server: Server) -> int:
    """Returns the drain of a process that goes on, 0 without one; one that is being undone does not count."""
    records = term.engine.records
    found = (pid for pid, key in term.env.draining.items() if key == server.key)
    return next((pid for pid in found if pid in records and not records[pid].aborted), 0)


# -- checks


def drain_problem(model: Regions, server: Server) -> str | None:
    """Returns why a server cannot be drained; None where it can."""
    if server.state is not ServerState.ONLINE:
        return f"server {server} is {server.state.name.lower()}: its regions go elsewhere by themselves"
    if not any(one is not server for one in model.online()):
        return f"no server but {server} may get regions: its own could go nowhere"
    return None


def drain_remedy(model: Regions, server: Server) -> str:
    """Returns what lets the drain of a server begin."""
    if server.state is not ServerState.ONLINE:
        return "see 'regent regions procedures list --kind crash --live'"
    cordoned = sorted(one.name for one in model.servers.values() if model.marks.is_cordoned(one.name))
    others = [one for one in cordoned if one != server.name]
    return f"start another server, or 'regent servers uncordon {others[0]}'" if others else "start another server"
