"""Explains the state and the owner of a region in sentences: what it waits for, and what would change it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fastapi import FastAPI, Response
from pydantic import Field

from controller.http.documents import document
from controller.http.models import Document, Item
from controller.http.procedures import time_of
from controller.procedures.engine import Engine
from controller.process.wording import named
from controller.regions.domain import RegionsDomain
from controller.regions.environment import RegionsEnv
from controller.regions.in_transition import age_ms
from controller.regions.operator import growth, ways
from controller.regions.operator.counts import halted
from controller.regions.operator.records import cause_of, message_of, step_of, why_of
from controller.regions.operator.regions import Region as RegionItem
from controller.regions.operator.regions import region_item
from controller.regions.operator.requests import active_term, region_of
from controller.regions.operator.ways import crash_of, failures_of, held_until_ms, works_of
from controller.regions.procedures.crash import FENCE
from controller.regions.procedures.log_task import FENCE_LOG
from controller.regions.procedures.messages import RegionWork, Transit
from regent_agent.protocol import INHERIT
from state_machines.procedures.record import Record
from state_machines.regions.changes import awaits_crash
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.marks import MarkKind
from state_machines.regions.overlaps import opening_mend
from state_machines.regions.references import needed_by
from state_machines.regions.states import IN_TRANSITION, WANTED, RegionState, ServerState, TableState

S = RegionState
STATES: Final = {
    S.OFFLINE: "no server has it: it is new, or it was closed to be opened again",
    S.OPENING: "a server was chosen for it, and may have it already",
    S.OPEN: "a server has opened it, and said so",
    S.CLOSING: "its server gives it up, and may have it still",
    S.CLOSED: "the server that had it gave it up",
    S.SPLITTING: "its server serves it until it is told to close it: two others get its keys then",
    S.SPLIT: "two others have its keys",
    S.MERGING: "its server serves it until it is told to close it: another one gets its keys then",
    S.MERGED: "another one has its keys",
    S.FAILED_OPEN: "no server could open it, in as many attempts as regions.open_attempts_max allows",
    S.ABNORMALLY_CLOSED: "its server crashed, and may have had it until it was fenced",
}


class RegionExplanation(Item):
    """State and owner of a region, their reasons, and the events that would change them, in sentences."""

    region: RegionItem
    state_because: str
    server_because: str
    procedure_because: str = ""
    growth_because: str = Field("", description="whether it is to be split by itself, and why that does not begin now")
    would_change: list[str] = []


class ExplanationView:
    """Explains the regions of the active term."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    def explain(self, region: int) -> RegionExplanation:
        """Explains the state and the owner of a region."""
        term = active_term(self._domain)
        found = region_of(term.env.model, region)
        grows = growth.of_region(found, term.growth, term.env)
        return explained(found, term.env, term.engine).model_copy(update={"growth_because": grows})


def add_explanation_route(app: FastAPI, explanations: ExplanationView) -> None:
    """Adds the route to the surface of a daemon."""

    @app.get("/v1/regions/{region:int}/explanation", response_model=Document[RegionExplanation])
    async def explained(region: int) -> Response:
        return document("RegionExplanation", [explanations.explain(region)])


def explained(region: Region, env: RegionsEnv, engine: Engine[RegionsEnv]) -> RegionExplanation:
    """Explains a region."""
    record = engine.records.get(region.pid)
    return RegionExplanation(
        region=region_item(region, env),
        state_because=_state(region, env, engine),
        server_because=_server(region, env, engine),
        procedure_because=_procedure(region, record, env, engine),
        would_change=list(_changes(region, env, engine)),
    )


def _state(region: Region, env: RegionsEnv, engine: Engine[RegionsEnv]) -> str:
    because = _because(region)
    if region.state is S.FAILED_OPEN:
        because += f"; {_given_up(region, env)}"
    if region.table.state not in WANTED:
        because += f"; its table is {region.table.state.name.lower()}, so it is not to be open"
    record = engine.records.get(region.pid)
    if region.state in IN_TRANSITION:
        return f"{because} (in transition for {age_ms(region, record, env) / 1000:.1f} s)"
    if awaits_crash(region) and region.server is not None:
        record = engine.records.get(crash_of(region.server, engine))
        since_ms = 0 if record is None else env.wall_ms() - record.submitted_ms
    else:
        since_ms = env.now_ms() - region.changed_ms
    return f"{because} (for {max(0, since_ms) / 1000:.1f} s)"


def _because(region: Region) -> str:
    """Says what the state of a region means."""
    if awaits_crash(region):
        return f"it waits for the crash of server {region.server}, which had opened it: nothing serves its keys"
    if region.state is S.OPENING and region.server is None:
        return "the latest open failed, or its server was fenced: a server is chosen for the next one"
    if region.state is S.CLOSED and not region.clean:
        return "it was given up, or closed without the word of a server that had it open: one may have had it"
    return STATES[region.state]


def _given_up(region: Region, env: RegionsEnv) -> str:
    """Says why no server could open a region; an earlier term knew it where this one does not."""
    if cause := env.causes.of_region(region.id):
        return f"in the last attempt {cause}"
    return f"'regent events show --region {region.id}' has what they said"


def _server(region: Region, env: RegionsEnv, engine: Engine[RegionsEnv]) -> str:
    server = region.server
    if server is None:
        return env.claimants.why_held(region) or "no server has it, or may have it"
    match server.state:
        case ServerState.CRASHED:
            return f"{server} crashed and {_before_fence(server, engine)}{_not_dealt_with(server, engine)}"
        case ServerState.FENCED:
            return f"{server} crashed and is fenced: {_after_fence(server, env, engine)}"
        case _:
            left_s = max(0.0, server.deadline_s - env.clock())
            polls = f"polls, its lease holds for {left_s:.1f} s without another poll"
            leaving = f"; {why}" if (why := ways.of_leaving(server, env)) else ""
            return f"{server} {ways.of_unheard(server, env) or polls}{leaving}"


def _before_fence(server: Server, engine: Engine[RegionsEnv]) -> str:
    """Says in which step the crash of a process is whose regions go to no other server yet."""
    record = engine.records.get(crash_of(server, engine))
    fences = any(one.kind == FENCE_LOG.name for one, _ in works_of(server.key, engine))
    if record is None or record.step <= FENCE or fences:
        return "is not fenced yet: until then it may write, so no other server gets the region"
    step = f"procedure {record.pid} ({record.kind}) is in step {step_of(record)}"
    return f"is fenced, so it writes no more; {step}, and no other server gets the region before its log is split"


def _not_dealt_with(server: Server, engine: Engine[RegionsEnv]) -> str:
    """Returns the end of a sentence: why a crashed process is not fenced, or its log not split, where that fails."""
    found = failures_of(server.key, engine)
    return f"; {'; '.join(found)}" if found else ""


def _after_fence(server: Server, env: RegionsEnv, engine: Engine[RegionsEnv]) -> str:
    """Says where the regions of a fenced process go, and names the procedure that sees to it."""
    pid = crash_of(server, engine)
    moved = f"procedure {pid} (crash) has another server get the region" if pid else "another server gets the region"
    until_ms = held_until_ms(server, env)
    if not pid or not until_ms:
        return moved
    until = f"until {time_of(env.shown_ms(until_ms) // 1000 * 1000)} ({(until_ms - env.wall_ms()) / 1000:.0f} s)"
    return f"a hold keeps it for the next process of {server.name}, {until}; then {moved}"


def _procedure(region: Region, record: Record | None, env: RegionsEnv, engine: Engine[RegionsEnv]) -> str:
    if record is None:
        return _waiting(region, env, engine)
    task = message_of(record)
    does = f"has work {task.what!r} done on it" if isinstance(task, RegionWork) else "moves it"
    parts = [f"procedure {record.pid} ({record.kind}, step {step_of(record)}) {does}"]
    if (parked := engine.parked.get(record.pid)) is not None:
        parts.append(f"it is parked, and not run: {parked}; 'regent regions procedures bypass {record.pid}' ends it")
    if why := why_of(record):
        parts.append(f"because: {why}")
    if isinstance(task, Transit) and task.retries:
        parts.append(f"{task.retries} attempts failed, the last one at {task.avoid or 'a server'}")
    if cause := cause_of(record, env):
        parts.append(f"in the last attempt {cause}")
    if isinstance(task, Transit) and task.not_before_ms > env.wall_ms():
        parts.append(f"the next one comes in {(task.not_before_ms - env.wall_ms()) / 1000:.1f} s")
    if record.pid in env.unplaced:
        parts.append(_unplaced(region, env))
    if record.pid in env.claimants.held:
        parts.append("it waits until no server can have the region")
    if told := env.dispatcher.shows(region.id):
        parts.append(told)
    if record.error:
        parts.append(f"its latest error: {record.error}")
    return "; ".join(parts)


def _waiting(region: Region, env: RegionsEnv, engine: Engine[RegionsEnv]) -> str:
    """Names procedures that wait for a lock of the region."""
    locks = engine.locks()
    mine = [one for one in locks if str(region.id) in one.parts and one.waiting]
    held = region.server if held_until_ms(region.server, env) else None
    if not mine and held is not None and (pid := crash_of(held, engine)):
        return f"procedure {pid} (crash) waits for the end of the hold"
    if not mine and awaits_crash(region) and region.server is not None and (pid := crash_of(region.server, engine)):
        return f"procedure {pid} (crash) sees to it"
    if not mine:
        return "no procedure moves it"
    holders = sorted({one.pid for one in locks if one.resource == mine[0].resource and not one.waiting})
    waits = "procedure {} waits" if len(mine) == 1 else "procedures {} wait"
    hold = "procedure {} holds" if len(holders) == 1 else "procedures {} hold"
    waiting = waits.format(named(one.pid for one in mine))
    return f"{waiting} for its lock, which {hold.format(named(holders))}"


def _unplaced(region: Region, env: RegionsEnv) -> str:
    if env.servers() and region.id in env.model.sources:
        return without_inherit("its data")
    return without_servers(env) if env.places else without_places(env)


def without_inherit(data: str) -> str:
    """Says that no server may get a region whose data begins in that of others. ``data``: whose."""
    return (
        f'no server that may get regions has the feature "{INHERIT}", and {data} begins in that of others: start a '
        "version of one that has it"
    )


def without_places(env: RegionsEnv) -> str:
    """Says what regions wait for that are not placed yet."""
    if env.restored and not env.restored_places:
        return (
            "the store was restored from a copy: servers that it does not know have one lease to come or to stop, "
            f"{max(0.0, env.restored_ends_s - env.clock()):.1f} s more"
        )
    online = len(list(env.model.online()))
    return f"{online} of {env.options.servers_min} servers have come (regions.servers_min)"


def without_servers(env: RegionsEnv) -> str:
    """Says that no server may get regions, and names those that are online and may not."""
    online = [one for one in env.model.servers.values() if one.state is ServerState.ONLINE and one.here]
    cordoned = sorted({one.name for one in online if env.model.marks.is_cordoned(one.name)})
    leaving = sorted(str(one) for one in online if one.leaving and one.name not in cordoned)
    text = "no server is online that may get regions"
    if leaving:
        text += f"; leaving until 'regent servers uncordon NAME', or a next process of it: {named(leaving)}"
    if cordoned:
        text += f"; cordoned until 'regent servers uncordon NAME': {named(cordoned)}"
    return text


def _of_unwanted(table: Table, env: RegionsEnv, engine: Engine[RegionsEnv]) -> Iterator[str]:
    """Names what would change a region that is not to be open; a procedure that goes on by itself needs no command."""
    if table.state is TableState.DISABLED:
        if env.model.marks.get(MarkKind.STOPPED, table.name) is not None:
            yield "'regent regions start' enables all tables that were stopped, this one among them"
        needed = needed_by(env.model, table)
        yield f"{f'{needed}; then ' if needed else ''}'regent tables enable {table.name}' opens it"
    elif table.state is TableState.TRUNCATING:
        yield ways.of_table(table)
    elif table.name in halted(env.model, engine.live()):
        act = "delete" if table.state is TableState.DELETING else "disable"
        yield f"'regent tables {act} {table.name} --wait' goes on with that"
    elif table.state is TableState.DISABLING:
        yield "its table becomes disabled: it can be enabled then, which opens it"


def _changes(region: Region, env: RegionsEnv, engine: Engine[RegionsEnv]) -> Iterator[str]:
    """Names the events that would change the region."""
    server = region.server
    if region.table.state not in WANTED:
        yield from _of_unwanted(region.table, env, engine)
    elif region.state is S.FAILED_OPEN or (server is None and not region.pid):
        yield opening_mend(env.model, region)
    elif region.state in IN_TRANSITION and not region.pid and server is not None and server.state is ServerState.ONLINE:
        yield f"'regent regions assign {region.id}' has {server} close it, and opens it then"
    if region.state is S.OPEN and server is not None and not region.pid:
        yield from _when_open(region, server, env.cooldown.left_ms(region.id, env.now_ms()))
    yield from ways.of_region(region, env, engine)
    if pinned := env.model.marks.pinned(region.id):
        yield _of_pin(region, pinned)
    if region.pid in env.unplaced:
        yield "a server registers"
    if sources := env.model.sources.get(region.id):
        yield (
            f"its server copies what it needs of {named(f'#{one.region}' for one in sources)}, and says so: before "
            "that it is not split or merged"
        )
    if region.id in env.model.damages.overlapping:
        yield (
            "clients get no route to it, because other regions have some of its keys: 'regent regions report --table "
            f"{region.table.name} --kind overlap' names what parts them"
        )
    if env.claimants.is_held(region):
        yield "the servers that may have it list their regions and close it, or are fenced"


def _of_pin(region: Region, pinned: str) -> str:
    """Says what a pin does: it counts where a server is chosen, and moves no region that another one has."""
    if region.server is None or region.server.name == pinned:
        return f"it is pinned to {pinned}, and opened there wherever that server is online"
    return (
        f"it is pinned to {pinned}, and no pin moves it away from {region.server}: 'regent regions move {region.id} "
        f"{pinned}' does; its next open is there where that server is online then"
    )


def _when_open(region: Region, server: Server, rests_ms: int) -> Iterator[str]:
    if server.state is ServerState.CRASHED:
        return
    if server.state is ServerState.ONLINE:
        yield f"{server} crashes, leaves, or is drained"
    if rests_ms:
        yield f"it rests for {rests_ms / 1000:.1f} s more after a move; until then only --force moves it again"
    yield f"'regent regions move {region.id} SERVER' moves it"
