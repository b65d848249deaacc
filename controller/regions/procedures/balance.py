"""Balance: a plan is stored, then regions move by it, some at a time (HBase ``BalanceRegions``).

The plan is in the record before anything is sent, so operators see it, and another daemon goes on with it. Each move is
a procedure of its own, and judged again before it begins. One that is of no use by then is left out, and counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Kind, Step
from controller.process.wording import counted, named
from controller.regions.environment import RegionsEnv
from controller.regions.procedures.balance_plan import (
    BALANCE_TASK,
    BalanceTask,
    PlannedMove,
    judged,
    planned,
    result_text,
)
from controller.regions.procedures.messages import MOVE, Move
from controller.regions.procedures.move import NAME as MOVE_NAME
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Children, Done, Failed, Next, Outcome, Wait
from state_machines.procedures.record import Record, child
from state_machines.procedures.transition import Members
from state_machines.regions.balancing.checks import Bar, Seen, bar_of, skip_of
from state_machines.regions.entities import Region
from state_machines.regions.levels import lacking
from state_machines.regions.marks import MarkKind
from state_machines.regions.states import ServerState
from state_machines.regions.transit import PAUSE_MS_MAX

log = logging.getLogger("regent.regions")

NAME: Final = "balance"
SWITCH: Final = "balancer"
"""Subject of the mark that switches it off."""
AGAIN_MS: Final = 500
TRIED_MAX: Final = 3
"""Moves to a server after which a balance makes no more where none of them has arrived."""


# -- conditions


class Problem(NamedTuple):
    """Why no balance begins now, and what would let one begin."""

    bar: Bar
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


def problem_of(env: RegionsEnv, running: int = 0, *, force: bool = False, off: bool = True) -> Problem | None:
    """Returns why no balance begins now; None where one may. ``running``: pid of another one, 0 without.

    ``off``: one that is switched off does not begin.
    """
    model, servers = env.model, env.model.servers.values()
    crashed = [one for one in servers if one.state is not ServerState.ONLINE]
    unheard = sorted(
        {str(one) for one in env.unregistered()} | {f"{name},{number}" for name, number in env.claimants.processes}
    )
    silent = sorted(str(one) for one in model.online() if env.is_late(one))
    targets, transit = len(env.servers()), len(model.transit)
    mark = model.marks.get(MarkKind.OFF, SWITCH) if off else None
    lacks = lacking(model.marks.level, NAME)
    seen = Seen(mark is not None, running, len(crashed), len(unheard), len(silent), targets, transit, lacks is not None)
    match bar_of(seen, force=force):
        case None:
            return None
        case Bar.OFF as bar:
            by = f" by {mark.by}" if mark is not None and mark.by else ""
            return Problem(bar, f"the balancer is switched off{by}", "'regent balancer on' switches it on")
        case Bar.LEVEL as bar:
            assert lacks is not None
            return Problem(bar, *lacks)
        case Bar.RUNNING as bar:
            abort = f"'regent regions procedures abort {running}' ends it after its moves under way"
            return Problem(bar, f"procedure {running} balances already", f"wait for its end, or {abort}")
        case Bar.CRASH as bar:
            remedy = "wait for its end: 'regent regions procedures list --kind crash --live' shows it"
            return Problem(bar, f"the crash of {named(sorted(map(str, crashed)))} is dealt with", remedy)
        case Bar.UNHEARD as bar:
            what = f"servers {named(unheard)} have not listed their regions at this daemon yet"
            return Problem(bar, what, "try again in some seconds")
        case Bar.SILENT as bar:
            what = f"servers {named(silent)} have not polled for half a lease"
            remedy = "wait until they poll again, or their crash is dealt with: 'regent servers list' shows them"
            return Problem(bar, what, remedy)
        case Bar.SERVERS as bar:
            what = f"{counted(targets, 'server')} may get regions, and a balance needs two"
            return Problem(bar, what, "start another one, or 'regent servers uncordon' one that is kept from regions")
        case Bar.TRANSIT as bar:
            remedy = "wait until 'regent regions transitions' is empty, or balance the others with --force"
            return Problem(bar, f"{counted(transit, 'region')} in transition, or at work", remedy)


# -- the plan


async def plan(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Has a plan made, and stores it: nothing was sent before. After a failover it waits for the lists of servers."""
    task: BalanceTask = BALANCE_TASK.decode(record.data)
    if not env.planner.has_begun(record.pid):
        if not _has_come(env) or env.claimants.processes:
            return Wait(env.wall_ms() + AGAIN_MS, record.data, durable=False)
        if (problem := problem_of(env, force=task.force)) is not None:
            return Failed(str(problem))
        env.planner.begin(record.pid, env.wake, record.caller.nonce)
    made = env.planner.made(record.pid)
    if made is None:
        return Wait(0, record.data, durable=False)
    if isinstance(made, str):
        return Failed(f"no plan could be made: {made}; the daemon's log may have more")
    found = planned(task, made)

    def entered(_: Change) -> None:
        env.planner.forget(record.pid)
        if found.moves:
            _tell(env, record.pid, found)

    return Effect(Next(record.step + 1, BALANCE_TASK.encode(found)), (), entered)


def _has_come(env: RegionsEnv) -> bool:
    """Checks whether all servers have come to this daemon: after a failover a target may be the last one."""
    return env.places and not env.unregistered()


def _tell(env: RegionsEnv, pid: int, task: BalanceTask) -> None:
    left = f", {task.left} further ones are left to the next balance" if task.left else ""
    log.info(
        "pid=%d %s: moves %d of %d regions between %d servers, %d at a time (cost %.3f, then %.3f)%s%s; "
        "'regent balancer plan %d' lists them, 'regent regions procedures abort %d' ends it",
        *(pid, NAME, len(task.moves), task.regions, task.servers, env.options.balancer_moves_together),
        *(task.before, task.after, left, f"; its cause: {task.why}" if task.why else "", pid, pid),
    )


# -- moves


async def move_some(env: RegionsEnv, record: Record) -> Outcome:
    """Has the next regions moved that are still where the plan found them; the step is repeated until the last one."""
    task: BalanceTask = BALANCE_TASK.decode(record.data)
    if task.begun >= len(task.moves):
        return Next(record.step + 1, record.data)
    if env.model.marks.get(MarkKind.OFF, SWITCH) is not None:
        return Next(record.step + 1, BALANCE_TASK.encode(replace(task, off=True)))
    if env.left_ms(task.not_before_ms):
        return Wait(task.not_before_ms, record.data, durable=False)
    if not _has_come(env):
        return Wait(env.wall_ms() + AGAIN_MS, record.data, durable=False)
    some, wave = _wave(env, task)
    if not wave:
        return Next(record.step + 1, judged(task, some))
    children = tuple(_moving(task, some[at], table) for at, table in wave)
    pause_ms = min(PAUSE_MS_MAX, env.options.balancer_spread_ms * len(wave) // len(task.moves))
    after = replace(task, not_before_ms=env.wall_ms() + pause_ms if pause_ms else 0)

    def rest(count: int) -> bytes:
        return judged(after, some[: wave[count][0]])

    return Children(children, record.step, judged(after, some), rest=rest)


def _moving(task: BalanceTask, one: PlannedMove, table: str) -> Record:
    why = f"a balance: {task.whys[one.why]}"
    return child(MOVE_NAME, MOVE.encode(Move(one.region, table, task.names[one.to], why)))


def _wave(env: RegionsEnv, task: BalanceTask) -> tuple[list[PlannedMove], list[tuple[int, str]]]:
    """Judges the next moves until a wave is full; returns these, and positions and tables of those to make."""
    model, now_ms = env.model, env.now_ms()
    targets, failing = dict[bool, set[str]](), _failing(env, task)
    some, wave = list[PlannedMove](), list[tuple[int, str]]()
    for one in task.moves[task.begun :]:
        region = model.regions.get(one.region)
        skip = skip_of(
            region,
            task.names[one.source],
            task.names[one.to],
            () if region is None else _targets(env, region, targets),
            claimed=region is not None and env.claimants.is_held(region),
            pinned=bool(model.marks.pinned(one.region)),
            rests=env.cooldown.left_ms(one.region, now_ms) > 0,
            fails=task.names[one.to] in failing,
        )
        some.append(one if skip is None else replace(one, skip=skip.value))
        if region is not None and skip is None:
            wave.append((len(some) - 1, region.table.name))
        if len(wave) >= env.options.balancer_moves_together:
            break
    return some, wave


def _failing(env: RegionsEnv, task: BalanceTask) -> set[str]:
    """Returns the names of servers that have got none of the regions that were moved to them: several, so far."""
    tried, there = Counter[str](), set[str]()
    for one in task.moves[: task.begun]:
        if not one.skip:
            tried[task.names[one.to]] += 1
            if _is_there(env, task, one):
                there.add(task.names[one.to])
    return {name for name, count in tried.items() if count >= TRIED_MAX and name not in there}


def _targets(env: RegionsEnv, region: Region, found: dict[bool, set[str]]) -> set[str]:
    """Returns the names of the servers that may get a region; found once for all regions with sources, and without."""
    has_sources = region.id in env.model.sources
    if has_sources not in found:
        found[has_sources] = {one.name for one in env.able(region)}
    return found[has_sources]


async def end(env: RegionsEnv, record: Record) -> Outcome:
    """Ends with the number of regions that are where the plan wanted them, and why others were left out."""
    task: BalanceTask = BALANCE_TASK.decode(record.data)
    return Done(result_text(task, arrived(env, task)).encode())


def arrived(env: RegionsEnv, task: BalanceTask) -> int:
    """Returns how many regions of a plan are where it wanted them."""
    return sum(_is_there(env, task, one) for one in task.moves[: task.begun] if not one.skip)


def _is_there(env: RegionsEnv, task: BalanceTask, one: PlannedMove) -> bool:
    region = env.model.regions.get(one.region)
    return region is not None and region.server is not None and region.server.name == task.names[one.to]


def _demand(record: Record) -> Demand:
    """Demands that no other balance is under way."""
    BALANCE_TASK.decode(record.data)
    return Demand(Resource(Scope.SERVER, "balance of regions"), exclusive=True)


def _admit(_: Record, live: Sequence[Record]) -> str | None:
    """Refuses a balance beside another one: it would plan what the other one moves."""
    return f"procedure {live[0].pid} balances already: wait for its end" if live else None


def _members(record: Record) -> Members:
    return Members(why=BALANCE_TASK.decode(record.data).why)


BALANCE: Final[Kind[RegionsEnv]] = Kind(
    NAME,
    (Step("plan", plan), Step("move", move_some), Step("end", end)),
    _demand,
    holds_locks=True,
    members=_members,
    admit=_admit,
)
