"""Decides on repairs of rows that cannot be read, and that no id of a region names: which go, which are stored again.

A row goes only where no other command mends it. That of a process which it does not name keeps keys from being given
away, so it goes only once that process cannot serve any more.
"""

from __future__ import annotations

from typing import Final

from state_machines.regions.changes import is_process
from state_machines.regions.damage import CLOSED, LEASE_PLACE, NO_TABLE, Damage, RowKind
from state_machines.regions.findings import COPY, Refusal, row_mend
from state_machines.regions.layout import name_problem
from state_machines.regions.model import Regions
from state_machines.regions.table_rows import AdoptedRow, Stored, changes_of

STORED: Final = "its row is stored: restart the daemon"
"""Mend of what a repair has stored: the next term reads it."""
ACL: Final = "repair its ACL, then restart the daemon"


def mend_of(damage: Damage, stored: Stored | None = None) -> str:
    """Returns what mends a row that is left out. ``stored``: what repairs of this term have stored."""
    if stored is not None and _is_stored(damage, stored):
        return STORED
    if damage.why.startswith(CLOSED):
        return ACL
    other = other_mend(damage)
    if not other:
        return f"{COPY}'regent regions remove-row {place_word(damage.place)}' removes it"
    return f"{COPY}{other}" if damage.kind in _LOST else other


def _is_stored(damage: Damage, stored: Stored) -> bool:
    """Checks whether the row that a damage is about, or for whose lack it is one, was stored in this term."""
    if damage.kind is RowKind.TABLE:
        return stored.table(damage.name) is not None
    if damage.kind is not RowKind.REGION:
        return False
    return damage.name in stored.servers or (damage.why == NO_TABLE and stored.table(damage.table) is not None)


def place_word(place: str) -> str:
    """Returns a place as a word of a command that stands in single quotes: paths of ZooKeeper are one as they are."""
    return f'"{place}"' if " " in place else place


_LOST: Final = frozenset({RowKind.HEIR, RowKind.PARENT, RowKind.TABLE, RowKind.BURIED})
"""Kinds of rows of which a command gives back a part alone."""


def other_mend(damage: Damage) -> str:
    """Returns the command that mends a row that is left out by what it is about; empty where none does."""
    name = damage.name
    match damage.kind:
        case RowKind.SNAPSHOT | RowKind.SNAPSHOT_PART if name:
            return f"'regent snapshots delete {name.rpartition(' ')[2]}' removes what is left of it"
        case RowKind.REGION if damage.why == NO_TABLE and name_problem(damage.table) is None:
            other = f"'regent regions adopt {damage.region} --table TABLE' stores it again as one of another table"
            forget = f"'regent regions forget {damage.region}' removes the row"
            return f"{COPY}{_table_mend(damage.table)}; {other}; {forget}"
        case RowKind.REGION if name:
            return f"'regent servers recover {name}', then restart the daemon: it deals with that process"
        case RowKind.REGION if damage.region:
            return row_mend(damage.region, damage.table)
        case RowKind.HEIR | RowKind.PARENT if damage.region:
            return f"'regent regions forget {damage.region}' removes the row"
        case RowKind.PUBLISHED if name:
            return f"'regent published put {name} VALUE' stores it anew"
        case RowKind.TABLE if name and name_problem(name) is None:
            return _table_mend(name)
        case RowKind.SERVER if is_process(name):
            expire = f"'regent servers expire {name}' removes it with its process"
            return f"the process stores it anew as it registers; else {expire}"
        case RowKind.BURIED if name:
            return f"'regent servers forget {name}' removes it: each process with this name may register again"
        case RowKind.MARK if damage.place == LEASE_PLACE:
            return "restart the daemon: it has stored it anew"
        case _:
            return ""


def _table_mend(table: str) -> str:
    return f"'regent tables adopt {table}' stores the row of the table again"


def removal_problem(
    model: Regions, damage: Damage | None, place: str, lease_left_s: float | None, *, is_ended: bool = False
) -> Refusal | None:
    """Returns why the row at a place is not removed; None where it is.

    ``lease_left_s``: until no process serves that has not come since the term began; None where no time tells that,
    because servers are not fenced by their lease. ``is_ended``: an operator says that the process has ended.
    """
    if damage is None:
        what = f"no row at {place!r} is left out"
        return Refusal(what, "'regent regions report --kind damaged' names the place of each")
    if damage.why.startswith(CLOSED):
        return Refusal(f"the row is closed to this daemon ({damage})", ACL)
    if other := other_mend(damage):
        return Refusal(f"what the row is about is known ({damage})", other)
    if damage.kind is not RowKind.SERVER:
        return None
    return _process_problem(model, damage, 0.0 if is_ended else lease_left_s)


def _process_problem(model: Regions, damage: Damage, lease_left_s: float | None) -> Refusal | None:
    """Returns why the row of a process stays that does not name it."""
    if model.strangers:
        name, incarnation = min(model.strangers)
        what = f"regions that are left out may be open at that process, such as those of {name},{incarnation}"
        return Refusal(what, f"'regent servers recover {name},{incarnation}' comes first, then restart the daemon")
    what = f"the process of that row may serve still ({damage})"
    if lease_left_s is None:
        return Refusal(what, "end that process, and repeat it with --ended: servers here go on without a lease")
    if lease_left_s > 0:
        return Refusal(what, f"repeat it in {lease_left_s:.0f} s: until then each process has come, or has stopped")
    return None


def readoption_problem(model: Regions, table: str, row: AdoptedRow) -> Refusal | None:
    """Returns why the row of a table is not stored again; None where it is, or was with the same values."""
    if (stored := model.damages.stored.table(table)) is not None:
        pid, before = stored
        what = f"the row of table {table!r} is stored by procedure {pid}, with {before}"
        return None if row.same(before) else Refusal(what, changes_of(table, before, row))
    if table in model.tables:
        return Refusal(f"table {table!r} is there", f"see 'regent tables describe {table}'")
    if table not in model.damages.tables:
        what = f"no row of a table {table!r}, or of its regions, is left out"
        return Refusal(what, f"'regent tables create {table}' makes a new one")
    own = (one for one in model.damages.rows if one.kind is RowKind.TABLE and one.name == table)
    if (closed := next((one for one in own if one.why.startswith(CLOSED)), None)) is not None:
        return Refusal(f"the row is closed to this daemon ({closed})", ACL)
    return None
