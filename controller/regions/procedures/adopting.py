"""Adopt a region: its row, which the catalog has lost, is stored again under its id, and with that it has its data.

A process may serve the region still, or another one without a row. So nothing is stored before each process has listed
its regions, and has closed those without a row. A process keeps a region whose row is left out: this procedure has it
close that one.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Kind, Step
from controller.process.wording import named
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import fixing, many, repair, servers
from controller.regions.procedures.messages import TRANSIT, Transit
from controller.regions.procedures.repair import REPAIR, Repair
from metadata_store.catalog.rows import DropRegions, HeirRow, NewRegions, Put, RegionRow, Write
from state_machines.procedures.kernel import Change
from state_machines.procedures.outcome import Children, Done, Failed, Next, Outcome, Wait
from state_machines.procedures.record import Record
from state_machines.regions.adopted_keys import is_within, said
from state_machines.regions.entities import Region, Table
from state_machines.regions.repairs import adoption_problem
from state_machines.regions.states import RegionState, ServerState, TableState

NAME: Final = "adopt"
FIND: Final = 0
STORE: Final = 1
OPEN: Final = 2
"""Point of no return: the record has this step from the write of the region on."""
HOLES_MAX: Final = 10_000
"""Key ranges without a region among which those of an adopted one are looked for."""
AGAIN_MS: Final = 1_000
"""Pause after which it is looked again whether a process has closed the region."""
COPIED: Final = "the store was restored from a copy, and the region may have been split or merged since: begin it again"
S = RegionState


def problem_of(env: RegionsEnv, record: Record, task: Repair) -> str | None:
    """Returns why a region cannot be stored again now; None where it can."""
    table = env.model.tables.get(task.table)
    if table is None:
        return f"table {task.table!r} does not exist"
    given, keys = env.is_given(task.region), [(task.start, task.end)]
    if (refusal := adoption_problem(env.model, task.region, table, given=given, keys=keys)) is not None:
        return str(refusal)
    if (ending := env.endings.of(table)) is not None:
        return ending.why()
    return COPIED if record.pid <= env.copied_number else None


# -- what serves it still


def waits_for(env: RegionsEnv, region: int) -> str:
    """Returns why a process may serve the region, or keys without a row, and what ends that; empty where none does."""
    if why := fixing.waits_for(env):
        return why
    if keepers := sorted(env.claimants.keepers(region)):
        names = named((f"{name},{incarnation}" for name, incarnation in keepers), fixing.NAMED_MAX)
        expire = f"where that hangs, 'regent servers expire {keepers[0][0]}' ends the process"
        return f"{names} has region {region}, and is to close it; {expire}"
    return ""


def unserved(env: RegionsEnv, record: Record, task: Repair) -> Wait | None:
    """Returns a wait until a lost region may go to a server, or be forgotten; None where it may.

    A process that has it, although its row is left out, closes it; one that crashed is awaited until it is fenced. The
    closes are no parts of the repair: a lock of a table comes after those of servers.
    """
    if not waits_for(env, task.region):
        return None
    for key, token in env.claimants.keepers(task.region).items():
        server = env.model.servers.get(key)
        if server is not None and server.state is ServerState.ONLINE:
            close = Transit(task.region, task.table, task.why, *key, token)
            nonce = f"region {task.region} {token} of {server} for procedure {record.pid}"
            env.submitted(servers.STRAY, TRANSIT.encode(close), nonce)
    env.claimants.held.add(record.pid)
    return Wait(env.wall_ms() + AGAIN_MS, record.data, durable=False)


def held(env: RegionsEnv, record: Record) -> Wait:
    """Waits until a region may have become free."""
    env.claimants.held.add(record.pid)
    return Wait(0, record.data, durable=False)


# -- steps


async def find(env: RegionsEnv, record: Record) -> Outcome:
    """Judges the request, once no process can serve the region."""
    task: Repair = REPAIR.decode(record.data)
    if (why := problem_of(env, record, task)) is not None:
        return Failed(f"{NAME}: {why}")
    return unserved(env, record, task) or Next(STORE, record.data)


async def store(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Stores the region as closed: nothing but this procedure opens it."""
    task: Repair = REPAIR.decode(record.data)
    table = env.model.tables.get(task.table)
    holes = [] if table is None else await fixing.holes_of(env, table, HOLES_MAX)
    if (why := problem_of(env, record, task)) is not None:  # behind the await: all of it may be different by now
        return Failed(f"{NAME}: {why}")
    if (waits := unserved(env, record, task)) is not None:
        return waits
    if not any(is_within(task.start, task.end, one) for one in holes):
        return Failed(f"{NAME}: a region has some of the keys {said((task.start, task.end))}")
    assert table is not None
    return _stored(env, record, task, table)


def _stored(env: RegionsEnv, record: Record, task: Repair, table: Table) -> Effect:
    """Returns the write of a region, in place of a row that is left out.

    Its token is the pid, which is above those of all its former opens, for tokens and pids are the same numbers. With
    none the region would count as one that never was open: a clone of its table would not wait for edits of a former
    owner, which may be in a log still. It is not clean for the same reason, so a clone, a split or a merge has it
    opened and closed before. The number that its service gave to its last open is lost; the next open brings one.
    """
    id_, sources = task.region, env.model.sources.get(task.region)
    row = RegionRow(id_, table.name, task.start, task.end, S.CLOSED, token=record.pid)
    writes: list[Write] = [DropRegions((id_,)), NewRegions((row,))]
    if sources is not None:  # they went with the row that was left out
        writes.append(Put(HeirRow(id_, sources)))

    def entered(_: Change) -> None:
        region = Region(id_, table, task.start, task.end, S.CLOSED, token=record.pid, changed_ms=env.now_ms())
        env.model.damages.drop_region(id_)
        env.model.fill(table, [region])
        env.journal.made(table, [region], record.pid, len(sources or ()))
        env.routes.changed(region)

    return Effect(Next(OPEN, REPAIR.encode(replace(task, made=True))), tuple(writes), entered)


async def open_region(env: RegionsEnv, record: Record) -> Outcome:
    """Has the region of an enabled table assigned."""
    task: Repair = REPAIR.decode(record.data)
    region = env.model.regions.get(task.region)
    if region is None or not _is_wanted(env, region):
        return Next(record.step + 1, record.data)
    batch = tuple(many.of_regions(many.ASSIGN_MANY, [region], task.why))
    return Children(batch, record.step + 1, record.data)


def _is_wanted(env: RegionsEnv, region: Region) -> bool:
    return region.table.state is TableState.ENABLED and env.endings.of(region.table) is None


async def end(env: RegionsEnv, record: Record) -> Outcome:
    """Ends the repair; the result counts the region where its table is enabled and it could not be opened."""
    region = env.model.regions.get(REPAIR.decode(record.data).region)
    wanted = region is not None and region.table.state is TableState.ENABLED
    return Done(b"%d" % (wanted and region is not None and region.state is not S.OPEN))


ADOPT: Final[Kind[RegionsEnv]] = Kind(
    NAME,
    (Step("find", find), Step("store", store), Step("open", open_region), Step("end", end)),
    repair.lock_of_repair,
    no_return=OPEN,
    holds_locks=True,
    members=repair.of_repair,
)
