"""Declares the stored messages of region procedures; names what each is about, for the journal, and its locks."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from controller.regions.dispatcher import Key
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.record import Record
from state_machines.procedures.transition import Members
from state_machines.regions.entities import namespace_of
from state_machines.regions.marks import LostParts
from state_machines.regions.shapes import identity_of

M = TypeVar("M", bound=msgspec.Struct)


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of stored messages. Fields are only ever added at the end."""


class Transit(Message, frozen=True):
    """One region on its way to a server, or away from one.

    ``server`` and ``incarnation``: the process it is sent to, once chosen. ``token``: of the open that is closed, or of
    the latest open of an assign, 0 where that is its pid. ``retries``: opens that failed. ``avoid``: name of the server
    that failed last. ``to``: name of the wanted server.
    ``not_before_ms``: the wall clock's time of the next attempt. ``table``, ``why``: for locks and log lines.
    ``failed``: what the latest server said that could not do it.
    ``returns``: a region that is closed is to be opened again: OFFLINE is stored, which a failover has opened.
    ``stays``: the procedure that began this one moves on with the region, also where it is not opened.
    ``version``: of the table, at the latest when the open was sent.
    """

    region: int
    table: str
    why: str = ""
    server: str = ""
    incarnation: int = 0
    token: int = 0
    retries: int = 0
    avoid: str = ""
    to: str = ""
    not_before_ms: int = 0
    failed: str = ""
    returns: bool = False
    stays: bool = False
    version: int = 0


class Move(Message, frozen=True):
    """A region that is closed, and opened at another server, or at the same one (``reopens``)."""

    region: int
    table: str
    to: str = ""
    why: str = ""
    reopens: bool = False


class RegionWork(Message, frozen=True):
    """Work on a region. ``what``, ``data``: for its server. ``failures``: how often it failed, of ``tries_max``.

    ``failed``: what the server said. ``not_before_ms``: the wall clock's time at which it is sent again. ``stays``: the
    procedure that began this one goes on with the region.
    """

    region: int
    table: str
    what: str
    data: bytes = b""
    why: str = ""
    tries_max: int = 0
    failures: int = 0
    failed: str = ""
    not_before_ms: int = 0
    stays: bool = False


class TableWork(Message, frozen=True):
    """Work on all open regions of a table. ``what``, ``data``, ``tries_max``: as in :class:`RegionWork`.

    ``begun``: first key of the regions on which it has not begun; ``is_last``: there are none. ``regions``: how many
    were worked on.
    """

    table: str
    what: str
    data: bytes = b""
    why: str = ""
    tries_max: int = 0
    begun: bytes = b""
    is_last: bool = False
    regions: int = 0


class Many(Message, frozen=True):
    """Some regions of a table: ``count`` of them from position ``first`` on, or those of ``ids``.

    ``begun``: of these, how many the children of earlier runs of the step were about. ``waits``: they begin once fewer
    regions are in transition than the settings allow; those of a table do in any case.
    """

    table: str
    why: str = ""
    first: int = 0
    count: int = 0
    ids: tuple[int, ...] = ()
    begun: int = 0
    waits: bool = False


class Crash(Message, frozen=True):
    """A process that crashed, or is drained. ``method``: of its fence; ``why``: how it was found out.

    ``force``: a drain moves regions, too, that were moved a moment ago. ``lost``: parts of its log.
    """

    server: str
    incarnation: int
    method: str = "lease"
    why: str = ""
    force: bool = False
    lost: LostParts = LostParts()


class LogTask(Message, frozen=True):
    """Work on the log of a crashed process, at any server of the service. ``worker``: the one it was sent to.

    ``failed``: what the latest server said that could not do it.
    """

    server: str
    incarnation: int
    part: str
    worker: str = ""
    worker_incarnation: int = 0
    not_before_ms: int = 0
    failed: str = ""


class TableTask(Message, frozen=True):
    """A change of a table. ``splits``: its split keys; or ``uniform`` regions, evenly over keys of eight hex digits.

    ``first_id``: of its regions, once reserved; ``made``: regions that are stored. ``begun``: position of the first
    region whose batch was not begun yet. ``enables``: it is enabled at the end. ``drops_splits``: one region takes the
    place of all. ``removed``: options that it loses. ``together``: regions that are opened again at a time.
    ``stops``: it is disabled because all tables are stopped, or enabled because they are started. ``snapshot``,
    ``source``: the snapshot, or the table, as whose data its regions begin; ``count``: how many these are.
    ``state``, ``version``: of a row that is stored again; None for what ``enables`` says, and for the pid.
    """

    table: str
    kind: int = 2
    options: dict[str, str] = {}
    splits: tuple[bytes, ...] = ()
    uniform: int = 0
    first_id: int = 0
    made: int = 0
    why: str = ""
    begun: int = 0
    enables: bool = False
    drops_splits: bool = False
    removed: tuple[str, ...] = ()
    together: int = 0
    stops: bool = False
    snapshot: str = ""
    source: str = ""
    count: int = 0
    state: int | None = None
    version: int | None = None


class Shape(Message, frozen=True):
    """Regions of a table whose keys others get. ``parents``: in the order of keys; ``heirs``: ids reserved for them.

    ``key``: of a split, the first key of the second heir; empty until the server of the region has named one.
    ``inherits``: the data of the heirs begins as that of the parents. ``server``: name of the one that had the parents
    last, where the first heir is to go. ``tries``: how often the parents were brought together, or were closed.
    """

    table: str
    parents: tuple[int, ...]
    heirs: tuple[int, ...]
    key: bytes = b""
    why: str = ""
    inherits: bool = True
    server: str = ""
    tries: int = 0


class SnapshotTask(Message, frozen=True):
    """A snapshot of a table that is made, or deleted. ``begun``: position of the first region that is not staged yet.

    ``made``: regions that the stored parts list, ``parts``: how many these are. ``id``: tells it from all others of its
    name; empty until it is chosen, and in procedures of earlier releases.
    """

    name: str
    table: str = ""
    why: str = ""
    begun: int = 0
    made: int = 0
    parts: int = 0
    id: str = ""

    @property
    def identity(self) -> bytes:
        """Returns what servers know the snapshot by."""
        return identity_of(self.name, self.id).encode()


class Codec(Generic[M]):
    """Encodes and decodes one kind of message."""

    def __init__(self, of: type[M]) -> None:
        self.encode = msgspec.msgpack.Encoder().encode
        decoder: Any = msgspec.msgpack.Decoder(of)
        self.decode: Any = decoder.decode


TRANSIT = Codec(Transit)
MOVE = Codec(Move)
REGION_WORK = Codec(RegionWork)
TABLE_WORK = Codec(TableWork)
MANY = Codec(Many)
CRASH = Codec(Crash)
LOST_PARTS = Codec(LostParts)
LOG_TASK = Codec(LogTask)
TABLE_TASK = Codec(TableTask)
SNAPSHOT_TASK = Codec(SnapshotTask)
SHAPE = Codec(Shape)


def of_transit(record: Record) -> Members:
    """Names a region and the process that it goes to or leaves; of one that is not chosen yet the wanted name."""
    task: Transit = TRANSIT.decode(record.data)
    return Members((), (), task.table, task.region, task.server or task.to, task.incarnation, task.why)


def of_move(record: Record) -> Members:
    """Names a region and the server that it is to go to."""
    task: Move = MOVE.decode(record.data)
    return Members(table=task.table, region=task.region, server=task.to, why=task.why)


def of_region_work(record: Record) -> Members:
    """Names the region of work on one, and what is done."""
    task: RegionWork = REGION_WORK.decode(record.data)
    return Members(table=task.table, region=task.region, why=task.why, what=task.what)


def of_table_work(record: Record) -> Members:
    """Names the table of work on its regions, and what is done."""
    task: TableWork = TABLE_WORK.decode(record.data)
    return Members(table=task.table, why=task.why, what=task.what)


def of_many(record: Record) -> Members:
    """Names the table of some regions."""
    task: Many = MANY.decode(record.data)
    return Members(table=task.table, why=task.why)


def of_process(record: Record) -> Members:
    """Names a process of a server."""
    task: Crash = CRASH.decode(record.data)
    return Members(server=task.server, incarnation=task.incarnation, why=task.why)


def of_log(record: Record) -> Members:
    """Names the process that works on a log; before one is chosen, the owner of the log."""
    task: LogTask = LOG_TASK.decode(record.data)
    if task.worker:
        return Members(server=task.worker, incarnation=task.worker_incarnation)
    return Members(server=task.server, incarnation=task.incarnation)


def of_table(record: Record) -> Members:
    """Names a table."""
    task: TableTask = TABLE_TASK.decode(record.data)
    return Members(table=task.table, why=task.why)


def of_shape(record: Record) -> Members:
    """Names the table and the first of the regions whose keys others get."""
    task: Shape = SHAPE.decode(record.data)
    return Members(table=task.table, region=task.parents[0], server=task.server, why=task.why)


def of_snapshot(record: Record) -> Members:
    """Names the table of a snapshot, and the snapshot."""
    task: SnapshotTask = SNAPSHOT_TASK.decode(record.data)
    return Members(table=task.table, why=task.why, what=f"snapshot {task.name}")


@lru_cache(maxsize=10_000)
def resource_of(name: str) -> Resource:
    """Returns the queue of a table."""
    return Resource(Scope.TABLE, name, namespace_of(name))


def lock_of_region(table_name: str, id_: int) -> Demand:
    """Demands a region: it alone, beside others of its table."""
    return Demand(resource_of(table_name), exclusive=False, parts=(id_,))


def share_of_table(table_name: str) -> Demand:
    """Demands that no change of the table is under way."""
    return Demand(resource_of(table_name), exclusive=False)


def lock_of_table(table_name: str) -> Demand:
    """Demands a table and all its regions."""
    return Demand(resource_of(table_name), exclusive=True)


def shape_of(table_name: str, *, exclusive: bool) -> Demand:
    """Demands which regions a table has: changes of them share it, and a procedure on all of them has it alone.

    Moves of regions do not need it. Its name comes before those of all tables, so that parts of its holder may lock
    regions; it is one of ``Demand.also``.
    """
    return Demand(Resource(Scope.TABLE, f"(shape of {table_name})", namespace_of(table_name)), exclusive)


def lock_of_keys(table_name: str) -> Demand:
    """Demands that no change of a table is under way, and that its regions stay the same ones; they may move."""
    return share_of_table(table_name)._replace(also=(shape_of(table_name, exclusive=True),))


def lock_of_snapshot(name: str, *, exclusive: bool) -> Demand:
    """Demands a snapshot: those that read it share it."""
    return Demand(Resource(Scope.TABLE, f"(snapshot {name})"), exclusive)


def lock_of_server(key: Key) -> Demand:
    """Demands one process of a server."""
    return Demand(Resource(Scope.SERVER, f"{key[0]},{key[1]}"), exclusive=True)


def lock_of_namespace(name: str) -> Demand:
    """Demands a namespace and all its tables."""
    return Demand(Resource(Scope.NAMESPACE, name), exclusive=True)
