"""Describes what a term found stored that it cannot use, and the keys of tables for which no answer is safe."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Final, NamedTuple

from state_machines.regions.table_rows import NOTHING, Stored, TableParts

VALUE_CHARS_MAX: Final = 80
"""Characters of a value that a sentence shows."""
DAMAGES_MAX: Final = 10_000
"""Damaged rows that are described; the rest is counted, and left out in the same way."""

TOGETHER: Final = 2_000
"""Gaps that one part settles."""
NUMBERED: Final = "row "
"""Begin of the place of a row in a file."""
CLOSED: Final = "it cannot be read: "
"""Begin of the fault of a row that the store does not show to this daemon: it may not replace it either."""

NO_TABLE: Final = "no table has this name"
"""Fault of the row of a region whose table has no row."""
LEASE_PLACE: Final = "lease and fence of servers"
"""Place of the stored lease and fence, where these mean nothing to this daemon: it stores its own as it begins."""


class RowKind(StrEnum):
    """Kinds of stored rows."""

    NAMESPACE = "namespace"
    TABLE = "table"
    REGION = "region"
    SERVER = "server"
    BURIED = "buried"
    MARK = "mark"
    HEIR = "heir"
    """What a region refers to."""
    PARENT = "parent"
    SNAPSHOT = "snapshot"
    SNAPSHOT_PART = "part of a snapshot"
    PUBLISHED = "published value"


class Damage(NamedTuple):
    """A stored row that cannot be used as it is. ``name``: of what it is about, as far as that can be read.

    ``place``: where it is stored; ``table``, ``region``, ``start``, ``end``: of a region, as far as they can be read.
    ``parts``: what the row of a table still holds.
    """

    kind: RowKind
    place: str
    field: str
    value: str
    why: str
    name: str = ""
    table: str = ""
    region: int = 0
    start: bytes | None = None
    end: bytes | None = None
    parts: TableParts = NOTHING

    def __str__(self) -> str:
        value = f" is {self.value}" if self.value else ""
        return f"{self.place}{self._subject()}: {self.field}{value}: {self.why}"

    def _subject(self) -> str:
        """Returns what a row is about whose place is a number alone, as far as that can be read."""
        if not self.place.startswith(NUMBERED):
            return ""
        if self.kind is RowKind.REGION:
            return f" (table {self.table})" if self.table else ""
        return f" ({self.kind} {self.name})" if self.name else ""


OF_REGIONS: Final = frozenset({RowKind.REGION, RowKind.HEIR, RowKind.PARENT})
"""Kinds of rows that an id of a region names."""


def _snapshot_of(damage: Damage) -> str:
    """Returns the name of the snapshot that a row is about; empty where it is about none, or that cannot be read."""
    if damage.kind is RowKind.SNAPSHOT_PART:
        return damage.name.rpartition(" ")[2]  # its name is "NUMBER of NAME"
    return damage.name if damage.kind is RowKind.SNAPSHOT else ""


class Gap(NamedTuple):
    """Keys of a table that no region has, or that several have. ``regions``: those beside it, or those that overlap."""

    table: str
    start: bytes
    end: bytes
    overlap: bool
    regions: tuple[int, ...]

    def __str__(self) -> str:
        what = f"regions {list(self.regions)} overlap" if self.overlap else "no region has the keys"
        return f"table {self.table}: {what} from {shown(self.start)} to {shown(self.end) if self.end else 'the end'}"

    def has(self, key: bytes) -> bool:
        """Checks whether a key is in it."""
        return self.start <= key and (not self.end or key < self.end)


def shown(value: object) -> str:
    """Returns a value for a sentence."""
    text = repr(value)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}..."


class Damages:
    """All that a term left out. ``regions``: ids of all regions left out; ``tables``: names whose rows they hold.

    ``overlapping``: regions in use that share keys with others.
    """

    def __init__(self) -> None:
        self.rows: list[Damage] = []
        self.count: Counter[RowKind] = Counter()
        self.sound = 0
        """Regions among them that are sound, and whose table is left out."""
        self.regions: set[int] = set()
        self.tables: dict[str, str] = {}
        self.namespaces: set[str] = set()
        self.overlapping: set[int] = set()
        self.stored = Stored()
        self._sound_of: Counter[str] = Counter()
        self._gaps: dict[str, list[Gap]] = {}
        self._former: dict[str, list[Gap]] = {}
        """Gaps that tables had, and whose regions are not settled yet."""

    def add(self, damage: Damage) -> None:
        """Notes a row that is left out."""
        self.count[damage.kind] += 1
        if len(self.rows) < DAMAGES_MAX:
            self.rows.append(damage)
        if damage.kind is RowKind.REGION and damage.region:
            self.regions.add(damage.region)
        if damage.kind is RowKind.NAMESPACE and damage.name:
            self.namespaces.add(damage.name)
        if name := damage.table or (damage.name if damage.kind is RowKind.TABLE else ""):
            self.tables.setdefault(name, str(damage))

    def leave_out(self, region: int, table: str) -> None:
        """Notes a sound region of a table that is left out."""
        self.regions.add(region)
        self.sound += 1
        self._sound_of[table] += 1
        self.count[RowKind.REGION] += 1
        self.tables.setdefault(table, "")

    def add_gap(self, gap: Gap) -> None:
        """Notes keys for which no answer is safe; those of a table come in the order of their keys."""
        self._gaps.setdefault(gap.table, []).append(gap)
        if gap.overlap:
            self.overlapping.update(gap.regions)

    @property
    def gaps(self) -> Sequence[Gap]:
        """Returns all gaps, by table and key."""
        return [one for _, some in sorted(self._gaps.items()) for one in some]

    def of_keys(self, table: str) -> Sequence[Gap]:
        """Returns the gaps of one table, by key."""
        return self._gaps.get(table, ())

    def gap_at(self, table: str, key: bytes) -> Gap | None:
        """Returns what keeps a key from having one region; None where nothing does."""
        found = self._gaps.get(table)
        if found is None:
            return None
        before = found[: bisect_right(found, key, key=attrgetter("start"))]
        return next((one for one in reversed(before) if one.has(key)), None)

    def of_table(self, table: str) -> str:
        """Returns why a table, or a part of it, is left out; empty where nothing is."""
        if table not in self.tables:
            return ""
        return self.tables[table] or f"the row of table {table} is damaged"

    def of_rows(self, table: str, but: int = 0) -> str:
        """Returns why the rows of a table cannot be removed: some that may be its own are left out.

        ``but``: id of a region whose own row does not count.
        """
        if why := self._besides(table, but) if but else self.of_table(table):
            return why
        nameless = (one for one in self.rows if one.kind is RowKind.REGION and not one.table)
        found = next((one for one in nameless if not but or one.region != but), None)
        return f"its keys have a gap, and {found} may be there" if found and self._gaps.get(table) else ""

    def _besides(self, table: str, region: int) -> str:
        """Returns why a table, or a part of it, is left out, besides a region; rows that are not described count."""
        if table not in self.tables or self.untold:
            return self.of_table(table)
        found = next((str(one) for one in self._of(table) if one.region != region), "")
        return found or (f"the row of table {table} is damaged" if self._sound_of[table] else "")

    def _of(self, table: str) -> Iterator[Damage]:
        return (one for one in self.rows if table == (one.name if one.kind is RowKind.TABLE else one.table))

    @property
    def untold(self) -> int:
        """Returns how many damaged rows are not described."""
        return self.count.total() - self.sound - len(self.rows)

    def parts_of_table(self, table: str) -> TableParts:
        """Returns what the damaged row of a table still holds."""
        return next((one.parts for one in self.rows if one.kind is RowKind.TABLE and one.name == table), NOTHING)

    def of_id(self, region: int) -> list[Damage]:
        """Returns the damaged rows that an id of a region names: its own, what it refers to, and those of a parent."""
        return [one for one in self.rows if one.region == region and one.kind in OF_REGIONS]

    def left_out_of(self, table: str) -> int:
        """Returns how many regions are left out of a table, as far as they are described."""
        damaged = sum(one.kind is RowKind.REGION and one.table == table for one in self.rows)
        return self._sound_of[table] + damaged

    def of_region(self, region: int) -> str:
        """Returns why a region is left out; empty where it is not."""
        if region not in self.regions:
            return ""
        own = next((str(one) for one in self.rows if one.region == region and one.kind is RowKind.REGION), "")
        return own or "its table is left out"

    def sound_of(self, table: str) -> int:
        """Returns how many sound regions are left out with their table."""
        return self._sound_of[table]

    def of_snapshot(self, snapshot: str) -> str:
        """Returns why a snapshot, or a part of it, is left out; empty where nothing of it is."""
        return next((str(one) for one in self.rows if _snapshot_of(one) == snapshot), "")

    def parts_of(self, snapshot: str) -> set[int]:
        """Returns the numbers of the parts of a snapshot that are left out, as far as they can be read."""
        mine = (one for one in self.rows if one.kind is RowKind.SNAPSHOT_PART and _snapshot_of(one) == snapshot)
        numbers = (one.name.partition(" ")[0] for one in mine)
        return {int(one) for one in numbers if one.isascii() and one.isdecimal()}

    def drop_snapshot(self, snapshot: str) -> None:
        """Forgets the damage of a snapshot whose rows are gone."""
        self._drop([one for one in self.rows if _snapshot_of(one) == snapshot])

    def drop_named(self, kind: RowKind, name: str) -> None:
        """Forgets the damage of the row of a name, of one kind: it is stored anew, or gone."""
        self._drop([one for one in self.rows if one.kind is kind and one.name == name])

    def at(self, place: str) -> Damage | None:
        """Returns the damage of the row at a place; None without one."""
        return next((one for one in self.rows if one.place == place), None)

    def drop_row(self, damage: Damage) -> None:
        """Forgets the damage of a row that no id names, and that is gone."""
        self._drop([damage])
        self.namespaces.discard(damage.name if damage.kind is RowKind.NAMESPACE else "")
        self._settle({damage.table} - {""})

    def _drop(self, gone: Sequence[Damage]) -> None:
        for one in gone:
            self.rows.remove(one)
            self.count[one.kind] -= 1
        self.count = +self.count

    def drop_table(self, table: str) -> None:
        """Forgets the gaps of a table that is gone."""
        for gap in (*self._gaps.pop(table, ()), *self._former.pop(table, ())):
            self.overlapping.difference_update(gap.regions)

    def drop_region(self, region: int) -> None:
        """Forgets the damage of the rows that an id of a region names: they are gone, or stored anew."""
        gone = self.of_id(region)
        self._drop(gone)
        self.regions.discard(region)
        self._settle({one.table for one in gone if one.table})

    def _settle(self, tables: set[str]) -> None:
        """Finds out whether rows of tables are left out still."""
        for table in tables:
            found = next((str(one) for one in self._of(table)), "")
            if found or self._sound_of[table] or self.untold:
                self.tables[table] = found
            else:
                del self.tables[table]

    def put_gaps(self, table: str, gaps: list[Gap]) -> None:
        """Enters the gaps that a table has by now, by key. Regions of those before overlap until :meth:`settled`."""
        before = self._gaps.pop(table, [])
        self._former[table] = [*former, *before] if (former := self._former.get(table)) else before
        self._gaps[table] = gaps

    def settled(self, table: str) -> Iterator[list[int]]:
        """Yields regions of a table that share keys with others no more, some at a time: there may be a million."""
        former, kept = self._former.get(table, []), set[int]()
        for at in range(0, len(self._gaps.get(table, ())), TOGETHER):
            kept.update(_overlapping(self._gaps[table][at : at + TOGETHER]))
            yield []
        while former:
            gone = set(_overlapping(former[-TOGETHER:])) - kept
            del former[-TOGETHER:]
            self.overlapping -= gone
            yield sorted(gone)
        self._former.pop(table, None)

    def drop_keys(self, table: str, start: bytes, end: bytes, region: int) -> None:
        """Forgets that no region has some keys: ``region`` has them by now. They are a hole, or a part of one."""
        if table in self._gaps:
            found = self._gaps[table]
            self._gaps[table] = [left for one in found for left in _without(one, start, end, region)]


def _overlapping(gaps: Sequence[Gap]) -> Iterator[int]:
    """Yields the regions that share keys with others."""
    return (one for gap in gaps if gap.overlap for one in gap.regions)


def _without(gap: Gap, start: bytes, end: bytes, region: int) -> Iterator[Gap]:
    """Yields what is left of a gap once a region has some keys."""
    if gap.overlap or (end and end <= gap.start) or (gap.end and gap.end <= start):
        yield gap
        return
    if gap.start < start:
        yield gap._replace(end=start, regions=(*gap.regions[:-1], region))
    if end and (not gap.end or end < gap.end):
        yield gap._replace(start=end, regions=(region, *gap.regions[1:]))
