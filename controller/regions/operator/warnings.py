"""Warns operators of what is wrong with the domain: in sentences that name the first cases, and the command to use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from controller.procedures.refusals import stopped
from controller.process.wording import counted, named
from controller.regions.damaged import NAMED_MAX, left_out
from controller.regions.environment import RegionsEnv
from controller.regions.in_transition import LATE_MAX, Aged, age_ms, wait_of
from controller.regions.operator import ways
from controller.regions.operator.counts import halted
from controller.regions.operator.explain import without_places, without_servers
from controller.regions.operator.records import cause_of, message_of
from controller.regions.operator.requests import PROCEDURES_COMMAND
from controller.regions.procedures.messages import Transit
from controller.regions.server_lists import Contradictions
from controller.regions.term import RegionsTerm
from state_machines.procedures.kernel import STUCK_ATTEMPTS
from state_machines.regions.model import Regions
from state_machines.regions.states import ServerState

CRASHED_MAX: Final = 3
"""Crashed processes that warnings name; the others are counted."""
LOOKED_AT_MAX: Final = 1_000
"""Failed attempts that one look goes through, the latest first."""


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
