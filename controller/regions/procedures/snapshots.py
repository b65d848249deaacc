"""Snapshots of tables: each region stages a copy of its data, and one write makes all of them count.

Before that write an abort takes everything back; after it the snapshot is complete, and nothing is undone. Regions move
meanwhile, but are neither split nor merged. A copy is the latest one that an owner up to the listed token has staged:
a region whose server crashed after its copy needs no second one.

Servers know a snapshot by its name and an id, so work that reaches one late finds no later snapshot of the same name.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Kind, Step
from controller.regions.dispatcher import said
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import messages, region_work, table_work
from controller.regions.procedures.messages import SNAPSHOT_TASK, TABLE_WORK, SnapshotTask, TableWork
from metadata_store.catalog.rows import Drop, Put, SnapshotPartRow, SnapshotRow, Write
from regent_agent import protocol
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Demand
from state_machines.procedures.outcome import Children, Done, Failed, Next, Outcome, Retry, Wait
from state_machines.procedures.record import Record
from state_machines.regions.entities import Server
from state_machines.regions.references import keys_lost, of_table, snapshot_needed_by, snapshot_problem
from state_machines.regions.shapes import Snapshot, id_in, identity_in
from state_machines.regions.states import RegionState, ServerState

MAKE: Final = "snapshot_table"
DELETE: Final = "delete_snapshot"
STAGE: Final = 1
LIST: Final = 2
COMMIT: Final = 3
"""Steps of a snapshot."""
PART_REGIONS_MAX: Final = 1_000
"""Regions that one row lists."""
NEEDED: Final = (protocol.STAGE, protocol.UNSTAGE)
"""Work that servers do where a snapshot is made, or ends early."""
AGAIN_MS: Final = 1_000
PAUSE_MS_MAX: Final = 60_000
"""Longest pause after a server could not discard a snapshot."""


def problem_of(env: RegionsEnv, name: str, table_name: str) -> str | None:
    """Returns why a snapshot cannot be made now; None where it can."""
    table = env.model.tables.get(table_name)
    if table is None:
        return f"table {table_name!r} does not exist"
    if (why := snapshot_problem(env.model, name, table)) is not None:
        return why
    if why := env.model.damages.of_rows(table_name):
        return f"table {table_name!r} has no snapshot of all its data ({why}): restore its rows first"
    if (why := keys_lost(env.model, table_name)) is not None:
        return why
    away = len(table.regions) - table.count(RegionState.OPEN)
    if away:
        return f"{away} regions of table {table_name!r} are not open: 'regent regions list --table {table_name}'"
    return region_work.lacking(env, *NEEDED)


async def begin(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Checks the name and the table, and chooses the id; what an ended snapshot of this name has listed goes.

    The time tells the id from that of a procedure with the same pid: a store that was restored may give that again.
    """
    task: SnapshotTask = SNAPSHOT_TASK.decode(record.data)
    if (why := problem_of(env, task.name, task.table)) is not None:
        return Failed(f"{MAKE}: {why}")
    old = sorted(env.model.drafts.get(task.name, ()))
    drops = tuple(Drop(SnapshotPartRow, (task.name, number)) for number in old)
    chosen = SNAPSHOT_TASK.encode(replace(task, id=f"{record.pid}-{env.wall_ms()}"))
    return Effect(Next(record.step + 1, chosen), drops, lambda _: _forget(env, task.name))


def _forget(env: RegionsEnv, name: str) -> None:
    env.model.drafts.pop(name, None)


async def stage(env: RegionsEnv, record: Record) -> Outcome:
    """Has some regions stage a copy; the step is repeated until all have."""
    task: SnapshotTask = SNAPSHOT_TASK.decode(record.data)
    table = env.model.tables[task.table]
    if (ending := env.endings.of(table)) is not None:
        return Failed(f"{MAKE}: {ending.why()}")
    if (why := keys_lost(env.model, task.table)) is not None:  # a row was lost since; what follows has another position
        return Failed(f"{MAKE}: {why}")
    last = min(len(table.regions), task.begun + table_work.TOGETHER)
    some = table.regions[task.begun : last]
    if not some:
        return Next(LIST, record.data)
    why = f"snapshot {task.name}"
    children = tuple(region_work.working(one, protocol.STAGE, task.identity, why=why) for one in some)

    def rest(count: int) -> bytes:
        return SNAPSHOT_TASK.encode(replace(task, begun=task.begun + count))

    return Children(children, record.step, SNAPSHOT_TASK.encode(replace(task, begun=last)), rest=rest)


async def unstage(env: RegionsEnv, record: Record) -> Outcome:
    """Has the regions told that what they staged is of no use, by a procedure of its own."""
    task: SnapshotTask = SNAPSHOT_TASK.decode(record.data)
    why = f"snapshot {task.name} was not finished"
    work = TableWork(task.table, protocol.UNSTAGE, task.identity, why, region_work.TRIES_MAX)
    if env.submitted(table_work.NAME, TABLE_WORK.encode(work), f"unstage of procedure {record.pid}"):
        return Done()
    return Wait(env.wall_ms() + AGAIN_MS, record.data, durable=False)


async def list_regions(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Stores which regions the snapshot has, some in one row."""
    task: SnapshotTask = SNAPSHOT_TASK.decode(record.data)
    table = env.model.tables[task.table]
    if (why := keys_lost(env.model, task.table)) is not None:
        return Failed(f"{MAKE}: {why}")
    keys = ((one.start, one.end) for one in table.regions[task.made : task.made + PART_REGIONS_MAX])
    made = task.made + len(env.fit(keys))
    listed = of_table(table, task.made, made)
    sources = (*(one._replace(snapshot=task.identity.decode()) for one in listed[:1]), *listed[1:])

    def entered(_: Change) -> None:
        env.model.drafts.setdefault(task.name, {})[task.parts] = sources

    data = SNAPSHOT_TASK.encode(replace(task, made=made, parts=task.parts + 1))
    step = COMMIT if made >= len(table.regions) else record.step
    return Effect(Next(step, data), (Put(SnapshotPartRow(task.name, task.parts, sources)),), entered)


async def unlist(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Removes the row that the latest run of the step has stored, if it has."""
    task: SnapshotTask = SNAPSHOT_TASK.decode(record.data)
    number = record.done.count(LIST) - 1

    def entered(_: Change) -> None:
        env.model.drafts.get(task.name, {}).pop(number, None)

    return Effect(Done(), (Drop(SnapshotPartRow, (task.name, number)),), entered)


async def commit(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Stores that the snapshot is complete."""
    task: SnapshotTask = SNAPSHOT_TASK.decode(record.data)
    listed = env.model.drafts.get(task.name, {})
    if missing := [number for number in range(task.parts) if number not in listed]:
        return Failed(f"{MAKE}: part {missing[0]} of what it lists cannot be read: delete it, and make it again")
    table = env.model.tables[task.table]
    options = tuple(sorted(table.options.items()))
    row = SnapshotRow(task.name, table.name, table.kind, options, env.wall_ms(), task.made, task.parts)

    def entered(_: Change) -> None:
        parts = env.model.drafts.pop(task.name, {})
        env.model.snapshots[task.name] = Snapshot(row, tuple(parts[number] for number in range(task.parts)))

    return Effect(Done(b"%d" % task.made), (Put(row),), entered)


def _demand(record: Record) -> Demand:
    """Demands the name, that no change of the table is under way, and that its regions stay the same ones."""
    task: SnapshotTask = SNAPSHOT_TASK.decode(record.data)
    name, shape = messages.lock_of_snapshot(task.name, exclusive=True), messages.shape_of(task.table, exclusive=True)
    return messages.share_of_table(task.table)._replace(also=(name, shape))


SNAPSHOT_TABLE: Final[Kind[RegionsEnv]] = Kind(
    MAKE,
    (
        Step("begin", begin),
        Step("stage", stage, unstage),
        Step("list", list_regions, unlist),
        Step("commit", commit),
    ),
    _demand,
    no_return=COMMIT,
    holds_locks=True,
    members=messages.of_snapshot,
)


# -- deletion


async def drop(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Removes the rows of a snapshot that no region needs."""
    task: SnapshotTask = SNAPSHOT_TASK.decode(record.data)
    if (why := snapshot_needed_by(env.model, task.name)) is not None:
        return Failed(f"{DELETE}: {why}")
    found, drafts = env.model.snapshots.get(task.name), env.model.drafts.get(task.name, {})
    whole, damages = range(found.row.parts if found is not None else 0), env.model.damages
    numbers = {*whole, *drafts, *damages.parts_of(task.name)}
    identity = identity_in(task.name, drafts.values()) if found is None else found.identity
    drops: list[Write] = [Drop(SnapshotRow, (task.name,))]
    drops += [Drop(SnapshotPartRow, (task.name, number)) for number in sorted(numbers)]

    def entered(_: Change) -> None:
        env.model.snapshots.pop(task.name, None)
        env.model.drafts.pop(task.name, None)
        damages.drop_snapshot(task.name)

    chosen = SNAPSHOT_TASK.encode(replace(task, id=id_in(identity)))
    return Effect(Next(record.step + 1, chosen), tuple(drops), entered)


async def discard(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Has a server discard the data; where none can, the result says that it is there still."""
    task: SnapshotTask = SNAPSHOT_TASK.decode(record.data)
    key, result = env.dispatcher.expects(record.pid), env.results.get(record.pid)

    def over(_: Change) -> None:
        env.results.used(record.pid)
        env.dispatcher.forget(record.pid)

    if result is not None and result.outcome == protocol.DONE:
        return Effect(Done(), (), over)
    if result is not None and key is not None:
        return Effect(Retry(said("{},{}".format(*key), result), PAUSE_MS_MAX), (), over)
    able = _able(env)
    if not able and env.unregistered():
        return Wait(env.wall_ms() + AGAIN_MS, record.data, durable=False)  # servers come to this daemon still
    if not able:
        return Effect(Done(b"no server discards data: that of the snapshot is there still"), (), over)
    if key not in {one.key for one in able}:
        env.dispatcher.forget(record.pid)
        server = able[env.draw(len(able))]
        data = protocol.SNAPSHOT_PREFIX + task.identity
        env.dispatcher.send(server, protocol.Work(record.pid, protocol.DISCARD, data=data))
    return Wait(env.wall_ms() + AGAIN_MS, record.data, durable=False)


def _able(env: RegionsEnv) -> list[Server]:
    online = (one for one in env.model.servers.values() if one.state is ServerState.ONLINE and one.here)
    found = [one for one in online if protocol.DISCARD in one.features]
    return list(env.prompt(found))


def _demand_of_name(record: Record) -> Demand:
    return messages.lock_of_snapshot(SNAPSHOT_TASK.decode(record.data).name, exclusive=True)


DELETE_SNAPSHOT: Final[Kind[RegionsEnv]] = Kind(
    DELETE,
    (Step("drop", drop), Step("discard", discard)),
    _demand_of_name,
    no_return=1,
    holds_locks=True,
    members=messages.of_snapshot,
)
