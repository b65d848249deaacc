"""The damaged row of a table names what can be read of it still, in a file and in ZooKeeper."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from metadata_store.catalog.rows import PutTable, TableRow
from metadata_store.port import ANY_VERSION
from state_machines.regions.damage import Damage
from state_machines.regions.table_rows import NOTHING, TableParts
from tests.contracts.catalog_zookeeper import ROOT, both, sealed
from tests.contracts.memory import MemoryBackend
from tests.contracts.support import session
from tests.kit.regions.catalogs import in_a_file

TABLE = TableRow("t", 1, 0, (("codec", "none"),), 7)
WHOLE = TableParts(1, 0, (("codec", "none"),), 7)
PATH = f"{ROOT}/tables/t"
CASES: list[tuple[dict[str, Any], TableParts]] = [
    ({"kind": 9}, WHOLE._replace(kind=None)),
    ({"kind": "abc"}, WHOLE._replace(kind=None)),
    ({"state": 99}, WHOLE._replace(state=None)),
    ({"state": "abc"}, WHOLE._replace(state=None)),
    ({"version": -1}, WHOLE._replace(version=None)),
    ({"version": "abc"}, WHOLE._replace(version=None)),
    ({"state": "abc", "kind": 9, "version": 2.5}, WHOLE._replace(state=None, kind=None, version=None)),
]


@pytest.mark.parametrize(("wrong", "expected"), [*CASES, ({"options": "no JSON"}, WHOLE._replace(options=None))])
async def test_a_row_of_a_file_keeps_what_can_be_read(
    tmp_path: Path, wrong: dict[str, Any], expected: TableParts
) -> None:
    file = tmp_path / "regions.db"
    async with in_a_file(file) as (store, _):
        await store.write((), (), (PutTable(TABLE),))
    db = sqlite3.connect(file, isolation_level=None)
    for column, value in wrong.items():
        db.execute(f"UPDATE tbl SET {column} = ?", (value,))
    db.close()
    async with in_a_file(file) as (_, catalog):
        [found] = (await catalog.read()).damaged
    assert found.parts == expected


async def damage_of_znode(change: dict[str, Any], *, seals: bool = True) -> Damage:
    """Returns the damage of a znode with some other fields."""
    async with session(MemoryBackend()) as s:
        store, _ = await both(s)
        await store.write((), (), (PutTable(TABLE),))
        body, _, seal = (await s.data(PATH) or b"").rpartition(b"\n")
        other = json.dumps(json.loads(body) | change).encode()
        await s.zk.set(PATH, sealed(other) if seals else other + b"\n" + seal, ANY_VERSION)
        _, catalog = await both(s)
        [found] = (await catalog.read()).damaged
    return found


@pytest.mark.parametrize(("wrong", "expected"), [*CASES, ({"options": {"a": 1}}, WHOLE._replace(options=None))])
async def test_a_znode_keeps_what_can_be_read(wrong: dict[str, Any], expected: TableParts) -> None:
    stored = {"table_version" if name == "version" else name: value for name, value in wrong.items()}
    assert (await damage_of_znode(stored)).parts == expected


async def test_a_znode_of_another_checksum_or_of_another_table_keeps_nothing() -> None:
    assert (await damage_of_znode({"kind": 2}, seals=False)).parts == NOTHING
    assert (await damage_of_znode({"name": "u", "kind": "abc"})).parts == NOTHING
    assert (await damage_of_znode({"name": 5})).parts == WHOLE, "its path names it"
