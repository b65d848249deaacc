"""Describes regions, tables and servers for operators, from the model of the active daemon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from configs.settings import Settings
from configs.version import product_version
from controller.http.models import Health
from controller.procedures.refusals import stopped
from controller.process.wording import counted, name_of, named
from controller.regions.damaged import NAMED_MAX, left_out
from controller.regions.domain import RegionsDomain, RegionsMode, shown
from controller.regions.environment import RegionsEnv
from controller.regions.http.models import (
    Namespace as NamespaceItem,
)
from controller.regions.http.models import (
    Region as RegionItem,
)
from controller.regions.http.models import (
    RegionExplanation,
    RegionServer,
    RegionsStatus,
)
from controller.regions.http.models import (
    RegionTransition as TransitionItem,
)
from controller.regions.http.models import (
    Table as TableItem,
)
from controller.regions.http.ports import RegionPage, RegionQuery, TablePage
from controller.regions.in_transition import oldest
from controller.regions.operator import ways
from controller.regions.operator.access import active_term, region_of, server_of, table_of
from controller.regions.operator.behind import changing, holders, waits_behind
from controller.regions.operator.counts import by_state, halted, of_tables, servers_of, stranded, waiting
from controller.regions.operator.crashes import crashes
from controller.regions.operator.explain import explained, without_places, without_servers
from controller.regions.operator.items import region_item, server_item, table_item, transition_item
from controller.regions.operator.late import late
from controller.regions.operator.pages import region_page, table_page
from controller.regions.operator.procedures import COMMAND
from controller.regions.procedures import crash
from controller.regions.server_lists import Contradictions
from controller.regions.term import RegionsTerm
from state_machines.regions.model import Regions, Server
from state_machines.regions.states import RegionState, ServerState

WELL: Final = frozenset({RegionsMode.ACTIVE, RegionsMode.STANDBY})
"""Modes of a daemon that does its work, or stands by for it."""
CRASHED_MAX: Final = 3
"""Crashed processes that warnings name; the others are counted."""
UNBOUND: Final = frozenset({RegionsMode.STARTING, RegionsMode.STOPPED})
"""Modes in which the listener has no port."""


class Reading:
    """Implements :class:`controller.regions.http.ports.RegionReading`."""

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
            file=str(self._settings.regions_file),
            lease_ms=wanted.lease_ms,
            fence=wanted.fence,
        )
        return found if domain.term is None else found.model_copy(update=self._numbers(domain.term))

    def _numbers(self, term: RegionsTerm) -> dict[str, object]:
        env, model = term.env, term.env.model
        states, servers = by_state(model), servers_of(model)
        transit = term.ages.present()
        left = stranded(model).total()
        return {
            "epoch": term.manager.epoch,
            "places": env.places,
            "namespaces": len(model.namespaces),
            "tables": len(model.tables),
            "regions": len(model.regions),
            "open_regions": states[RegionState.OPEN],
            "waiting_regions": waiting(model),
            "failed_regions": states[RegionState.FAILED_OPEN],
            "stranded_regions": left,
            "damaged_rows": sum(model.damages.count.values()),
            "gaps": len(model.damages.gaps),
            "in_transition": transit.regions,
            "overdue": transit.overdue,
            "oldest_transition_s": transit.oldest_ms / 1000,
            "servers": servers["online"] + servers["leaving"],
            "crashed_servers": servers["crashed"] + servers["fenced"],
            "procedures": sum(1 for _ in term.engine.live()),
            "warnings": [
                *([self._domain.older] if self._domain.older else []),
                *_warnings(term),
                *_crashed(term),
                *late(term, transit.overdue),
                *_drained(term.env),
                *_failed(states[RegionState.FAILED_OPEN]),
                *_left(left, halted(model, term.engine.records.values())),
                *_damaged(model),
            ],
        }

    def list_regions(self, query: RegionQuery) -> RegionPage:
        """Lists regions by table and start key."""
        return region_page(active_term(self._domain).env, query)

    def describe_region(self, region: int) -> RegionItem:
        """Describes one region."""
        env = active_term(self._domain).env
        return region_item(region_of(env.model, region), env)

    def explain(self, region: int) -> RegionExplanation:
        """Explains the state and the owner of a region."""
        term = active_term(self._domain)
        return explained(region_of(term.env.model, region), term.env, term.engine)

    async def list_transitions(self, limit: int) -> list[TransitionItem]:
        """Lists regions in transition, the oldest first."""
        term = active_term(self._domain)
        warning_ms = self._settings.regions.transit_warning_ms
        found, _ = await oldest(term.env, term.engine.records, limit)
        return [transition_item(one, term.env, overdue=one.age_ms > warning_ms) for one in found]

    def list_tables(self, limit: int, after: str | None) -> TablePage:
        """Lists tables by name."""
        return table_page(active_term(self._domain).env.model, limit, after)

    def describe_table(self, table: str) -> TableItem:
        """Describes one table."""
        term = active_term(self._domain)
        env, engine = term.env, term.engine
        found = table_item(table_of(env.model, table), of_tables(env.model), env.model.damages)
        locks = engine.locks()
        notes = (
            f"procedure {record.pid} ({record.kind}): {waits}; "
            f"{ways.behind(holders(record, locks, engine), env, engine)}"
            for record in changing(table, engine)
            if (waits := waits_behind(record, locks, engine))
        )
        return found.model_copy(update={"note": "; ".join(notes)})

    def list_namespaces(self) -> list[NamespaceItem]:
        """Lists namespaces by name."""
        model = active_term(self._domain).env.model
        tables = Counter(one.namespace for one in model.tables.values())
        return [NamespaceItem(name=name, tables=tables[name]) for name in sorted(model.namespaces)]

    def list_servers(self) -> list[RegionServer]:
        """Lists processes of servers by name and incarnation."""
        term = active_term(self._domain)
        known = crashes(term.engine)
        return [_server_item(one, term.env, known) for _, one in sorted(term.env.model.servers.items())]

    def describe_server(self, server: str) -> RegionServer:
        """Describes one process, by its name alone or with its incarnation."""
        term = active_term(self._domain)
        return _server_item(server_of(term.env.model, server), term.env, crashes(term.engine))


def _server_item(server: Server, env: RegionsEnv, known: Mapping[tuple[str, int], int]) -> RegionServer:
    """Describes a process, with why it gets no regions, or the procedure of its crash."""
    note = ways.of_leaving(server, env)
    if server.state is not ServerState.ONLINE and (pid := known.get(server.key)):
        note = f"procedure {pid} ({crash.NAME}) deals with its crash"
    return server_item(server, env).model_copy(update={"note": note})


def _crashed(term: RegionsTerm) -> Iterator[str]:
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


def _ahead(term: RegionsTerm) -> list[str]:
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


def _warnings(term: RegionsTerm) -> list[str]:
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
    found += _ahead(term)
    if complaint := term.complaint():
        found.append(complaint)
    found += stopped(term.engine, COMMAND, f"{COMMAND} list --parts -o wide")
    return found
