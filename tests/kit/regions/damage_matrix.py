"""Damages each column of a catalog in both stores, and tells what the daemon and a report say about it.

``python -m tests.kit.regions.damage_matrix`` prints the page docs/reference/damaged-catalog.md.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from controller.regions import damaged, loading
from controller.regions.entering import enter
from controller.regions.operator.counts import halted
from metadata_store.catalog import znodes
from metadata_store.catalog.judging import CHECKS, KINDS
from metadata_store.catalog.rows import (
    Bury,
    Content,
    HeirRow,
    MarkRow,
    NewRegions,
    ParentRow,
    PublishedRow,
    Put,
    PutMark,
    PutNamespace,
    PutServer,
    PutTable,
    RegionRow,
    ServerRow,
    SnapshotPartRow,
    SnapshotRow,
    Source,
    TableRow,
    Write,
)
from metadata_store.catalog.znodes import BuriedRow, NamespaceRow
from metadata_store.port import ANY_VERSION
from state_machines.regions.findings import FindingKind, Held, Scope
from state_machines.regions.model import Regions
from state_machines.regions.report import Judge
from tests.contracts.catalog_zookeeper import ROOT, both, sealed
from tests.contracts.memory import MemoryBackend
from tests.contracts.support import session
from tests.kit.regions.catalogs import BAD, COLUMNS, HOLDS, in_a_file

Rows = dict[type[Any], Any]
COMMAND: Final = re.compile(r"'regent ([a-z]+ [a-z-]+)")
VIEWS: Final = frozenset({"explain", "describe", "list", "procedures"})
"""Commands that change nothing."""
RESTORED: Final = "a copy of the row"
STARTED: Final = "a start of the daemon"
FIRST: Final = RegionRow(1, "n:t", b"", b"k", 2, "s1", 5, 9, 3)
SOUND: Final[Mapping[type[Any], Any]] = {
    NamespaceRow: NamespaceRow("n"),
    TableRow: TableRow("n:t", 2, 0, (("a", "1"),)),
    RegionRow: RegionRow(2, "n:t", b"k", b"", 2, "s1", 5, 9, 3),
    ServerRow: ServerRow("s1", 5, "s1:1", "2.1"),
    MarkRow: MarkRow("cordon", "s1", "", 0, "ops", "why"),
    BuriedRow: BuriedRow("s2", 4, 7),
    HeirRow: HeirRow(2, (Source(9, b"k", b"", 5, 1),)),
    ParentRow: ParentRow(9, "n:t", b"k", b"", 6, (2,), 5, 1),
    SnapshotRow: SnapshotRow("s", "n:t", 2, (("a", "1"),), 7, 1, 1),
    SnapshotPartRow: SnapshotPartRow("s", 0, (Source(9, b"", b"", 5, 1, "s"),)),
    PublishedRow: PublishedRow("acl", 1, b"all"),
}
"""One row of each kind, beside :data:`FIRST`: a catalog in order."""
WRONG: Final[Mapping[tuple[type[Any], str], Any]] = {
    (NamespaceRow, "name"): "m",
    (TableRow, "name"): "n:other",
    (TableRow, "kind"): 1,
    (TableRow, "state"): 3,
    (TableRow, "options"): (),
    (TableRow, "version"): 4,
    (RegionRow, "id"): 3,
    (RegionRow, "table"): "n:other",
    (RegionRow, "start"): b"m",
    (RegionRow, "end"): b"z",
    (RegionRow, "state"): 4,
    (RegionRow, "server"): "s3",
    (RegionRow, "incarnation"): 6,
    (RegionRow, "token"): 1,
    (RegionRow, "sequence"): 1,
    (RegionRow, "version"): 1,
    (RegionRow, "clean"): 1,
    (RegionRow, "former"): "s3",
    (ServerRow, "name"): "s3",
    (ServerRow, "incarnation"): 6,
    (ServerRow, "address"): "s3:1",
    (ServerRow, "software"): "",
    (MarkRow, "kind"): "hold",
    (MarkRow, "subject"): "s3",
    (MarkRow, "value"): "x",
    (MarkRow, "until_ms"): 1,
    (MarkRow, "by"): "",
    (MarkRow, "reason"): "",
    (BuriedRow, "name"): "s3",
    (BuriedRow, "incarnation"): 9,
    (BuriedRow, "number"): 9,
    (HeirRow, "id"): 8,
    (HeirRow, "sources"): (Source(8, b"k", b"", 5, 1),),
    (ParentRow, "id"): 8,
    (ParentRow, "table"): "n:other",
    (ParentRow, "start"): b"m",
    (ParentRow, "end"): b"z",
    (ParentRow, "state"): 10,
    (ParentRow, "heirs"): (8,),
    (ParentRow, "token"): 1,
    (ParentRow, "sequence"): 9,
    (SnapshotRow, "name"): "r",
    (SnapshotRow, "table"): "n:other",
    (SnapshotRow, "kind"): 1,
    (SnapshotRow, "options"): (),
    (SnapshotRow, "made_ms"): 1,
    (SnapshotRow, "regions"): 9,
    (SnapshotRow, "parts"): 2,
    (SnapshotPartRow, "name"): "r",
    (SnapshotPartRow, "number"): 1,
    (SnapshotPartRow, "regions"): (Source(8, b"", b"", 5, 1, "s"),),
    (PublishedRow, "name"): "other",
    (PublishedRow, "number"): 9,
    (PublishedRow, "data"): b"none",
}
"""By row and field, another value that the field may have, and that is not what was stored."""


class Told(NamedTuple):
    """What the daemon does with a catalog as it starts, what a report without a daemon finds, and what that names."""

    start: str
    report: str
    mends: str


# -- what is said


def told(content: Content) -> Told:
    """Enters a catalog as a term does, and judges it."""
    known = {(one.name, one.incarnation) for one in content.servers} | set(damaged.members(content.damaged))
    owners = {
        one.id: f"{one.server},{one.incarnation}"
        for one in content.regions
        if one.server and (one.server, one.incarnation) not in known
    }
    model = Regions()
    asyncio.run(enter(model, content, 0))
    left = asyncio.run(loading.lost(model))
    said = [f"{one.kind.value} left out" for one in model.damages.rows]
    said += ["keys overlap" if one.overlap else "keys without a region" for one in model.damages.gaps]
    said += ["a region is assigned anew" for _ in left]
    said += ["server is a member until its lease is over" for key in model.servers if key not in known]
    judge = Judge(model, Scope(serving=False, owners=owners))
    for _ in chain(judge.of_keys(), judge.of_rest(Held(lambda _: False, {}, {}, halted=halted(model, ())))):
        pass
    found = sorted(judge.found.counts, key=list(FindingKind).index)
    named = dict.fromkeys(name for one in judge.found.listed for name in mends_of(one.mend))
    return Told(
        ", ".join(dict.fromkeys(said)) or "-",
        ", ".join(f"`{one}`" for one in found) or "-",
        ", ".join(one if one in (RESTORED, STARTED) else f"`{one}`" for one in named) or "-",
    )


def mends_of(mend: str) -> Iterator[str]:
    """Yields the commands that a finding names, with a copy of the row where it begins with that."""
    if "restore the rows" in mend:
        yield RESTORED
    yield from (one for one in COMMAND.findall(mend) if one.split()[1] not in VIEWS)
    if "start the daemon" in mend and "restore" not in mend:
        yield STARTED


# -- both stores


def writes(rows: Rows) -> Iterator[Write]:
    """Yields what stores the rows."""
    yield PutNamespace(rows[NamespaceRow].name)
    yield PutTable(rows[TableRow])
    yield NewRegions((FIRST, rows[RegionRow]))
    yield PutServer(rows[ServerRow])
    yield PutMark(rows[MarkRow])
    yield Bury(*rows[BuriedRow])
    for kind in (HeirRow, ParentRow, SnapshotRow, SnapshotPartRow, PublishedRow):
        yield Put(rows[kind])


async def of_file(rows: Rows, kind: type[Any] | None = None, field: str = "") -> Content:
    """Reads a catalog from a file; a field of one row is of a wrong type, or has a value that is none."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "regions.db"
        async with in_a_file(file) as (store, _):
            await store.write((), (), writes(rows))
        if kind is not None:
            table, columns = COLUMNS[kind]
            column = columns[list(CHECKS[kind]).index(field)]
            value = -1 if field == "id" else BAD[HOLDS.get((kind, field), "text")][-1]
            where = "WHERE id = 2" if kind is RegionRow else ""
            with closing(sqlite3.connect(file)) as db, db:
                db.execute(f"UPDATE {table} SET {column} = ? {where}", (value,))
        async with in_a_file(file) as (_, catalog):
            return await catalog.read()


async def of_znodes(rows: Rows, kind: type[Any] | None = None, field: str = "") -> Content:
    """Reads a catalog from ZooKeeper; as :func:`of_file`."""
    async with session(MemoryBackend()) as s:
        store, catalog = await both(s)
        await store.write((), (), writes(rows))
        if kind is not None:
            path = f"{ROOT}/{znodes.FORMS[kind].folder}"
            while names := sorted(await s.names(path)):
                path = f"{path}/{names[-1]}"
            body = json.loads((await s.data(path) or b"").rpartition(b"\n")[0])
            value = {"choice": 99, "number": -1}.get(HOLDS.get((kind, field), "number" if field == "id" else ""), 7.5)
            body[znodes.JSON_NAMES.get(field, field)] = value
            await s.zk.set(path, sealed(json.dumps(body).encode()), ANY_VERSION)
        return await catalog.read()


# -- the page


class Line(NamedTuple):
    """One damage, and what is said about it in each store."""

    row: str
    field: str
    damage: str
    file: Told
    znodes: Told

    def __str__(self) -> str:
        cells = (one if one == other else f"{one}; in ZooKeeper {other}" for one, other in zip(*self[3:], strict=True))
        return f"| {self.row} | `{self.field}` | {self.damage} | {' | '.join(cells)} |"


def lines() -> Iterator[Line]:
    """Yields a line for each damage."""
    for kind, fields in CHECKS.items():
        for field in fields:
            wrong = dict(SOUND) | {kind: SOUND[kind]._replace(**{field: WRONG[kind, field]})}
            file, nodes = (told(asyncio.run(read(wrong))) for read in (of_file, of_znodes))
            yield Line(KINDS[kind].value, field, "another value", file, nodes)
            in_file = len(COLUMNS[kind][1]) > list(fields).index(field)
            nodes = told(asyncio.run(of_znodes(dict(SOUND), kind, field)))
            file = told(asyncio.run(of_file(dict(SOUND), kind, field))) if in_file else nodes
            yield Line(KINDS[kind].value, field, "no value of its type", file, nodes)


HEAD: Final = """\
# Damage of the catalog

Written by `.venv/bin/python -m tests.kit.regions.damage_matrix`, which a test compares: do not edit.

Each column of the catalog of regions has two damages here, in both stores: another value that the column may have, and
one that is no value of it. They are done to a catalog that is in order: a table of two regions, the second of which a
split has made, and one row of each other kind.

The daemon leaves out what it cannot use, and its log names that (*left out,*). It gives no route for keys that no
region has, or several, and keeps a server as a member that has no row and that a region names. What follows is what
`regent regions report --offline FILE` finds ([kinds](../how-to/assign-regions.md#report)), and what its lines name to
mend it: each of these alone, or one for each finding. A copy of the row is put back with the daemon stopped, and the
catalog is in order then. With `-` neither notices the damage: a copy of the store, the journal or the servers alone
tell that it was another value. The file's own names of `table`, `start` and `end` are `tbl`, `first` and `last`.

| row | column | damage | the daemon at its start | the report | what mends it |
|---|---|---|---|---|---|
"""


def page(made: Iterable[Line]) -> str:
    """Returns the page."""
    return HEAD + "".join(f"{line}\n" for line in made)


if __name__ == "__main__":
    print(page(lines()), end="")
