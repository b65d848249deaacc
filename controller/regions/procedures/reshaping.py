"""Steps that split and merge share: regions are closed, others get their keys in one write, and are opened.

A region keeps its keys until that write, so that an abort before it has the region opened again. It is written only
once each region was closed by the word of its owner. Where a fence ended the owner, edits may wait in its log, so the
region is opened and closed once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Step
from controller.process.wording import named
from controller.regions.endings import Left
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import assign, close, messages
from controller.regions.procedures.messages import SHAPE, Shape
from metadata_store.catalog.rows import HeirRow, Owner, ParentRow, RegionRow, Reshape, Source
from regent_agent.protocol import INHERIT
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Demand
from state_machines.procedures.outcome import Children, Done, Failed, Next, Outcome, Wait
from state_machines.procedures.record import Record
from state_machines.regions.changes import awaits_crash
from state_machines.regions.entities import Region
from state_machines.regions.heirs import Range, apart_problem, halves, whole
from state_machines.regions.references import needed_by
from state_machines.regions.reshaping import no_room, reshape
from state_machines.regions.states import RegionState, TableState

SPLIT: Final = "split"
MERGE: Final = "merge"
AGAIN_MS: Final = 500
"""Pause until a look whether all servers have come."""
TRIES_MAX: Final = 10
"""How often regions are brought together, or opened and closed again, before the procedure is undone."""
METADATA: Final = "metadata"
"""Value of ``regions.split``: the service has no data of its own, so heirs refer to none."""
S = RegionState
LEAVING: Final = {SPLIT: S.SPLITTING, MERGE: S.MERGING}
GONE: Final = {SPLIT: S.SPLIT, MERGE: S.MERGED}


# -- checks


class Problem(NamedTuple):
    """Why the keys of regions cannot go to others, and what would make it succeed. ``pid``: of what moves one."""

    what: str
    remedy: str
    pid: int = 0

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


def problem_of(env: RegionsEnv, regions: Sequence[Region], heirs: int, pids: Collection[int] = (0,)) -> Problem | None:
    """Returns why the keys of regions cannot go to so many heirs now; None where they can.

    ``pids``: of procedures that may have the regions.
    """
    for region in regions:
        if (found := _of_table(env, region) or _of_region(env, region, pids)) is not None:
            return found
    if (why := apart_problem(regions)) is not None:
        return Problem(why, f"'regent regions report --table {regions[0].table.name}' says what mends that")
    if (found := _of_room(env, heirs, len(regions))) is not None:
        return found
    return None if env.options.split == METADATA else _of_servers(env)


def _of_room(env: RegionsEnv, heirs: int, parents: int) -> Problem | None:
    why = no_room(env.model, heirs, parents)
    return None if why is None else Problem(why, "'regent regions parents' lists what waits")


def _of_servers(env: RegionsEnv) -> Problem | None:
    if found := env.unregistered():
        what = f"servers {named(sorted(map(str, found)))} have not come to this daemon yet"
        return Problem(what, "try again in some seconds")
    if lacking := env.lacking(INHERIT):
        what = f'servers {named(sorted(map(str, lacking)))} lack the feature "{INHERIT}", and cannot open heirs'
        return Problem(what, "replace them by processes that name it as they register, or stop them")
    return None


def _of_table(env: RegionsEnv, region: Region) -> Problem | None:
    table = region.table
    if table.state is not TableState.ENABLED:
        what = f"table {table.name} is {table.state.name.lower()}, and must be enabled"
        if table.state is not TableState.DISABLED:
            return Problem(what, f"'regent tables describe {table.name}' says what it waits for")
        needed = f"{needs}; then " if (needs := needed_by(env.model, table)) else ""
        return Problem(what, f"{needed}'regent tables enable {table.name}' opens its regions")
    if (ending := env.endings.of(table)) is not None:
        return Problem(ending.why(), "wait for its end")
    return None


def _of_region(env: RegionsEnv, region: Region, pids: Collection[int]) -> Problem | None:
    explain = f"'regent regions explain {region.id}' says what that waits for"
    if region.pid not in pids:
        what = f"region {region} is in transition, procedure {region.pid} moves it"
        return Problem(what, "wait for its end", region.pid)
    if awaits_crash(region):
        return Problem(f"region {region} waits for the crash of its server {region.server}", explain)
    if region.state is not S.OPEN:
        remedy = f"'regent regions assign {region.id}' opens one that is closed" if region.server is None else explain
        return Problem(f"region {region} is {region.state.name}, and must be OPEN", remedy)
    if why := env.claimants.why_held(region):
        return Problem(f"region {region}: {why}", explain)
    if pinned := env.model.marks.pinned(region.id):
        return Problem(f"region {region} is pinned to {pinned}", f"'regent regions unpin {region.id}' ends that")
    if sources := env.model.sources.get(region.id):
        names = _named(one.region for one in sources)
        return Problem(
            f"region {region} is not yet independent of {names}", "wait until its server has copied what it needs"
        )
    return None


def demand(record: Record) -> Demand:
    """Demands the regions and their heirs, and that no procedure on all regions of the table is under way."""
    task: Shape = SHAPE.decode(record.data)
    shape = messages.shape_of(task.table, exclusive=False)
    parts = tuple(sorted((*task.parents, *task.heirs)))
    return messages.lock_of_region(task.table, parts[0])._replace(parts=parts, also=(shape,))


# -- steps


def _named(ids: Iterable[int]) -> str:
    return named(f"#{one}" for one in ids)


def parents_of(env: RegionsEnv, task: Shape) -> list[Region] | None:
    """Returns the regions whose keys others get; None where one of them is gone."""
    found = [one for id_ in task.parents if (one := env.model.regions.get(id_)) is not None]
    return found if len(found) == len(task.parents) else None


def ready(env: RegionsEnv, record: Record, task: Shape) -> list[Region] | Failed:
    """Returns the regions, attached to the procedure; or why it cannot go on, and is undone."""
    parents = parents_of(env, task)
    if not parents:
        return Failed(f"one of {_named(task.parents)} is gone: see 'regent regions list'")
    for one in parents:
        if not env.model.take(one, record.pid):
            return Failed(f"procedure {one.pid} has region {one}: wait for its end")
    if (ending := env.endings.of(parents[0].table)) is not None:
        return Failed(ending.why())
    if any(_had_data(env, one) for one in task.heirs):
        heirs = _named(task.heirs)
        return Failed(f"the store was restored from a copy, and {heirs} may have had data since: begin it again")
    return parents


def _had_data(env: RegionsEnv, heir: int) -> bool:
    """Checks whether an heir may have had data since the copy: its number or the list of a server shows that."""
    lists = env.contradictions
    return heir <= env.copied_number or heir in lists.noted or (lists.incomplete and heir <= env.former_number)


def judged(env: RegionsEnv, record: Record, regions: Sequence[Region], heirs: int) -> Wait | Failed | None:
    """Returns why the procedure cannot begin, or not yet: after a failover servers have to say what they can do."""
    if env.unregistered():
        return Wait(env.wall_ms() + AGAIN_MS, record.data, durable=False)
    problem = problem_of(env, regions, heirs, (record.pid,))
    return None if problem is None else Failed(str(problem))


def leaves(env: RegionsEnv, record: Record, task: Shape, regions: Sequence[Region], step: int) -> Effect:
    """Goes on to the step that closes the regions."""

    def entered(_: Change) -> None:
        for one in regions:
            if one.state is S.OPEN:
                env.model.move(one, LEAVING[record.kind], one.server, env.now_ms())

    return Effect(Next(step, SHAPE.encode(task)), (), entered)


async def close_parents(env: RegionsEnv, record: Record) -> Outcome:
    """Has the regions closed by their servers."""
    task: Shape = SHAPE.decode(record.data)
    found = ready(env, record, task)
    if isinstance(found, Failed):
        return found
    for one in found:
        if one.state is S.FAILED_OPEN:
            return Failed(f"region {one} is {one.state.name}: no server could open it once more")
    children = tuple(close.closed(one, task.why) for one in found if one.state is not S.CLOSED)
    return Children(children, record.step + 1, record.data)


async def check(env: RegionsEnv, record: Record) -> Outcome:
    """Goes on once each region was closed by its owner; has the others opened and closed again."""
    task: Shape = SHAPE.decode(record.data)
    found = ready(env, record, task)
    if isinstance(found, Failed):
        return found
    if any(map(env.claimants.is_held, found)):
        return _held(env, record)
    closed = [one for one in found if one.state is S.CLOSED and (one.clean or not task.inherits)]
    if len(closed) == len(found):
        return Next(record.step + 1, record.data)
    if task.tries >= TRIES_MAX:
        return Failed(f"no owner has closed all regions itself, {task.tries} times: see 'regent servers list'")
    again = [one for one in found if one not in closed]
    children = tuple(assign.assigned(one, task.why, None, to=task.server, stays=True) for one in again)
    return Children(children, record.step - 1, SHAPE.encode(replace(task, tries=task.tries + 1)))


def _held(env: RegionsEnv, record: Record) -> Wait:
    """Waits until no server can have one of the regions: it could serve keys that heirs have."""
    env.claimants.held.add(record.pid)
    return Wait(0, record.data, durable=False)


async def commit(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Gives the keys of the regions to their heirs, which are stored as closed.

    Where the store cannot take so large a write, or others have taken the room for heirs, the procedure is undone.
    """
    task: Shape = SHAPE.decode(record.data)
    parents = ready(env, record, task)
    if isinstance(parents, Failed):
        return parents
    if any(map(env.claimants.is_held, parents)):
        return _held(env, record)
    if (full := _of_room(env, len(task.heirs), len(parents))) is not None:
        return Failed(str(full))
    table, state = parents[0].table, GONE[record.kind]
    ranges = whole(parents) if record.kind == MERGE else halves(parents[0], task.key)
    rows = Reshape(
        tuple(_parent_row(one, state, task.heirs) for one in parents),
        tuple(_heir_row(one, parents, keys) for one, keys in zip(task.heirs, ranges, strict=True)),
        tuple(HeirRow(one, tuple(map(_source, parents))) for one in task.heirs) if task.inherits else (),
    )

    def entered(_: Change) -> None:
        heirs = [
            Region(one.id, table, one.start, one.end, S.CLOSED, token=one.token, sequence=one.sequence)
            for one in rows.heirs
        ]
        reshape(env.model, rows.parents, heirs, {one.id: one.sources for one in rows.sources}, env.now_ms())
        for heir in heirs:
            env.model.attach(heir, record.pid)
        for parent in rows.parents:
            env.parents_ms[parent.id] = env.now_ms()
        env.journal.made(table, heirs, record.pid, len(parents) if task.inherits else 0)
        for one in (*parents, *heirs):
            env.routes.changed(one)

    return Effect(Next(record.step + 1, record.data), (rows,), entered)


def _parent_row(region: Region, state: RegionState, heirs: tuple[int, ...]) -> ParentRow:
    return ParentRow(
        region.id, region.table.name, region.start, region.end, state, heirs, region.token, region.sequence
    )


def _heir_row(id_: int, parents: Sequence[Region], keys: Range) -> RegionRow:
    """Returns the row of an heir: its token is above those of all owners that its keys had."""
    token, sequence = max(one.token for one in parents), max(one.sequence for one in parents)
    return RegionRow(id_, parents[0].table.name, *keys, S.CLOSED, token=token, sequence=sequence)


def _source(region: Region) -> Source:
    return Source(region.id, region.start, region.end, region.token, region.sequence)


async def open_heirs(env: RegionsEnv, record: Record) -> Outcome:
    """Has the heirs opened: the first one where the regions were, the others by the placement."""
    task: Shape = SHAPE.decode(record.data)
    heirs = [one for id_ in task.heirs if (one := env.model.regions.get(id_)) is not None]
    children = [
        assign.assigned(one, task.why, None, to=task.server if one.id == task.heirs[0] else "") for one in heirs
    ]
    return Children(tuple(children), record.step + 1, record.data)


async def end(env: RegionsEnv, record: Record) -> Outcome:
    """Ends with the heirs, and the states of those that are not open."""
    task: Shape = SHAPE.decode(record.data)
    told = []
    for id_ in task.heirs:
        heir = env.model.regions.get(id_)
        if heir is not None:
            env.model.detach(heir, record.pid)
        state = "gone" if heir is None else heir.state.name.lower()
        told.append(f"#{id_}" if state == "open" else f"#{id_} {state}")
    return Done(", ".join(told).encode())


async def undo(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Has the regions serve again: one that was closed for this is opened by a procedure of its own."""
    task: Shape = SHAPE.decode(record.data)
    found = map(env.model.regions.get, task.parents)
    mine = [one for one in found if one is not None and one.pid in (0, record.pid)]
    closed = [one for one in mine if task.server and one.state is S.CLOSED]  # else an operator had closed it before

    def entered(_: Change) -> None:
        for one in mine:
            if one.state is LEAVING[record.kind]:
                env.model.move(one, S.OPEN, one.server, env.now_ms())
            env.model.detach(one, record.pid)
        for one in closed:
            env.model.move(one, S.OFFLINE, None, env.now_ms())
        env.left.extend(Left(one, record.pid, undone=True, to=task.server) for one in mine if one.state is S.OFFLINE)

    rows = tuple(
        Owner(
            *(one.id, S.OFFLINE, "", 0, one.token, one.sequence, one.version, int(one.clean)),
            former=env.model.former.get(one.id, ""),
        )
        for one in closed
    )
    return Effect(Done(), rows, entered)


CHANGES: Final[tuple[Step[RegionsEnv], ...]] = (
    Step("close", close_parents, undo),
    Step("check", check, undo),
    Step("commit", commit, undo),
    Step("open", open_heirs),
    Step("end", end),
)
"""The steps from the close on."""
