"""Decides on changes of tables: which state a table must be in, and which regions a crash leaves to assign."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from state_machines.regions.damage import Damage, RowKind
from state_machines.regions.entities import Region, Table
from state_machines.regions.heirs import Range
from state_machines.regions.left_out import in_the_way
from state_machines.regions.model import Regions
from state_machines.regions.states import WANTED, RegionState, ServerState, TableState

T = TableState
OPTIONS_MAX: Final = 100
"""Options of a table."""

ALLOWED: Final[Mapping[TableState, tuple[TableState, ...]]] = {
    T.ENABLING: (T.DISABLED, T.ENABLING, T.CREATING),
    T.DISABLING: (T.ENABLED, T.DISABLING, T.ENABLING, T.CREATING),
    T.DELETING: (T.DISABLED, T.DELETING, T.CREATING, T.TRUNCATING),
    T.TRUNCATING: (T.DISABLED, T.TRUNCATING),
}
"""States that a table must have for a change that begins with a state; the first one is named to operators.

Each state of a table is that of some change that an operator may have ended. The same change, or one that takes it
back, begins from there.
"""


def change_problem(table: str, present: TableState | None, begins: TableState) -> str | None:
    """Returns why a change of a table cannot begin; None where it can. ``present`` None: there is no such table."""
    if present is None:
        return f"table {table!r} does not exist"
    allowed = ALLOWED[begins]
    if present in allowed:
        return None
    return f"table {table!r} is {present.name.lower()}, and must be {allowed[0].name.lower()}"


SETTLED: Final = frozenset({T.ENABLED, T.DISABLED})
"""States of a table that last; a procedure takes it out of each other one."""


def is_stranded(region: Region) -> bool:
    """Checks whether a region of an enabled table is not open, and nothing goes on for it.

    What no server could open is counted by itself, and the crash of a server sees to what that had.
    """
    if region.pid or region.table.state is not T.ENABLED or region.state in (RegionState.OPEN, RegionState.FAILED_OPEN):
        return False
    return region.server is None or region.server.state is ServerState.ONLINE


def awaits_crash(region: Region) -> bool:
    """Checks whether a region waits for the crash of its server: it is stored as open, and nothing serves it."""
    return (
        region.state is RegionState.OPEN and region.server is not None and region.server.state is not ServerState.ONLINE
    )


def partly_made(table: Table) -> str | None:
    """Returns why a table cannot be enabled whose creation ended before all of its regions were stored; else None."""
    if table.regions and not table.regions[-1].end:
        return None
    return f"table {table.name!r} has {len(table.regions)} of its regions, its creation was ended: delete it"


def truncation_problem(table: Table, *, drops_splits: bool) -> str | None:
    """Returns why the regions of a table cannot be replaced by empty ones; None where they can."""
    if partly_made(table) is None or (drops_splits and table.state is T.TRUNCATING):
        return None
    if table.state is T.TRUNCATING:
        return f"table {table.name!r} has {len(table.regions)} of its regions: truncate it to one region, or delete it"
    return partly_made(table)


def modification_problem(table: Table) -> str | None:
    """Returns why the options of a table cannot be changed; None where they can."""
    if table.state in SETTLED:
        return None
    return f"table {table.name!r} is {table.state.name.lower()}, and must be enabled or disabled"


def keys_problem(model: Regions, table: Table, but: int = 0, keys: Sequence[Range] | None = None) -> str | None:
    """Returns why keys of a table that no region has cannot get one; None where they can.

    ``but``: id of a region whose own row is no obstacle, because it is replaced. ``keys``: these alone, else all.
    """
    if table.state not in SETTLED:
        return f"table {table.name!r} is {table.state.name.lower()}, and must be enabled or disabled"
    if left_out := in_the_way(model, table, keys, but):
        return f"table {table.name!r} may have a region for its keys: {left_out}"
    if (process := unnamed_process(model)) is not None:
        return f"a process whose row cannot be read may serve keys of table {table.name!r}: {process}"
    return None


PROCESS_MEND: Final = (
    "restore its row from a copy of the store, with the daemon stopped; where none has it, end the process, and "
    "'regent regions remove-row PLACE' removes the row, with its place for PLACE"
)
"""What lets keys have a region that :func:`keys_problem` refuses because of a process."""


_PROCESS: Final = re.compile(".+,[1-9][0-9]*")
"""How a process is named; one whose row is damaged, and names it still, counts as a member."""


def is_process(name: str) -> bool:
    """Checks whether the row of a process that is left out names it still."""
    return _PROCESS.fullmatch(name) is not None


def unnamed_process(model: Regions) -> Damage | None:
    """Returns the row of a process that it does not name, so that nothing fences that one; None without one."""
    rows = (one for one in model.damages.rows if one.kind is RowKind.SERVER)
    return next((one for one in rows if not is_process(one.name)), None)


def options_after(options: Mapping[str, str], changed: Mapping[str, str], removed: Iterable[str]) -> dict[str, str]:
    """Returns the options of a table after a change of some and the removal of others."""
    gone = frozenset(removed)
    return {name: value for name, value in {**options, **changed}.items() if name not in gone}


def too_many(table: str, options: Mapping[str, str]) -> str | None:
    """Returns why a table cannot have so many options; None where it can."""
    if len(options) <= OPTIONS_MAX:
        return None
    return f"table {table!r} would have {len(options)} options, at most {OPTIONS_MAX} are possible"


def is_outdated(region: Region) -> bool:
    """Checks whether a region was opened with options that its table had before, and is still open with these.

    One of a fenced server is open nowhere. Its crash opens it with the present options, maybe after the change itself:
    its batch may wait for a lock of the table behind a request that waits for the end of the change.
    """
    return region.state is RegionState.OPEN and region.version < region.table.version and not _is_fenced(region)


def _is_fenced(region: Region) -> bool:
    return region.server is not None and region.server.state is ServerState.FENCED


def may_be_outdated(region: Region) -> bool:
    """Checks whether a server may be opening a region with options that its table had before.

    One for which nothing goes on waits for an operator, and is opened with the present options then.
    """
    opens = region.state is RegionState.OPENING and region.server is not None and not is_stranded(region)
    return opens and region.version < region.table.version and not _is_fenced(region)


def to_reopen(regions: Sequence[Region], first: int, together: int, of_server: int) -> tuple[list[Region], int]:
    """Returns regions to open again, of those from position ``first`` on, and the position behind the last one.

    At most ``together`` of them, and ``of_server`` of one server. Those that a procedure moves, or whose server has
    crashed, are opened anew without this, and left out.
    """
    found: list[Region] = []
    counts: Counter[tuple[str, int]] = Counter()
    for at in range(first, len(regions) if together else first):
        one = regions[at]
        if not is_outdated(one) or one.pid or one.server is None or one.server.state is not ServerState.ONLINE:
            continue
        if counts[one.server.key] >= of_server:
            continue
        counts[one.server.key] += 1
        found.append(one)
        if len(found) >= together:
            return found, at + 1
    return found, len(regions)


def abandoned(regions: Iterable[Region]) -> tuple[list[Region], list[list[Region]]]:
    """Sorts the regions that a crash leaves: those that stay closed, and by table those to assign.

    Regions that a procedure moves are its own to see to. Of the others only those of the first class of tables come
    now: user tables wait for system tables, and these for the catalog's.
    """
    free = [one for one in regions if not one.pid]
    closed = [one for one in free if one.table.state not in WANTED]
    wanted = [one for one in free if one.table.state in WANTED]
    if not wanted:
        return closed, []
    first = min(one.table.kind for one in wanted)
    some = sorted((one for one in wanted if one.table.kind is first), key=lambda one: (one.table.name, one.start))
    return closed, [list(group) for _, group in groupby(some, key=lambda one: one.table.name)]
