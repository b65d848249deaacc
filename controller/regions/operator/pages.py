"""Pages through regions and tables of a model, without I/O and bounded in rows per call."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from controller.http.errors import Invalid
from controller.regions.environment import RegionsEnv
from controller.regions.http.models import Region as RegionItem
from controller.regions.http.models import Table as TableItem
from controller.regions.http.ports import RegionPage, RegionQuery, TablePage
from controller.regions.operator.access import server_of, table_of
from controller.regions.operator.counts import of_tables
from controller.regions.operator.items import WAITING, region_item, table_item
from state_machines.regions.changes import awaits_crash, is_stranded
from state_machines.regions.damage import Gap
from state_machines.regions.layout import key_text
from state_machines.regions.model import Region, Regions, start_of
from state_machines.regions.states import RegionState

SCANNED_ROWS_MAX: Final = 20_000
"""Regions that one page scans at most, even where few of them match."""

Place = tuple[str, bytes]
"""Table and start key, by which regions are listed."""


def region_page(env: RegionsEnv, query: RegionQuery) -> RegionPage:
    """Returns a page of regions by table and start key. ``next`` names the last region that was scanned."""
    matches = _in_state(query.state)
    items: list[RegionItem] = []
    last: Region | None = None
    whole = query.state is None and query.server is None and not (query.in_transition or query.stranded)
    gaps = _Gaps(env.model, _place(env.model, query.after), query.table) if whole and env.model.damages.gaps else None
    for scanned, region in enumerate(_after(env.model, query)):
        if len(items) >= query.limit or scanned >= SCANNED_ROWS_MAX:
            return RegionPage(items, f"{last.id}:{last.table.name}" if last is not None else None)
        if gaps is not None:
            items += map(_gap_item, gaps.before(region))
        last = region
        if matches(region) and (not query.stranded or is_stranded(region)):
            items.append(region_item(region, env))
    if gaps is not None:
        items += map(_gap_item, gaps.rest())
    return RegionPage(items, None)


class _Gaps:
    """Gaps in the keys of tables, in the order of the regions between which they are. ``table``: of it alone."""

    def __init__(self, model: Regions, place: Place | None, table: str | None) -> None:
        found = [one for one in model.damages.gaps if table is None or one.table == table]
        self._left = deque(one for one in found if place is None or (one.table, one.start) > place)

    def before(self, region: Region) -> Iterator[Gap]:
        """Yields those that begin before a region, or with it."""
        while self._left and (self._left[0].table, self._left[0].start) <= _place_of(region):
            yield self._left.popleft()

    def rest(self) -> Iterator[Gap]:
        """Yields those behind the last region."""
        while self._left:
            yield self._left.popleft()


def _gap_item(gap: Gap) -> RegionItem:
    state = "OVERLAP" if gap.overlap else "HOLE"
    return RegionItem(id=0, table=gap.table, start=key_text(gap.start), end=key_text(gap.end), state=state)


def _in_state(named: str | None) -> Callable[[Region], bool]:
    """Returns a check for the state that operators see."""
    if named is None:
        return lambda _: True
    name = named.upper().replace("-", "_")
    if name == WAITING:
        return awaits_crash
    try:
        state = RegionState[name]
    except KeyError:
        names = ", ".join((*(one.name for one in RegionState), WAITING))
        raise Invalid(f"state {named!r} is not a state of regions", f"give one of {names}") from None
    return lambda region: region.state is state and not awaits_crash(region)


def _after(model: Regions, query: RegionQuery) -> Iterator[Region]:
    """Yields regions behind the cursor, of the smallest set that a filter leaves."""
    table = table_of(model, query.table) if query.table is not None else None
    server = server_of(model, query.server) if query.server is not None else None
    place = _place(model, query.after)
    if server is None and not query.in_transition:
        yield from _of_tables(model, None if table is None else table.name, place)
        return
    some = model.transit.values() if server is None else server.regions.values()
    wanted = [
        one
        for one in some
        if (table is None or one.table is table) and (not query.in_transition or one.id in model.transit)
    ]
    for region in sorted(wanted, key=_place_of):
        if place is None or _place_of(region) > place:
            yield region


def _of_tables(model: Regions, table: str | None, place: Place | None) -> Iterator[Region]:
    names = sorted(model.tables) if table is None else [table]
    for name in names:
        regions = model.tables[name].regions
        if place is None or name > place[0]:
            yield from regions
        elif name == place[0]:
            for at in range(bisect_right(regions, place[1], key=start_of), len(regions)):
                yield regions[at]


def _place_of(region: Region) -> Place:
    return region.table.name, region.start


def _place(model: Regions, after: str | None) -> Place | None:
    """Returns the place of a cursor; of a region that is gone by now, the end of its table."""
    if after is None:
        return None
    number, _, table = after.partition(":")
    region = model.regions.get(int(number)) if number.isdecimal() else None
    if region is None:
        return f"{table}\0", b""
    return _place_of(region)


def table_page(model: Regions, limit: int, after: str | None) -> TablePage:
    """Returns a page of tables by name."""
    names = sorted(model.tables)
    counts = of_tables(model)
    items: list[TableItem] = []
    scanned = 0
    for name in names if after is None else names[bisect_right(names, after) :]:
        if items and (len(items) >= limit or scanned >= SCANNED_ROWS_MAX):
            return TablePage(items, items[-1].name)
        table = model.tables[name]
        items.append(table_item(table, counts, model.damages))
        scanned += len(table.regions)
    return TablePage(items, None)
