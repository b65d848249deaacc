"""Names what mends keys of a table that no region has: rows that are left out and may have them, else other ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from state_machines.regions.changes import PROCESS_MEND, unnamed_process
from state_machines.regions.damage import CLOSED, NO_TABLE, Damage, Gap, RowKind
from state_machines.regions.entities import Table
from state_machines.regions.findings import COPY, RESTORE
from state_machines.regions.heirs import Range
from state_machines.regions.layout import key_word, name_problem
from state_machines.regions.left_out import LeftOut, in_the_way, obstacle
from state_machines.regions.model import Regions
from state_machines.regions.states import TableState
from state_machines.regions.unusable import ACL, place_word

HAD_NAMED: Final = 3
"""Regions that the mend of a hole names."""
ROWS_NAMED: Final = 3
"""Rows that are left out which a hole names; tables that may be one under another name."""


def cause_and_mend(
    model: Regions, table: Table, gap: Gap, left_out: LeftOut, had: Mapping[int, str]
) -> tuple[str, str]:
    """Returns why no region has some keys, as far as rows tell it, and what mends that.

    ``had``: regions without a row that processes have listed: one of them may have the keys.
    """
    keys = gap.start, gap.end
    rows = left_out.of(keys)
    cause = "; ".join(map(str, rows[:ROWS_NAMED])) + _more(rows)
    if rows:
        mend = rows_mend(table.name, rows)
    elif way := in_the_way(model, table, [keys]):
        cause, mend = _kept_back(model, table.name, keys, way, had)
    else:
        mend = hole_mend(table.name, had) if unnamed_process(model) is None else PROCESS_MEND
    if table.state is TableState.DISABLED and not gap.end:
        mend = f"where its creation was ended, 'regent tables delete {table.name}'; else {mend}"
    return cause, mend if table.regions else f"{mend}{_renamed(model, table.name)}"


def _kept_back(model: Regions, table: str, keys: Range, way: str, had: Mapping[int, str]) -> tuple[str, str]:
    """Returns the cause and the mend of keys that a row keeps from being given away which no hole names."""
    one = obstacle(model.damages, table, [keys])
    if one is None or (one.table and not one.region):
        return way, RESTORE
    if not one.table:
        return "", f"{hole_mend(table, had)}; both once each row is mended that does not tell its table"
    bounds = f"--start {key_word(keys[0])} --end {key_word(keys[1])}"
    adopt = f"'regent regions adopt {one.region} --table {table} {bounds}' stores it with these of its keys alone"
    return way, f"{COPY}{adopt}, or 'regent regions forget {one.region}' removes its row"


def hole_mend(table: str, had: Mapping[int, str]) -> str:
    """Returns the mend of keys that no region has, nor a row that is left out.

    What was there is in a copy of the store, or at the service below the id of its region.
    """
    empty = f"'regent tables fix-keys {table}' gives the keys to an empty region"
    named = ", ".join(f"{process} had region {id_}" for id_, process in islice(had.items(), HAD_NAMED))
    more = f" and {len(had) - HAD_NAMED:,} more" if len(had) > HAD_NAMED else ""
    known = f" ({named}{more}, without a row)" if had else ""
    adopt = f"'regent regions adopt ID --table {table}' stores a region again whose id you know{known}"
    return f"{COPY}{adopt}; else {empty}"


def rows_mend(table: str, rows: Sequence[Damage]) -> str:
    """Returns the mend of keys that rows have which are left out: first those that a process keeps from their use."""
    some = rows[:ROWS_NAMED]
    served = dict.fromkeys(_served(one) for one in some if _is_kept(one))
    others = [_stored_again(one, table) for one in some if not _is_kept(one)]
    copied = [f"{COPY}{'; '.join(others)}"] if others else []
    return f"{'; '.join([*served, *copied])}{_more(rows)}"


def _more(rows: Sequence[Damage]) -> str:
    return f"; and {len(rows) - ROWS_NAMED:,} more rows" if len(rows) > ROWS_NAMED else ""


def _is_kept(damage: Damage) -> bool:
    """Checks whether a row is sound as far as it can be seen, and left out for another reason."""
    return bool(damage.name) or damage.why.startswith(CLOSED)


def _served(damage: Damage) -> str:
    if damage.why.startswith(CLOSED):
        return f"{damage.place}: {ACL}"
    return f"'regent servers recover {damage.name}', then restart the daemon, which has region {damage.region} again"


def _stored_again(damage: Damage, table: str) -> str:
    if not damage.region:
        remove = f"'regent regions remove-row {place_word(damage.place)}' removes a row without an id"
        return f"{remove}; then 'regent regions adopt ID --table {table}' stores its region, where you know the id"
    where = "" if damage.table else f", where it was one of table {table}: its row does not tell that"
    adopt = f"'regent regions adopt {damage.region} --table {table}' stores region {damage.region} again{where}"
    return f"{adopt}, or 'regent regions forget {damage.region}' removes its row"


# -- a table under another name


def _renamed(model: Regions, table: str) -> str:
    """Returns the mend of a table whose row may be that of another one under a wrong name; empty where none is lost."""
    return "".join(f"; {_under_its_name(table, one)}" for one in islice(_nameless(model), ROWS_NAMED))


def _nameless(model: Regions) -> Iterator[str]:
    """Yields the tables of which regions are left there, and no row."""
    rows = (one for one in model.damages.rows if one.kind is RowKind.REGION and one.why == NO_TABLE)
    return (one for one in dict.fromkeys(row.table for row in rows) if name_problem(one) is None)


def _under_its_name(table: str, other: str) -> str:
    what = f"where the row of table {table} is that of {other} under a wrong name"
    adopt = f"'regent tables adopt {other}' with its options, and a restart of the daemon, give its regions back"
    gone = f"then 'regent tables disable {table}' and 'regent tables delete {table}' remove the other name"
    return f"{what}, {adopt}; {gone}"
