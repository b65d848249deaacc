"""What a script can do, by verb."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from controller.procedures.requests import ProcedureRefused
from controller.regions.procedures import assign, close, move
from controller.regions.procedures.messages import MOVE, TABLE_TASK, TRANSIT, Move, TableTask, Transit
from metadata_store.records.port import StoreFailed
from regent_agent.agent import Died
from regent_agent.protocol import Owned
from state_machines.procedures.record import Caller, Record
from state_machines.regions.levels import lacking
from tests.kit.simulation.script import Action
from tests.simulation.regions.invariants import readable
from tests.simulation.regions.servers import ServerProcess

if TYPE_CHECKING:
    from controller.regions.term import RegionsTerm
    from tests.simulation.regions.world import SimulatedRegions

Verb = Callable[..., None]
VERBS: Final[dict[str, Verb]] = {}
LEAVE_S: Final = 20.0
OPENING_S_MAX: Final = 5.0
"""Longest wait for a server to begin an open."""
ASSIGNED_S: Final = (0.6, 1.2, 2.4)
"""Times from the loss of records to an operator's attempts to assign the region."""


def verb(function: Verb) -> Verb:
    """Registers a verb under its name."""
    VERBS[function.__name__.rstrip("_").replace("_", "-")] = function
    return function


def act(world: SimulatedRegions, action: Action) -> None:
    """Does one action."""
    VERBS[action.verb](world, *action.words)


# -- operators


def too_low(world: SimulatedRegions, term: RegionsTerm, kind: str) -> bool:
    """Checks whether the surface of the daemon refuses a procedure because of the level of the store."""
    refused = lacking(term.env.model.marks.level, kind) is not None
    world.counts["refused by the level"] += refused
    return refused


def submit(world: SimulatedRegions, kind: str, data: bytes) -> None:
    """Submits a procedure at the active daemon; an operator who finds none gives up.

    One whose claim no lock holds may serve on where nothing claims the store after it.
    """
    term = world.term
    process = world.active
    if term is None or process is None or not process.alive:
        world.counts["no daemon"] += 1
        return

    if too_low(world, term, kind):
        return

    async def submitted() -> None:
        try:
            await term.engine.submit(kind, data, Caller("User:ops"))
        except (ProcedureRefused, StoreFailed):
            world.counts["refused"] += 1

    process.start(submitted())


@verb
def create(world: SimulatedRegions, name: str, kind: str, count: str) -> None:
    """Creates a table."""
    submit(world, "create_table", TABLE_TASK.encode(TableTask(name, int(kind), uniform=int(count))))


@verb
def enable(world: SimulatedRegions, name: str) -> None:
    """Enables a table."""
    submit(world, "enable_table", TABLE_TASK.encode(TableTask(name)))


@verb
def disable(world: SimulatedRegions, name: str) -> None:
    """Disables a table."""
    submit(world, "disable_table", TABLE_TASK.encode(TableTask(name)))


@verb
def delete(world: SimulatedRegions, name: str) -> None:
    """Deletes a table."""
    submit(world, "delete_table", TABLE_TASK.encode(TableTask(name)))


def region_at(world: SimulatedRegions, number: str) -> tuple[int, str] | None:
    """Returns the id and the table of a region by a number that is drawn; None where there is none."""
    rows = [one for _, one in sorted(world.disk.regions.items())]
    if not rows:
        return None
    row = rows[int(number) % len(rows)]
    return row.id, row.table


@verb
def move_(world: SimulatedRegions, number: str, to: str = "-") -> None:
    """Moves a region."""
    if (found := region_at(world, number)) is not None:
        submit(world, move.NAME, MOVE.encode(Move(*found, to.strip("-"), "operator")))


@verb
def reopen(world: SimulatedRegions, number: str) -> None:
    """Closes a region, and opens it where it was."""
    if (found := region_at(world, number)) is not None:
        submit(world, move.NAME, MOVE.encode(Move(*found, "", "operator", reopens=True)))


@verb
def assign_(world: SimulatedRegions, number: str, to: str = "") -> None:
    """Assigns a region."""
    if (found := region_at(world, number)) is not None:
        submit(world, assign.NAME, TRANSIT.encode(Transit(*found, "operator", to=to)))


@verb
def unassign(world: SimulatedRegions, number: str) -> None:
    """Closes a region; it is assigned again at the end, where the surface shows it."""
    if (found := region_at(world, number)) is not None:
        submit(world, close.NAME, TRANSIT.encode(Transit(*found, "operator")))


@verb
def expire(world: SimulatedRegions, name: str) -> None:
    """Has the process of a server fenced."""
    term, process = world.term, world.active
    if term is None or process is None or not process.alive:
        return
    server = term.env.model.current(name)
    if server is not None:
        process.call_soon(term.manager.expire, server, "operator")


@verb
def list_regions(world: SimulatedRegions, name: str) -> None:
    """Has a server list its regions."""
    term = world.term
    server = None if term is None else term.env.model.current(name)
    if term is not None and server is not None:
        term.env.dispatcher.list_regions(server)


@verb
def leave(world: SimulatedRegions, name: str) -> None:
    """Has a server leave, and starts it again."""
    node = world.servers[name]
    found = node.current
    if found is None or not found.alive or found.agent is None or found.left:
        return
    found.left = True
    found.process.start(_leave(found))


async def _leave(found: ServerProcess) -> None:
    assert found.agent is not None
    try:
        gone = await found.agent.leave(LEAVE_S)
    except Died:
        gone = False
    found.node.world.counts["left" if gone else "left not"] += 1
    await found.agent.stop()
    found.kill()
    found.node.start_later(0.5)


# -- faults


@verb
def kill_server(world: SimulatedRegions, name: str, down_s: str) -> None:
    """Kills a server; another process of it starts later."""
    world.servers[name].kill()
    world.servers[name].start_later(float(down_s))


@verb
def replace_server(world: SimulatedRegions, name: str) -> None:
    """Starts another process of a server while the present one lives on."""
    world.servers[name].replace()


@verb
def freeze_server(world: SimulatedRegions, name: str, for_s: str) -> None:
    """Freezes a server for a time."""
    node = world.servers[name]
    node.freeze()
    world.loop.call_at(world.loop.now_s + float(for_s), node.thaw, context=world.loop.root)


@verb
def stranger(world: SimulatedRegions, which: str, becomes: str) -> None:
    """Has a stranger delete or write the znode of a region in transition, whatever it says."""
    if world.zookeeper is not None:
        world.zookeeper.overwritten(int(which), becomes)


@verb
def hold_machine(world: SimulatedRegions, name: str, for_s: str) -> None:
    """Holds the machine of a server for a time that its own clock does not count."""
    node = world.servers[name]
    node.hold(float(for_s))
    world.loop.call_at(world.loop.now_s + float(for_s), node.thaw, context=world.loop.root)


@verb
def kill_daemon(world: SimulatedRegions, name: str, down_s: str) -> None:
    """Kills a daemon, and starts it later."""
    world.daemons[name].kill()
    world.daemons[name].start_later(float(down_s))


@verb
def lose_claim(world: SimulatedRegions) -> None:
    """Ends the claim of the active daemon, which lives on: another one may take the store over."""
    world.claimant = None


@verb
def ignore_locks(world: SimulatedRegions) -> None:
    """Has the file system ignore the lock of the active daemon, which lives on: another one may open the store."""
    world.lockless = world.claimed


@verb
def copy_store(world: SimulatedRegions) -> None:
    """Copies the store, as a backup does."""
    world.judge.opens.copied()
    world.judge.shapes.copied()
    world.damage.copied()
    world.copy = copy.deepcopy(vars(world.disk))


@verb
def restore_store(world: SimulatedRegions, down_s: str) -> None:
    """Puts the copy in the place of the store, as the runbook says: all leases are over, no fenced process lives.

    With another fence all servers would end, and nobody would have seen anything.
    """
    if world.copy is None or world.plan.fence != "lease":
        return
    for daemon in world.daemons.values():
        daemon.kill()
        daemon.deadly = None
    world.counts["restored"] += 1
    loop = world.loop
    loop.call_at(loop.now_s + world.options.lease_ms / 1000, _restore, world, context=loop.root)
    for daemon in world.daemons.values():
        daemon.start_later(world.options.lease_ms / 1000 + float(down_s))


def _restore(world: SimulatedRegions) -> None:
    assert world.copy is not None
    for daemon in world.daemons.values():
        daemon.kill()
    fenced = world.disk.buried
    for one in world.processes:
        if one.alive and one.key[1] <= fenced.get(one.key[0], 0):
            one.kill()
            one.node.start_later(0.5)
    vars(world.disk).update(copy.deepcopy(world.copy))
    world.restored = True
    world.judge.forget()


@verb
def kill_at_write(world: SimulatedRegions, name: str, count: str, side: str) -> None:
    """Kills a daemon before or after one of its next writes."""
    world.daemons[name].deadly = int(count), side == "after"


@verb
def freeze_daemon(world: SimulatedRegions, name: str, for_s: str) -> None:
    """Freezes a daemon for a time."""
    node = world.daemons[name]
    node.freeze()
    world.loop.call_at(world.loop.now_s + float(for_s), node.thaw, context=world.loop.root)


@verb
def lose_records(world: SimulatedRegions, number: str) -> None:
    """Has a region moved, kills the daemon while a server opens it, loses the records, and assigns the region."""
    term, process, found = world.term, world.active, region_at(world, number)
    if term is None or process is None or not process.alive or found is None:
        return

    async def until_opening() -> None:
        loop = world.loop
        try:
            root = await term.engine.submit(move.NAME, MOVE.encode(Move(*found, "", "operator")), Caller("User:ops"))
        except (ProcedureRefused, StoreFailed):
            return
        ends_s = loop.now_s + OPENING_S_MAX
        while loop.now_s < ends_s:
            if any(_opens(world, one, root) for one in term.engine.live()):
                loop.call_at(loop.now_s, _lose, world, process.name, root, found, context=loop.root)
                return
            await asyncio.sleep(0.005)

    process.start(until_opening())


def _opens(world: SimulatedRegions, record: Record, root: int) -> bool:
    """Checks whether a server has begun the open of a procedure."""
    if record.root != root or record.kind != assign.NAME or record.step != assign.DISPATCH:
        return False
    task: Transit = TRANSIT.decode(record.data)
    owned = Owned(task.region, assign.token_of(record, task))
    return any(one.alive and one.agent is not None and owned in one.agent._work.owned() for one in world.processes)


def _lose(world: SimulatedRegions, daemon: str, root: int, region: tuple[int, str]) -> None:
    world.daemons[daemon].kill()
    stored = {pid: readable(pid, body) for pid, body in world.disk.bodies.items()}
    family = [pid for pid, one in stored.items() if one is not None and one.root == root]
    for pid in family:
        del world.disk.bodies[pid]
    world.counts["records lost"] += 1
    world.daemons[daemon].start_later(0.1)
    data = TRANSIT.encode(Transit(*region, "operator"))
    loop = world.loop
    for after_s in ASSIGNED_S:
        loop.call_at(loop.now_s + after_s, submit, world, assign.NAME, data, context=loop.root)


@verb
def break_link(world: SimulatedRegions, from_: str, to: str, for_s: str) -> None:
    """Lets nothing pass from one process to another for a time."""
    world.network.broken.add((from_, to))
    loop = world.loop
    loop.call_at(loop.now_s + float(for_s), world.network.broken.discard, (from_, to), context=loop.root)


@verb
def slow(world: SimulatedRegions, part: str) -> None:
    """Has a part of all bytes arrive late."""
    world.network.slow = float(part)


@verb
def lossy(world: SimulatedRegions, part: str) -> None:
    """Has a part of requests and responses end their connection."""
    world.network.lossy = float(part)


@verb
def wall(world: SimulatedRegions, ahead_s: str) -> None:
    """Sets the wall clock, but not back while a machine is held.

    Where neither clock counts, nothing at a server ends its lease: its storage refuses lower tokens (record 107).
    """
    if float(ahead_s) < 0 and any(one.held_until_s >= world.loop.now_s for one in world.servers.values()):
        return
    world.wall_offset_ms += int(float(ahead_s) * 1000)
