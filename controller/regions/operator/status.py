"""Shows the status of the domain in every mode, its health, and warnings of what is wrong with it.

Warnings are sentences that name the first cases, and the command to use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from fastapi import FastAPI, Response
from pydantic import Field

from configs.settings import Settings
from configs.version import product_version
from controller.http.documents import document
from controller.http.models import Document, Health, Item
from controller.procedures.refusals import stopped
from controller.process.wording import counted, name_of, named
from controller.regions.damaged import NAMED_MAX, left_out
from controller.regions.domain import RegionsDomain, RegionsMode, shown
from controller.regions.environment import RegionsEnv
from controller.regions.in_transition import LATE_MAX, Aged, age_ms, wait_of
from controller.regions.operator import ways
from controller.regions.operator.counts import by_state, halted, servers_of, stranded, waiting
from controller.regions.operator.explain import without_places, without_servers
from controller.regions.operator.records import cause_of, message_of
from controller.regions.operator.requests import PROCEDURES_COMMAND
from controller.regions.operator.upgrade import lacking_features
from controller.regions.procedures.messages import Transit
from controller.regions.server_lists import Contradictions
from controller.regions.term import RegionsTerm
from state_machines.procedures.kernel import STUCK_ATTEMPTS
from state_machines.regions.levels import NEWEST
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState, ServerState

CRASHED_MAX: Final = 3
"""Crashed processes that warnings name; the others are counted."""
LOOKED_AT_MAX: Final = 1_000
"""Failed attempts that one look goes through, the latest first."""
WELL: Final = frozenset({RegionsMode.ACTIVE, RegionsMode.STANDBY})
"""Modes of a daemon that does its work, or stands by for it."""
UNBOUND: Final = frozenset({RegionsMode.STARTING, RegionsMode.STOPPED})
"""Modes in which the listener has no port."""


class RegionsStatus(Item):
    """The regions' domain of a daemon. Numbers are absent where it has no model, as on a standby."""

    mode: str
    why: str
    version: str
    daemon: str = Field("", description="name of this daemon: its controller.id, or its host and pid without Kafka")
    epoch: int | None = None
    listener: str = Field("", description="address for servers and clients")
    connections: int = 0
    store: str = ""
    transport: str = Field(
        "", description="how servers may answer: 'poll' by reports alone, 'zookeeper' by znodes, too"
    )
    file: str = ""
    lease_ms: int = 0
    fence: str = ""
    places: bool | None = Field(None, description="whether enough servers have come, so that regions are placed")
    namespaces: int | None = None
    tables: int | None = None
    regions: int | None = None
    open_regions: int | None = Field(None, description="at servers that may serve")
    waiting_regions: int | None = Field(None, description="WAITING: open at a process that crashed, and served by none")
    failed_regions: int | None = Field(None, description="FAILED_OPEN: an operator has them assigned again")
    stranded_regions: int | None = Field(
        None, description="of enabled tables, not open, and moved by no procedure: an operator has them assigned"
    )
    damaged_rows: int | None = Field(
        None, description="stored rows that cannot be used: they are left out, and stay as they are"
    )
    gaps: int | None = Field(None, description="ranges of keys that no region has, or several: no route is given there")
    in_transition: int | None = None
    overdue: int | None = Field(None, description="of them, longer than regions.transit_warning_ms")
    oldest_transition_s: float | None = None
    servers: int | None = Field(None, description="online ones")
    crashed_servers: int | None = Field(None, description="those whose crash is being dealt with")
    procedures: int | None = Field(None, description="those that have not ended")
    level: int | None = Field(None, description="of the store: 'regent regions upgrade' raises it")
    newest_level: int = Field(NEWEST, description="the highest one that this daemon knows")
    lacking_features: list[str] = Field([], description="what servers cannot do, by server")
    warnings: list[str] = []


class StatusView:
    """Shows the status of a daemon's domain."""

    def __init__(self, domain: RegionsDomain, settings: Settings) -> None:
        self._domain = domain
        self._settings = settings

    def health(self) -> Health:
        """Reports whether the domain is active, or stands by."""
        mode, why = shown(self._domain)
        return Health(ok=mode in WELL, mode=mode.value, why=why)

    def status(self) -> RegionsStatus:
        """Returns the status, in every mode."""
        domain, wanted = self._domain, self._settings.regions
        mode, why = shown(domain)
        found = RegionsStatus(
            mode=mode.value,
            why=why,
            version=product_version(),
            daemon=name_of(self._settings),
            listener=f"{self._settings.regions_host}:{domain.listener.port}" if domain.mode not in UNBOUND else "",
            connections=domain.listener.connections,
            store=wanted.store,
            transport=wanted.transport,
            file=str(self._settings.regions_file),
            lease_ms=wanted.lease_ms,
            fence=wanted.fence,
        )
        return found if domain.term is None else found.model_copy(update=self._numbers(domain.term))

    def _numbers(self, term: RegionsTerm) -> dict[str, object]:
        env, model = term.env, term.env.model
        states, servers = by_state(model), servers_of(model)
        transit = term.ages.present()
        failed, left = states[RegionState.FAILED_OPEN], stranded(model).total()
        return {
            "epoch": term.manager.epoch,
            "places": env.places,
            "namespaces": len(model.namespaces),
            "tables": len(model.tables),
            "regions": len(model.regions),
            "open_regions": states[RegionState.OPEN],
            "waiting_regions": waiting(model),
            "failed_regions": failed,
            "stranded_regions": left,
            "damaged_rows": sum(model.damages.count.values()),
            "gaps": len(model.damages.gaps),
            "in_transition": transit.regions,
            "overdue": transit.overdue,
            "oldest_transition_s": transit.oldest_ms / 1000,
            "servers": servers["online"] + servers["leaving"],
            "crashed_servers": servers["crashed"] + servers["fenced"],
            "procedures": sum(1 for _ in term.engine.live()),
            "level": model.marks.level,
            "lacking_features": lacking_features(model),
            "warnings": list(warnings(term, self._domain.older, transit.overdue, failed, left)),
        }


def add_status_route(app: FastAPI, view: StatusView) -> None:
    """Adds the route to the surface of a daemon."""

    @app.get("/v1/regions", response_model=Document[RegionsStatus])
    async def status() -> Response:
        return document("RegionsStatus", [view.status()])


# -- warnings


def warnings(term: RegionsTerm, older: str, overdue: int, failed: int, stranded: int) -> Iterator[str]:
    """Yields all of them. ``older``: why the store is older than the journal; ``overdue`` and others: of regions."""
    if older:
        yield older
    yield from of_term(term)
    yield from crashed(term)
    yield from late(term, overdue)
    yield from _drained(term.env)
    yield from _failed(failed)
    yield from _left(stranded, halted(term.env.model, term.engine.records.values()))
    yield from _damaged(term.env.model)


def of_term(term: RegionsTerm) -> list[str]:
    """Returns what is wrong with a term as a whole: its servers, its store and its procedures."""
    env, found = term.env, list[str]()
    online = len(list(env.model.online()))
    if not env.places:
        found.append(f"{without_places(env)}: no region is placed yet")
    elif not online:
        found.append(without_servers(env))
    if (doubt := term.manager.silence.doubt(term.env.clock())) is not None:
        found.append(
            f"{doubt.silent} of {counted(doubt.members, 'server')} do not poll: look whether this machine is reached "
            f"from theirs; the first one counts as crashed in {doubt.left_s:.1f} s"
        )
    found += _contradicted(env.contradictions, torn=env.torn)
    found += ahead(term)
    if complaint := term.complaint():
        found.append(complaint)
    found += stopped(term.engine, PROCEDURES_COMMAND, f"{PROCEDURES_COMMAND} list --parts -o wide")
    return found


def ahead(term: RegionsTerm) -> list[str]:
    """Names servers of which no process can come any more: an older daemon took an incarnation far ahead."""
    model, most = term.env.model, term.manager.admission.incarnation_max()
    servers = sorted({one.name for one in model.servers.values() if one.incarnation > most})
    names = sorted(name for name, last in model.buried.items() if last > most and name not in servers)
    found = []
    if servers:
        what = f"an incarnation beyond {most}, the highest one for now: no later process of them can register"
        found.append(
            f"servers {named(servers)} have {what}; 'regent servers expire NAME', then 'forget NAME' ends that"
        )
    if names:
        what = f"beyond {most}, the highest one for now: their processes are refused"
        found.append(f"the fenced incarnations of {named(names)} are {what}; 'regent servers forget NAME' ends that")
    return found


def _contradicted(found: Contradictions, *, torn: bool) -> Iterator[str]:
    """Says that servers list what no row explains; where a procedure left none behind, that need not be a copy."""
    if found.noted:
        count = ("at least " if found.incomplete else "") + counted(len(found.noted), "region")
        first, else_ = next(iter(found.noted.values())), ", or did a procedure end whose record is gone" if torn else ""
        yield (
            f"lists of servers contradict the store in {count} ({first}): was it restored "
            f"from a copy{else_}? See 'A store that was restored' in the runbook of regions"
        )


def crashed(term: RegionsTerm) -> Iterator[str]:
    """Names processes that crashed and have regions still, with what goes on with their crash."""
    found = [one for one in term.env.model.servers.values() if one.state is not ServerState.ONLINE and one.regions]
    for server in sorted(found, key=lambda one: -len(one.regions))[:CRASHED_MAX]:
        goes_on = "; ".join(ways.of_crash(server, term.env, term.engine)) or "it goes on by itself"
        yield f"{server} crashed with {counted(len(server.regions), 'region')}: {goes_on}"
    if len(found) > CRASHED_MAX:
        yield f"{len(found) - CRASHED_MAX} more servers crashed: see 'regent servers list'"


def _drained(env: RegionsEnv) -> Iterator[str]:
    """Names processes that were drained, and get no regions for that."""
    drained = {one.name for one in env.model.servers.values() if one.leaving and one.state is ServerState.ONLINE}
    drained -= {name for name, _ in env.draining.values()}
    if drained:
        yield f"servers {named(sorted(drained))} were drained, and get no regions until 'regent servers uncordon NAME'"


def _damaged(model: Regions) -> Iterator[str]:
    """Names what is stored and cannot be used, with the remedy."""
    damages = model.damages
    total, gaps = sum(damages.count.values()), damages.gaps
    for one in damages.rows[:NAMED_MAX]:
        yield f"left out, {one}"
    for gap in gaps[:NAMED_MAX]:
        yield f"{gap}: no route is given there"
    if total or gaps:
        yield (
            f"{left_out(damages)}; {counted(len(gaps), 'gap')} in the keys of tables: stop the daemon, restore the "
            "rows from a copy of the store, then start it"
        )


def _failed(count: int) -> Iterator[str]:
    """Says that regions wait for an operator, which no server could open."""
    if count:
        yield (
            f"{counted(count, 'region')} could be opened by no server: see 'regent regions list --state failed_open', "
            "and 'regent regions explain ID' for the cause"
        )


def _left(stranded: int, tables: Sequence[str]) -> Iterator[str]:
    """Says what is on its way to nowhere: regions and tables that no procedure moves any more."""
    if stranded:
        them = "it" if stranded == 1 else "them"
        yield (
            f"{counted(stranded, 'region')} of enabled tables not open, and no procedure opens {them}: "
            "see 'regent regions list --stranded'"
        )
    if tables:
        yield (
            f"no procedure goes on with {counted(len(tables), 'table')} ({named(tables)}): "
            "'regent tables describe NAME' has the state, 'regent tables enable', 'disable' or 'delete' goes on"
        )


# -- regions that hang


def late(term: RegionsTerm, overdue: int) -> Iterator[str]:
    """Yields a sentence for each of the first regions that are overdue, or fail again and again; counts the others."""
    found = term.ages.late()
    named = {one.region.id for one in found}
    stuck = (one for one in _stuck(term) if one.region.id not in named)
    shown = [*found, *islice(stuck, LATE_MAX - len(found))]
    for one in shown:
        yield _told(one, term.env)
    if overdue > len(found):
        yield (
            f"{counted(overdue - len(found), 'more region')} in transition for over "
            f"{term.options.transit_warning_ms / 1000:g} s: see 'regent regions transitions'"
        )


def _stuck(term: RegionsTerm) -> Iterator[Aged]:
    """Yields regions whose opens failed too often."""
    for pid, cause in islice(term.env.causes.items(), LOOKED_AT_MAX):
        region, record = term.env.model.regions.get(cause.region), term.engine.records.get(pid)
        if region is None or record is None or region.pid != pid:
            continue
        task = message_of(record)
        if isinstance(task, Transit) and task.retries >= STUCK_ATTEMPTS:
            yield Aged(region, age_ms(region, record, term.env), record)


def _told(one: Aged, env: RegionsEnv) -> str:
    region, record = one.region, one.record
    mover = "" if record is None else f"procedure {record.pid} ({record.kind}): "
    waits = f"it waits until {wait_of(region, env).what}"
    parts = [f"{mover}region {region} is in transition for {one.age_ms / 1000:.0f} s: {waits}"]
    if record is not None:
        task = message_of(record)
        if isinstance(task, Transit) and task.retries:
            parts.append(f"{counted(task.retries, 'attempt')} in vain")
        if cause := cause_of(record, env):
            parts.append(f"in the last attempt {cause}")
    parts.append(f"see 'regent regions explain {region.id}'")
    return "; ".join(parts)
