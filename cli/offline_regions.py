"""Judges the regions of a SQLite store that no daemon has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cli.exit_codes import Exit, Failure
from cli.procedure_log import Judged, read_file
from cli.store_claim import claimed
from controller.regions import damaged
from controller.regions.entering import enter
from controller.regions.operator.counts import halted
from controller.regions.operator.report import About, described, report_item
from metadata_store.catalog import sqlite_offline
from metadata_store.records.port import StoreFailed
from state_machines.procedures.record import Record
from state_machines.regions.findings import Held, Scope
from state_machines.regions.model import Regions
from state_machines.regions.report import Judge

if TYPE_CHECKING:
    from controller.regions.operator.report import RegionsReport
    from metadata_store.catalog.rows import Content

ASK: Final = "ask it: 'regent regions report' without --offline; or stop it first"
TABLES_NAMED_MAX: Final = 10
"""Tables that a refusal names."""


def report(path: Path, scope: Scope) -> RegionsReport:
    """Reports on the regions of a store. Raises :class:`Failure`, also where a daemon has the store."""
    if not path.is_file():
        raise Failure(Exit.FAILED, f"{path} is no file", "name the SQLite file: 'regent regions status' shows it")
    with claimed(path, ASK):
        records = _live(read_file(path))
        try:
            content = sqlite_offline.read(path)
        except StoreFailed as error:
            raise Failure(Exit.FAILED, str(error)) from error
    return asyncio.run(_judged(content, records, scope))


def _live(found: Judged) -> dict[int, Record]:
    """Returns the procedures that the next daemon goes on with, by pid."""
    entries = (one for one in found.content.entries if one.place not in found.unusable)
    records = (one.record for one in entries if one.record is not None)
    return {one.pid: one for one in records if not one.state.is_final}


def _refuse_unknown(model: Regions, table: str) -> None:
    if table and table not in model.tables and table not in model.damages.tables:
        names = ", ".join(sorted(model.tables)[:TABLES_NAMED_MAX]) or "none"
        raise Failure(Exit.FAILED, f"table {table!r} does not exist", f"tables of the store: {names}")


async def _judged(content: Content, records: dict[int, Record], scope: Scope) -> RegionsReport:
    known = {(one.name, one.incarnation) for one in content.servers} | set(damaged.members(content.damaged))
    owners = {
        one.id: f"{one.server},{one.incarnation}"
        for one in content.regions
        if one.server and (one.server, one.incarnation) not in known
    }
    model, about = Regions(), About()
    await enter(model, content, 0)
    about.take(records.values())
    _refuse_unknown(model, scope.table)
    held = Held(records.__contains__, about.regions, about.servers, halted=halted(model, records.values()))
    judge = Judge(model, scope._replace(serving=False, owners=owners))
    for _ in judge.of_keys():
        pass
    for _ in judge.of_rest(held):
        pass
    return report_item(judge.found, described(judge.found.listed, about, records.get))
