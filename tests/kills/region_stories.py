"""What operators and servers do in the kill tests of regions."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec.structs import replace

from controller.regions.procedures import (
    adopting,
    assign,
    balance,
    by_ids,
    close,
    fixing,
    forgetting,
    merge,
    move,
    publish,
    region_work,
    rows,
    servers,
    snapshots,
    split,
    table_work,
)
from controller.regions.procedures.balance_plan import BALANCE_TASK, BalanceTask
from controller.regions.procedures.messages import (
    CRASH,
    MOVE,
    REGION_WORK,
    SNAPSHOT_TASK,
    TABLE_TASK,
    TABLE_WORK,
    TRANSIT,
    Crash,
    Move,
    RegionWork,
    SnapshotTask,
    TableTask,
    TableWork,
    Transit,
)
from controller.regions.procedures.namespaces import NAMESPACE_TASK, NamespaceTask
from controller.regions.procedures.publish import PUBLISH_TASK, PublishTask
from controller.regions.procedures.repair import REPAIR, Repair
from controller.regions.procedures.servers import MARK_TASK, MarkTask
from controller.regions.procedures.stopping import STOP_TASK, StopTask
from metadata_store.catalog.rows import (
    DropRegions,
    HeirRow,
    MarkRow,
    NewRegions,
    Put,
    PutMark,
    PutTable,
    RegionRow,
    Source,
    TableRow,
)
from metadata_store.port import Kill
from regent_agent import protocol
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from state_machines.regions.entities import Region
from state_machines.regions.marks import MarkKind
from state_machines.regions.repairs import Forgotten
from state_machines.regions.states import RegionState
from tests.kills.region_daemons import Life, Story
from tests.kills.region_servers import COMPACT

TABLE: Final = "t"
Then = Callable[[Life, int], Awaitable[None]]
"""What happens while a procedure is under way."""


# -- what operators do


async def create(life: Life) -> Record:
    task = TableTask(TABLE, splits=(b"g", b"n", b"t"))
    return await life.run("create_table", TABLE_TASK.encode(task))


def changed(kind: str, **fields: Any) -> Story:
    async def story(life: Life) -> Record:
        return await life.run(kind, TABLE_TASK.encode(TableTask(TABLE, **fields)))

    return story


async def create_and_abort(life: Life) -> Record:
    """Creates a table; the operator aborts once some of its rows are stored."""
    task = TableTask(TABLE, uniform=12)

    def is_half_made(record: Record) -> bool:
        return TABLE in life.term.env.model.tables or record.state.is_final

    return await life.run("create_table", TABLE_TASK.encode(task), aborts=is_half_made)


def changes(kind: str) -> Story:
    async def story(life: Life) -> Record:
        return await life.run(kind, TABLE_TASK.encode(TableTask(TABLE)))

    return story


def snapshot(kind: str, table: str = "", aborts: Callable[[Record], bool] | None = None) -> Story:
    async def story(life: Life) -> Record:
        return await life.run(kind, SNAPSHOT_TASK.encode(SnapshotTask("s", table)), aborts=aborts)

    return story


def unstaged(aborts: Callable[[Record], bool] | None = None) -> Story:
    """A snapshot is taken back: in the end no region keeps a copy that it has staged, whenever a daemon died."""

    async def story(life: Life) -> Record:
        record = await snapshot("snapshot_table", TABLE, aborts)(life)
        assert record is not None
        await life.calm()
        latest = {one.region: one.what for _, one in life.service.works}
        kept = [region for region, what in latest.items() if what == protocol.STAGE]
        assert (record.state, kept) == (State.ROLLEDBACK, []), latest
        return record

    return story


def cloned(**fields: Any) -> Story:
    """A new table begins as the data of another one, or of a snapshot."""

    async def story(life: Life) -> Record:
        return await life.run("clone_table", TABLE_TASK.encode(TableTask("copy", **fields)))

    return story


def is_staging(record: Record) -> bool:
    return record.step == snapshots.STAGE or record.state.is_final


def all_tables(kind: str) -> Story:
    async def story(life: Life) -> Record:
        return await life.run(kind, STOP_TASK.encode(StopTask("a test")))

    return story


def namespace(kind: str) -> Story:
    async def story(life: Life) -> Record:
        return await life.run(kind, NAMESPACE_TASK.encode(NamespaceTask("n")))

    return story


def marked(kind: str, of: MarkKind = MarkKind.CORDON, subject: str = "s1") -> Story:
    async def story(life: Life) -> Record:
        return await life.run(kind, MARK_TASK.encode(MarkTask(of, subject)))

    return story


async def loses_a_row(life: Life) -> None:
    """The last region is closed, and its row lost: no region has its keys."""
    table = life.term.env.model.tables[TABLE]
    last = table.regions[-1].id
    await life.run(close.NAME, TRANSIT.encode(Transit(last, TABLE)))
    await life.term._store.write((), (), (DropRegions((last,)),))
    life.term.env.model.drop_last(table, 1)


async def fixes_keys(life: Life) -> Record:
    """An operator has keys that no region has given to an empty one."""
    return await life.run(fixing.NAME, TABLE_TASK.encode(TableTask(TABLE)))


LOST: Final = 7
"""Id of a region that no procedure of these stories makes: it was given out, and its row is lost."""


async def adopts(life: Life) -> Record:
    """An operator has a region stored again that has the last keys; its sources are there still."""
    table = life.term.env.model.tables[TABLE]
    start = next((one.start for one in table.regions if one.id == LOST), table.regions[-1].end)
    return await life.run(adopting.NAME, REPAIR.encode(Repair(LOST, TABLE, "its row is lost", start)))


async def adds_a_row(life: Life) -> None:
    """The store has a region more, which is open, and the keys of which others have."""
    env = life.term.env
    table = env.model.tables[TABLE]
    await life.term._store.write((), (), (NewRegions((RegionRow(LOST, TABLE, b"a", b"h", 4),)),))
    env.model.fill(table, [Region(LOST, table, b"a", b"h", RegionState.CLOSED)])
    await life.run(assign.NAME, TRANSIT.encode(Transit(LOST, TABLE)))


async def forgets_a_region(life: Life) -> Record:
    """An operator has a region forgotten whose keys others have."""
    return await life.run(forgetting.NAME, REPAIR.encode(Repair(LOST, TABLE, what=Forgotten.REGION)))


async def adds_sources(life: Life) -> None:
    """The store says where the data of a region begins that is not there."""
    sources = HeirRow(LOST, (Source(first(life), b"", b"g", 1, 1),))
    await life.term._store.write((), (), (Put(sources),))
    life.term.env.model.sources[LOST] = sources.sources


async def forgets_sources(life: Life) -> Record:
    """An operator has such a row forgotten."""
    return await life.run(forgetting.NAME, REPAIR.encode(Repair(LOST, what=Forgotten.SOURCES)))


async def removes_a_row(life: Life) -> Record:
    """Another tool has written a mark that cannot be read, which a next daemon finds; an operator has it removed."""
    records, damages = life.term.engine.records.values(), life.term.env.model.damages
    if (ended := next((one for one in records if one.kind == rows.REMOVE and one.state.is_final), None)) is not None:
        return ended
    if not damages.rows:
        await life.term._store.write((), (), (PutMark(MarkRow(MarkKind.WEIGHT, "s1", "heavy")),))
        raise Kill
    [damage] = damages.rows
    return await life.run(rows.REMOVE, rows.ROW_TASK.encode(rows.RowTask(damage.place, str(damage))))


async def adopts_a_table(life: Life) -> Record:
    """Another tool has damaged the row of the table; an operator has it stored again, and a next daemon has it."""
    is_there = TABLE in life.term.env.model.tables
    if is_there and all(one.kind != rows.ADOPT for one in life.term.engine.records.values()):
        await life.term._store.write((), (), (PutTable(TableRow(TABLE, 2, 99)),))
        raise Kill
    record = await life.run(rows.ADOPT, TABLE_TASK.encode(TableTask(TABLE, enables=True)))
    if not is_there:
        raise Kill
    return record


async def recovers(life: Life) -> Record:
    """An operator has the row stored of a process that regions alone name; the process comes back then."""
    life.term.env.model.strangers["s9", 1] = 1
    record = await life.run(servers.RECOVER, CRASH.encode(Crash("s9", 1)))
    if ("s9", 1) not in life.service.servers:
        life.service.start("s9")
    return record


async def forgets(life: Life) -> Record:
    """An operator has a server forgotten that crashed."""
    return await life.run(servers.FORGET, CRASH.encode(Crash("s1", 1)))


async def assigns(life: Life) -> Record:
    region = first(life)
    return await life.run(assign.NAME, TRANSIT.encode(Transit(region, TABLE)))


async def fails_once(life: Life) -> Record:
    life.service.failing = {first(life): [protocol.FAILED_OPEN]}
    return await life.run(assign.NAME, TRANSIT.encode(Transit(first(life), TABLE, "fails")))


async def closes(life: Life) -> Record:
    return await life.run(close.NAME, TRANSIT.encode(Transit(first(life), TABLE)))


def of_ids(kind: str) -> Story:
    """An operator names all regions of the table, and one that is not there. Ids differ: a death may waste some."""

    async def story(life: Life) -> Record:
        ids = [one.id for one in life.term.env.model.tables[TABLE].regions]
        record = await life.run(kind, by_ids.BY_IDS.encode(by_ids.naming([*ids, 999_999], "a test")))
        return replace(record, result=re.sub(rb"#\d+", b"#", record.result))

    return story


def moves(*, reopens: bool = False) -> Story:
    async def story(life: Life) -> Record:
        to = "" if reopens else "s3"
        return await life.run(move.NAME, MOVE.encode(Move(first(life), TABLE, to, "", reopens)))

    return story


def works(*, tries_max: int = 0) -> Story:
    async def story(life: Life) -> Record:
        task = RegionWork(first(life), TABLE, COMPACT, b"all", tries_max=tries_max)
        return await life.run(region_work.NAME, REGION_WORK.encode(task))

    return story


async def works_and_aborts(life: Life) -> Record:
    """Has work done whose server does not do it; the operator aborts once it has said so."""
    life.service.failing = {first(life): [protocol.FAILED] * 1_000}
    task = RegionWork(first(life), TABLE, COMPACT)

    def has_failed(record: Record) -> bool:
        return record.state.is_final or bool(life.term.env.causes.of(record.pid))

    try:
        return await life.run(region_work.NAME, REGION_WORK.encode(task), aborts=has_failed)
    finally:
        life.service.failing = {}


async def works_on_all(life: Life) -> Record:
    """Has work done on all regions: each was worked on at its present owner, or before that crashed."""
    record = await life.run(table_work.NAME, TABLE_WORK.encode(TableWork(TABLE, COMPACT, b"all")))
    regions = {one.id for one in life.term.env.model.tables[TABLE].regions}
    assert {one.region for _, one in life.service.works if one.what == COMPACT} >= regions
    return record


async def publishes(life: Life) -> Record:
    """Publishes a value: in the end each server has it, or none has, and none keeps it staged."""
    record = await life.run(publish.NAME, PUBLISH_TASK.encode(PublishTask("acl", b"a=rw")))
    await life.calm()
    stored = {one.name: (one.number, one.data) for one in life.term.env.model.published.values()}
    for server in life.service.alive:
        has = {one.name: (one.number, one.data) for one in server.published.values()}
        assert (has, server.staged) == (stored, set()), (server.key, has, stored, server.staged)
    return record


async def publishes_what_one_rejects(life: Life) -> Record:
    life.service.failing = {0: [protocol.FAILED]}
    try:
        return await publishes(life)
    finally:
        life.service.failing = {}


async def publishes_and_aborts(life: Life) -> Record:
    """Publishes a value that no server prepares; the operator aborts."""
    life.service.failing = {0: [protocol.BUSY] * 6}

    def is_staging(record: Record) -> bool:
        return record.state.is_final or record.step == 1

    task = PublishTask("acl", b"a=rw")
    try:
        return await life.run(publish.NAME, PUBLISH_TASK.encode(task), aborts=is_staging)
    finally:
        life.service.failing = {}


async def unpublishes(life: Life) -> Record:
    return await life.run(publish.REMOVE, PUBLISH_TASK.encode(PublishTask("acl")))


async def drains(life: Life) -> Record:
    return await life.run(servers.DRAIN, CRASH.encode(Crash("s1", 1)))


async def balances(life: Life) -> Record:
    return await life.run(balance.NAME, BALANCE_TASK.encode(BalanceTask()))


def _moves_have_begun(record: Record) -> bool:
    return record.state.is_final or BALANCE_TASK.decode(record.data).begun > 0


async def balances_and_aborts(life: Life) -> Record:
    """Regions are balanced; the operator aborts once the first moves have begun."""
    return await life.run(balance.NAME, BALANCE_TASK.encode(BalanceTask()), aborts=_moves_have_begun)


async def balances_while_a_target_dies(life: Life) -> None:
    """The server that is to get regions dies once the first moves have begun: how many are left out is not said."""
    caller = Caller("User:ops", nonce="balance")
    pid = await life._driven(life.term.engine.submit(balance.NAME, BALANCE_TASK.encode(BalanceTask()), caller))
    await life.until(lambda: _moves_have_begun(life.term.engine.records[pid]))
    life.service.servers["s1", 1].dies()
    await life._driven(life.term.engine.result(pid))


async def leaves(life: Life) -> None:
    """A server stops: it repeats its request until it has nothing left."""
    server = life.service.servers["s1", 1]
    while server.alive:
        await life.until(lambda: server.key in life._here)
        response = await life.term.service.handle(protocol.Leave(*server.key, server.epoch))
        if isinstance(response, protocol.Left) and response.regions:
            await life.turns(3)
        else:
            server.dies()


async def crashes(life: Life) -> None:
    life.service.servers["s1", 1].dies()


async def restarts(life: Life) -> None:
    """A process ends, and the next one of the same server comes at once."""
    life.service.servers["s1", 1].dies()
    if ("s1", 2) not in life.service.servers:
        life.service.start("s1", 2)


def crashes_while(story: Story) -> Story:
    """A server crashes while an operator's procedure is under way."""

    async def both(life: Life) -> Record | None:
        life.service.servers["s1", 1].dies()
        return await story(life)

    return both


async def has_a_stray(life: Life) -> None:
    """A server has a region that is another one's, since before this daemon began."""
    owner = life.service.owners[first(life)]
    other = next(one for one in life.service.alive if one is not owner)
    if not life.service.strays:
        other.owned[first(life)] = 1
        life.service.strays.append(other)
    await life.until(lambda: first(life) not in life.service.strays[0].owned)


def splits(then: Then | None = None, key: bytes = b"c") -> Story:
    """An operator splits the first region. ``then``: what happens once it is closing."""

    async def story(life: Life) -> Record:
        region = life.term.env.model.tables[TABLE].regions[0]
        return await shaped(life, split.NAME, await split.splitting(life.term.env, region, key, ""), then)

    return story


async def discards(life: Life) -> None:
    """Both heirs of a split become independent of their parent, which a server discards then."""
    model = life.term.env.model
    while model.sources:
        await life.until(lambda: all(one.key in life._here for one in life.service.alive))
        region = next(iter(model.sources))
        owner = life.service.owners[region]
        owned = [protocol.Owned(region, owner.owned[region])]
        await life.term.service.handle(protocol.Independent(*owner.key, owner.epoch, owned))
    await life.until(lambda: not model.parents)
    (discarded,) = {work.data for _, work in life.service.works if work.what == protocol.DISCARD}
    assert int(discarded) < min(model.regions), "it was the first region"


def merges(then: Then | None = None) -> Story:
    """An operator merges the first three regions, which are at three servers."""

    async def story(life: Life) -> Record:
        regions = life.term.env.model.tables[TABLE].regions[:3]
        return await shaped(life, merge.NAME, await merge.merging(life.term.env, regions, ""), then)

    return story


async def shaped(life: Life, kind: str, data: bytes, then: Then | None) -> Record:
    """Runs a split or a merge; its result is left out, because it names ids, of which a death may waste some."""
    caller, engine = Caller("User:ops", nonce=kind), life.term.engine
    known = engine.pid_of(caller)
    pid = known if known is not None else await life._driven(engine.submit(kind, data, caller))
    if then is not None:
        checks = (split.COMMIT if kind == split.NAME else merge.COMMIT) - 1
        await life.until(lambda: engine.records[pid].state.is_final or engine.records[pid].step >= checks)
        await then(life, pid)
    return replace(await life._driven(engine.result(pid)), result=b"")


async def aborts(life: Life, pid: int) -> None:
    await life._driven(life.term.engine.abort(pid))


async def kills_owner(life: Life, _: int) -> None:
    """The server that is about to close dies; no second one does."""
    servers = life.service.servers.values()
    for region in life.term.env.model.transit.values():
        if region.server is not None and all(one.alive for one in servers):
            life.service.servers[region.server.key].dies()


def first(life: Life) -> int:
    """Returns the id of the table's first region."""
    return life.term.env.model.tables[TABLE].regions[0].id


async def nothing(life: Life) -> None:
    await life.until(lambda: len(life._here) == len(life.service.alive))
