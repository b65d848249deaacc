"""Judges whether each command is accepted and ends, or the refusal names one that is: in any situation, whatever was.

After that everything that was wrong is healed, and nothing may be left half-way that is not counted and shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from controller.http.procedures import Procedure
from controller.regions.operator.counts import halted, stranded
from state_machines.procedures.record import Record
from state_machines.regions.changes import awaits_crash, is_stranded
from state_machines.regions.entities import Region
from state_machines.regions.states import IN_TRANSITION, RegionState, TableState
from tests.kit.regions.world import virtual
from tests.simulation.regions.cases import Case, commands_fenced_by
from tests.simulation.regions.operating import Refusal, acts
from tests.simulation.regions.situations import SITUATIONS

ENDS_S: Final = 12.0
"""Time in which an accepted procedure ends, unless something hangs."""
SETTLES_S: Final = 200.0
TRIES_MAX: Final = 30
S = RegionState


ENDS_ITSELF: Final = (
    "start a server",
    "a server registers",
    "regions.fence_command",
    "the lease of ",
    "try again in some seconds",
    "servers end their work",
    "repair what keeps servers from fencing",
    "procedure goes on",
)
"""Parts of explanations that say what ends a wait without a command of this program."""
NOTHING_HANGS: Final = frozenset(
    {
        "an enabled table",
        "a disabled table",
        "an unassigned region",
        "a region that failed to open",
        "a creation whose opens fail",
        "a creation without a server",
        "a reopening whose opens fail",
        "an enable whose opens fail",
        "a crash whose regions cannot be opened",
        "a crash that a hold delays",
        "records of a move that cannot be used",
    }
)
"""Situations in which every server responds."""


class Play(NamedTuple):
    """One case: a situation, what happens in it, and the command that is given then."""

    situation: str
    event: str
    command: str

    def __str__(self) -> str:
        return f"{self.situation}; {self.event}; {self.command}"

    @property
    def ends_itself(self) -> bool:
        """Returns whether the command ends without another one: opens that fail for ever hold up no such change."""
        return self.situation in NOTHING_HANGS and self.command in ("tables disable t", "tables delete t")


# -- what happens in a situation


async def nothing(_: Case) -> None:
    """Lets it be."""


async def bypass(case: Case) -> None:
    """Ends a part of what is stuck as it is, with all above it; a record that cannot be used is removed."""
    if case.pid:
        await ended_by_operator(case, case.pid, tries=1)


async def abort(case: Case) -> None:
    """Has what is stuck undone, where that is possible."""
    if case.pid:
        found = await case.operator.does(f"regions procedures abort {case.pid}")
        if isinstance(found, Procedure):
            await asyncio.sleep(1.0)


async def kill(case: Case) -> None:
    """Kills server ``a``; another process of it starts."""
    if (actor := case.actors.get("a")) is not None:
        actor.restarts = True
        actor.kill()
        actor.start()
        await asyncio.sleep(1.0)


async def failover(case: Case) -> None:
    """Kills the daemon."""
    await case.fail_over()


async def bypass_and_failover(case: Case) -> None:
    """Ends what is stuck as it is, and kills the daemon at once."""
    if case.pid:
        await case.operator.does(f"regions procedures bypass {_leaf(case, case.pid)}")
    await case.fail_over()


EVENTS: Final[dict[str, Callable[[Case], Awaitable[None]]]] = {
    one.__name__: one for one in (nothing, bypass, abort, kill, failover, bypass_and_failover)
}


# -- commands

COMMANDS: Final = (
    "regions assign {region}",
    "regions unassign {region}",
    "regions move {region} b",
    "regions move {region} a",
    "regions reopen {region}",
    "regions pin {region} b",
    "regions unpin {region}",
    "tables create t",
    "tables enable t",
    "tables disable t",
    "tables delete t",
    "servers drain a",
    "servers expire a",
    "servers cordon a",
    "servers uncordon a",
    "servers hold a",
    "servers release a",
    "namespaces create other",
    "namespaces delete default",
    "regions procedures abort {pid}",
    "regions procedures bypass {pid}",
    "regions procedures remove {pid}",
    "regions procedures leave-out {pid}",
)


async def given(case: Case, command: str, *, ends_itself: bool = False) -> None:
    """Gives a command, and judges what becomes of it. ``ends_itself``: no operator has to end it."""
    table = case.term.env.model.tables.get("t")
    region = case.region.id if table is not None and table.regions else 1
    found = await case.operator.does(command.format(region=region, pid=case.pid or 1))
    if isinstance(found, Refusal):
        way = await case.operator.way_out(found, region)
        assert way.is_one, f"no way out: {found.text}; tried {way.refused}"
        if way.begun is None:
            return
        found = way.begun
    await ends(case, found.pid, itself=ends_itself)


# -- procedures


async def ends(case: Case, pid: int, *, itself: bool) -> None:
    """Judges an accepted procedure: it ends, or an operator ends it."""
    if not await _has_ended(case, pid, ENDS_S):
        assert not itself, f"pid {pid} does not end by itself: {[_told(one) for one in case.live()]}"
        await ended_by_operator(case, pid)


async def _has_ended(case: Case, pid: int, within_s: float) -> bool:
    for _ in range(int(within_s / 0.25)):
        record = case.term.engine.records.get(pid)
        if (record is None or record.state.is_final) and pid not in case.term.engine.unusable:
            return True
        await asyncio.sleep(0.25)
    return False


def _leaf(case: Case, pid: int) -> int:
    """Returns a part of a procedure that has no parts; itself where it has none."""
    family = [one for one in case.live() if pid in (one.pid, *one.ancestors)]
    parents = {one.parent for one in family}
    return next((one.pid for one in family if one.pid not in parents), pid)


async def ended_by_operator(case: Case, pid: int, tries: int = TRIES_MAX) -> None:
    """Ends a procedure and its parts as they are, one after the other; uses the command that a refusal names."""
    for _ in range(tries):
        found = await case.operator.does(f"regions procedures bypass {_leaf(case, pid)}")
        if isinstance(found, Refusal):
            for one in filter(acts, found.commands):
                await case.operator.does(one)
        if await _has_ended(case, pid, 1.0):
            return
    assert tries == 1, f"pid {pid} has not ended: {[_told(one) for one in case.live()]}"


def _told(record: Record) -> tuple[int, str, int, str, bool]:
    return record.pid, record.kind, record.step, record.state.name, record.bypassed


# -- the end


async def settled(case: Case) -> None:
    """Heals everything, and judges what is left."""
    case.command_fails = False
    for name in ("a", "b"):
        if name not in case.actors:
            await case.begin_server(name)
        case.actors[name].heal()
    for mark in list(case.term.env.model.marks):
        if mark.kind.value != "pin":
            await case.operator.does(f"servers {'release' if mark.kind.value == 'hold' else 'uncordon'} {mark.subject}")
    why = "nothing"
    for _ in range(int(SETTLES_S)):
        await asyncio.sleep(1.0)
        if not (why := _unsettled(case)):
            break
    assert not why, why
    await _opened(case)


def _unsettled(case: Case) -> str:
    term = case.term
    if live := [_told(one) for one in case.live()]:
        return f"procedures go on: {live[:4]}"
    if locks := term.engine.locks():
        return f"locks are held: {locks[:3]}"
    if strange := [str(one) for one in term.env.model.transit.values() if one.pid]:
        return f"regions are attached to procedures that are over: {strange}"
    for actor in case.actors.values():
        server = term.env.model.servers.get((actor.name, actor.process.incarnation))
        if server is None or not server.here:
            return f"{actor.name} is not registered"
    owners = {region: one.name for one in case.actors.values() for region in one.process.has}
    for region in term.env.model.regions.values():
        known = region.server.name if region.server is not None else None
        if region.state is S.OPEN and owners.get(region.id) != known:
            return f"{region} is open at {known}, and {owners.get(region.id)} has it"
        if region.state is not S.OPEN and region.id in owners and not is_stranded(region):
            return f"{region} is {region.state.name}, and {owners[region.id]} has it"
    if sum(len(one.process.has) for one in case.actors.values()) != len(owners):
        return f"a region has two owners: {[one.process.has for one in case.actors.values()]}"
    return ""


async def _opened(case: Case) -> None:
    """Judges that what is left is counted, shown, and goes on by the commands of what shows it."""
    term = case.term
    for name in halted(term.env.model, term.engine.records.values()):
        answers = [await case.operator.does(f"tables {act} {name}") for act in ("enable", "disable", "delete")]
        begun = [one for one in answers if isinstance(one, Procedure)]
        assert begun, f"table {name} is {term.env.model.tables[name].state.name}, and nothing goes on: {answers}"
        for one in begun:
            assert await _has_ended(case, one.pid, 30.0), (
                f"pid {one.pid} goes on: {[_told(one) for one in case.live()]}"
            )
    count = stranded(term.env.model).total()
    left = [one for one in term.env.model.regions.values() if is_stranded(one) or one.state is S.FAILED_OPEN]
    assert count == len([one for one in left if one.state is not S.FAILED_OPEN])
    for region in left:
        if region.table.state is TableState.ENABLED:
            ways = [one for one in case.operator.explains(region.id) if acts(one)]
            answers = [await case.operator.does(case.operator.filled(one)) for one in ways]
            assert any(isinstance(one, Procedure) for one in answers), f"{region} is {region.state.name}: {answers}"
            for _ in range(60):
                if region.state is S.OPEN:
                    break
                await asyncio.sleep(0.5)
            assert region.state is S.OPEN, f"{region} is {region.state.name} after {ways}"
    for table in term.env.model.tables.values():
        assert table.state in (TableState.ENABLED, TableState.DISABLED), f"{table.name} is {table.state.name}"
        for region in table.regions:
            assert table.state is TableState.DISABLED or region.state is S.OPEN, f"{region} is {region.state.name}"
    assert not _unsettled(case), _unsettled(case)


def in_case(situation: str, event: str, then: Callable[[Case], Awaitable[None]]) -> None:
    """Plays a situation and an event, and what is to be judged then, in virtual time."""

    @virtual
    async def story() -> None:
        options, begins = SITUATIONS[situation]
        case = Case(options)
        with commands_fenced_by(case):
            try:
                await begins(case)
                await EVENTS[event](case)
                await asyncio.sleep(0.5)
                await then(case)
            finally:
                await case.end()

    story()


def played(play: Play) -> None:
    """Plays one case, in virtual time."""

    async def judged(case: Case) -> None:
        await given(case, play.command, ends_itself=play.ends_itself)
        await settled(case)

    in_case(play.situation, play.event, judged)


# -- what explanations name


def is_at_rest(region: Region) -> bool:
    """Checks whether nothing goes on with a region, and nothing is to."""
    is_left = is_stranded(region) or awaits_crash(region) or region.state is S.FAILED_OPEN
    return not (region.pid or region.state in IN_TRANSITION or is_left)


async def names(case: Case) -> list[str]:
    """Returns the commands that explanations of regions not at rest, and procedures that fail or hang, name.

    Judges that each of these explanations names a command, or says what ends the wait without one.
    """
    found: dict[str, None] = {}
    for region in list(case.term.env.model.regions.values()):
        if is_at_rest(region):
            continue
        told = case.operator.explanation(region.id)
        commands = [case.operator.filled(one) for one in Refusal(told).commands if acts(one)]
        assert commands or any(part in told for part in ENDS_ITSELF), f"{region} names no way: {told}"
        found |= dict.fromkeys(commands)
    for record in case.live():
        ends_by = (await case.operator.procedures.one(record.pid, 0)).ends_by
        found |= dict.fromkeys(case.operator.filled(one) for one in Refusal(ends_by).commands if acts(one))
    return list(found)


def played_names(situation: str, event: str) -> None:
    """Gives each command that explanations name, in a life of its own: it is accepted, and nothing is left half-way."""
    known: list[str] = []

    async def first(case: Case) -> None:
        known.extend(await names(case))

    in_case(situation, event, first)
    for command in known:

        async def then(case: Case, command: str = command) -> None:
            assert command in await names(case), "the case is not the same again"
            found = await case.operator.does(command)
            assert isinstance(found, Procedure), f"{command} is named, and refused: {found.text}"
            await settled(case)

        in_case(situation, event, then)


ALL: Final = tuple(Play(*one) for one in ((a, b, c) for a in SITUATIONS for b in EVENTS for c in COMMANDS))
