"""Decides what must be kept because regions begin as the data of others, of a table or of a snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final

from state_machines.regions.changes import partly_made
from state_machines.regions.damage import RowKind
from state_machines.regions.entities import Table
from state_machines.regions.findings import RESTORE, Refusal
from state_machines.regions.layout import key_text
from state_machines.regions.model import Regions
from state_machines.regions.shapes import Snapshot, Source, name_in, pid_in
from state_machines.regions.states import TableState
from state_machines.regions.unusable import mend_of

SNAPSHOTS_MAX: Final = 1_000
"""Snapshots of a domain."""
LISTED_MAX: Final = 1_000_000
"""Regions that all snapshots together list."""
T = TableState


def heirs_of_table(model: Regions, table: Table) -> Iterator[int]:
    """Yields regions of other tables whose data begins as that of regions of a table."""
    for heir, sources in model.sources.items():
        region = model.regions.get(heir)
        if region is not None and region.table is table:
            continue
        if any(not one.snapshot and _is_of(model, one.region, table) for one in sources):
            yield heir


def _is_of(model: Regions, region: int, table: Table) -> bool:
    found = model.regions.get(region)
    return found is not None and found.table is table


def heirs_of_snapshot(model: Regions, name: str) -> Iterator[int]:
    """Yields regions whose data begins as that of a snapshot."""
    return (heir for heir, sources in model.sources.items() if any(name_in(one.snapshot) == name for one in sources))


def needed_snapshots(model: Regions) -> Counter[str]:
    """Counts the regions whose data begins as that of each snapshot, by its name."""
    return Counter(chain.from_iterable({name_in(one.snapshot) for one in some} for some in model.sources.values()))


def needed_by(model: Regions, table: Table) -> str | None:
    """Returns why the data of a table must stay as it is; None where no other table needs it."""
    found = _needed(model, f"table {table.name!r}", heirs_of_table(model, table))
    return None if found is None else str(found)


def snapshot_needed_by(model: Regions, name: str) -> Refusal | None:
    """Returns why a snapshot cannot be deleted; None where no region needs it."""
    return _needed(model, f"snapshot {name!r}", heirs_of_snapshot(model, name))


def _needed(model: Regions, what: str, heirs: Iterator[int]) -> Refusal | None:
    """Names what needs data. What a damaged row of a heir refers to is not known: it may be any data."""
    first = next(heirs, None)
    if first is None:
        if model.damages.count[RowKind.HEIR]:
            return Refusal(f"{what} may be needed by a region that is left out", _heirs_mend(model))
        return None
    more = sum(1 for _ in heirs)
    others = f" and {more} more" if more else ""
    table = model.regions[first].table.name if first in model.regions else "a table"
    return Refusal(
        f"{what} is needed by region #{first} of {table}{others}",
        f"wait until their servers have said that they are independent, or delete table {table}",
    )


def _heirs_mend(model: Regions) -> str:
    """Returns what mends the damaged rows of heirs: the command for the first one, and how many more there are."""
    first = next((one for one in model.damages.rows if one.kind is RowKind.HEIR), None)
    if first is None:
        return RESTORE
    more = model.damages.count[RowKind.HEIR] - 1
    others = f", and so for {more} more of 'regent regions report --kind damaged'" if more else ""
    return f"{mend_of(first)} ({first.place}){others}"


def dependent(table: Table, model: Regions) -> str | None:
    """Returns why a table is no source of data: a region of it needs others still; None where none does."""
    if not model.sources:
        return None
    found = [one for one in table.regions if one.id in model.sources]
    if not found:
        return None
    of = ", ".join(f"#{one.region}" for one in model.sources[found[0].id])
    count = f"{len(found)} regions of table {table.name!r} are" if len(found) > 1 else f"region {found[0]} is"
    return (
        f"{count} not yet independent, #{found[0].id} not of {of}: wait until their servers have copied what they need"
    )


def snapshot_problem(model: Regions, name: str, table: Table) -> str | None:
    """Returns why no snapshot of a table can be made with this name; None where one can."""
    if name in model.snapshots:
        return f"snapshot {name!r} exists already, of table {model.snapshots[name].row.table!r}: give another name"
    if why := model.damages.of_snapshot(name):
        return f"snapshot {name!r} is left out ({why}): give another name, or delete it"
    if table.state is not T.ENABLED:
        return f"table {table.name!r} is {table.state.name.lower()}, and must be enabled"
    if len(model.snapshots) >= SNAPSHOTS_MAX:
        return f"there are {len(model.snapshots)} snapshots, which is the most: delete some"
    listed = sum(one.row.regions for one in model.snapshots.values())
    if listed + len(table.regions) > LISTED_MAX:
        return (
            f"snapshots list {listed:,} regions, and at most {LISTED_MAX:,} with those of {table.name!r}: delete some"
        )
    return dependent(table, model)


def keys_lost(model: Regions, table: str) -> str | None:
    """Returns why a copy of a table would not have all of its keys once; None where it would."""
    if not (gaps := model.damages.of_keys(table)):
        found = model.tables.get(table)
        return None if found is None else partly_made(found)
    keys = f"from {key_text(gaps[0].start) or 'the first key'} on, have {'several' if gaps[0].overlap else 'no'} region"
    plural = "s" if gaps[0].overlap else ""
    return f"keys of table {table!r}, {keys}{plural}: 'regent regions report --table {table}' names what mends that"


def source_problem(model: Regions, table: Table) -> str | None:
    """Returns why the data of a table cannot be cloned; None where it can."""
    if table.state is not T.DISABLED:
        state = table.state.name.lower()
        return f"table {table.name!r} is {state}, and must be disabled, or be cloned from a snapshot of it"
    if not table.regions or table.regions[-1].end:
        return f"table {table.name!r} has only some of its regions: it was not created whole"
    waits = next((one for one in table.regions if one.token and not one.clean), None)
    if waits is not None:
        return (
            f"region {waits} was not closed by its server, so edits may wait beside its data: enable table "
            f"{table.name!r}, and disable it again"
        )
    return dependent(table, model)


def of_snapshot(snapshot: Snapshot, first: int = 0) -> Iterator[Source]:
    """Yields the regions of a snapshot as sources, from a position on."""
    identity = snapshot.identity
    return (one._replace(snapshot=identity) for one in islice(chain.from_iterable(snapshot.parts), first, None))


def bounded(source: Source) -> Source:
    """Returns a source as a server gets it: with a sequence number that its data has at least.

    A region that was opened after a snapshot began may have been copied before that: the number of that open is no
    bound of what the copy has. Tokens and the pid of the snapshot grow by one counter.
    """
    pid = pid_in(source.snapshot)
    return source._replace(sequence=0) if pid and source.token > pid else source


def of_table(table: Table, first: int = 0, last: int | None = None) -> Sequence[Source]:
    """Returns regions of a table as sources, from a position on."""
    return [Source(one.id, one.start, one.end, one.token, one.sequence) for one in table.regions[first:last]]
