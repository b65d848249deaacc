"""What operators do beside changes of regions and tables: marks, and ends of procedures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from controller.procedures.requests import ProcedureRefused
from controller.regions.procedures import servers
from metadata_store.records.port import StoreFailed
from state_machines.procedures.record import Record
from state_machines.regions.levels import NEWEST
from state_machines.regions.marks import STORE, MarkKind
from tests.kit.simulation.loop import Process
from tests.simulation.regions import impostors
from tests.simulation.regions.actions import region_at, submit, verb

if TYPE_CHECKING:
    from controller.regions.term import RegionsTerm
    from tests.simulation.regions.world import SimulatedRegions

REMOVABLE: Final = frozenset(MarkKind) - {MarkKind.LEVEL}


def _mark(world: SimulatedRegions, kind: MarkKind, subject: str, value: str = "", until_ms: int = 0) -> None:
    submit(world, servers.MARK, servers.MARK_TASK.encode(servers.MarkTask(kind, subject, value, until_ms)))


@verb
def cordon(world: SimulatedRegions, name: str) -> None:
    """Keeps regions away from a server."""
    _mark(world, MarkKind.CORDON, name)


@verb
def weight(world: SimulatedRegions, name: str, value: str) -> None:
    """Gives a server another share of regions."""
    _mark(world, MarkKind.WEIGHT, name, value)


@verb
def upgrade(world: SimulatedRegions) -> None:
    """Raises the level of the store, as 'regent regions upgrade' does."""
    _mark(world, MarkKind.LEVEL, STORE, str(NEWEST))


@verb
def hold(world: SimulatedRegions, name: str, for_s: str) -> None:
    """Has the regions of a server wait for its next process."""
    if world.term is not None:
        _mark(world, MarkKind.HOLD, name, until_ms=world.term.env.wall_ms() + int(float(for_s) * 1000))


@verb
def pin(world: SimulatedRegions, number: str, name: str) -> None:
    """Pins a region to a server."""
    if (found := region_at(world, number)) is not None:
        _mark(world, MarkKind.PIN, str(found[0]), name)


@verb
def unmark(world: SimulatedRegions, number: str) -> None:
    """Removes a mark of those that operators can remove."""
    some = sorted(key for key in world.disk.marks if key[0] in REMOVABLE)
    if some:
        _unmark(world, *some[int(number) % len(some)])


@verb
def impostor(world: SimulatedRegions, role: str, number: str) -> None:
    """Has a process speak for members, with the secret of a client or a server."""
    Process(world.loop, f"i{number}").start(impostors.speak(world, role, int(number)))


@verb
def abort(world: SimulatedRegions, number: str) -> None:
    """Has a procedure and its family undone."""
    if (term := world.term) is not None and (found := _live(term, number)) is not None:
        end(world, term, found, term.engine.abort)


@verb
def bypass(world: SimulatedRegions, number: str) -> None:
    """Ends a procedure as it is, a part of another one, too, and whatever a server may be doing."""
    term = world.term
    if term is None or (found := _live(term, number, parts=True)) is None:
        return
    end(world, term, found, term.engine.bypass)


def _live(term: RegionsTerm, number: str, *, parts: bool = False) -> Record | None:
    """Returns a procedure that was submitted and has not ended; ``parts``: also one without children of its own."""
    children = term.engine._procedures.children
    some = [one for one in term.engine.live() if (one.pid not in children if parts else not one.parent)]
    some.sort(key=lambda one: one.pid)
    return some[int(number) % len(some)] if some else None


def end(world: SimulatedRegions, term: RegionsTerm, record: Record, act: Callable[[int], Awaitable[bool]]) -> None:
    """Has a procedure ended in a way."""
    process = world.active
    if process is None or not process.alive:
        return

    async def ended() -> None:
        try:
            done = await act(record.pid)
        except (ProcedureRefused, StoreFailed):
            done = False
        world.counts["ended by an operator" if done else "ended not"] += 1

    process.start(ended())


def remove_marks(world: SimulatedRegions) -> None:
    """Removes the marks that are left."""
    for kind, subject in world.disk.marks:
        if kind in REMOVABLE:
            _unmark(world, kind, subject)


def _unmark(world: SimulatedRegions, kind: str, subject: str) -> None:
    submit(world, servers.UNMARK, servers.MARK_TASK.encode(servers.MarkTask(MarkKind(kind), subject)))
