"""Keeps the loads of regions as their servers report them, in packed rows beside the model: 60 bytes for a region.

A load belongs to one open of a region at one server: once the region is closed, moved or split, it counts no more.
A failover forgets all; servers send them to the next daemon at once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from regent_agent.protocol import RegionLoad
from state_machines.regions.entities import Region, Server
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState

RATE_S_MIN: Final = 30.0
"""Least time between two reports of which a rate is made."""
STALE_MIN: Final = 1_000
"""Rows of regions that a server has no more, from which on they are removed, where they are more than its regions."""
COUNT_MAX: Final = (1 << 63) - 1
FILES_MAX: Final = (1 << 32) - 1
UNKNOWN: Final = -1.0
"""Rate of a region of which one report came."""


class Load(NamedTuple):
    """The load of an open region. Rates are requests per second, None until two reports have come."""

    size_bytes: int
    files: int
    reads_per_s: float | None
    writes_per_s: float | None
    age_s: float


class _Row(NamedTuple):
    """What is kept. ``reads``, ``writes``: counters at ``since_s``, the begin of the next rate; ``came_s``: latest."""

    size_bytes: int
    reads: int
    writes: int
    files: int
    since_s: float
    came_s: float
    reads_per_s: float
    writes_per_s: float


_PACKED: Final = Struct("<qqqIddff")


class _OfServer:
    """Loads of one process, by the ids of regions, which ascend."""

    def __init__(self) -> None:
        self.ids = array("q")
        self._rows = bytearray()

    def find(self, region: int) -> _Row | None:
        """Returns the row of a region, None without one."""
        at = bisect_left(self.ids, region)
        if at == len(self.ids) or self.ids[at] != region:
            return None
        return _Row._make(_PACKED.unpack_from(self._rows, at * _PACKED.size))

    def put(self, rows: Mapping[int, _Row]) -> None:
        """Inserts or replaces rows."""
        new = sorted(one for one in rows if self.find(one) is None)
        if new:
            self._insert(new)
        for region, row in rows.items():
            _PACKED.pack_into(self._rows, bisect_left(self.ids, region) * _PACKED.size, *row)

    def _insert(self, new: Sequence[int]) -> None:
        """Makes room for regions without rows: one pass over all, whose pieces are copied as they are."""
        size, ids, rows, last = _PACKED.size, array("q"), bytearray(), 0
        for region in new:
            at = bisect_left(self.ids, region)
            ids += self.ids[last:at]
            ids.append(region)
            rows += self._rows[last * size : at * size]
            rows += bytes(size)
            last = at
        self.ids, self._rows = ids + self.ids[last:], rows + self._rows[last * size :]

    def keep(self, regions: Mapping[int, Region]) -> None:
        """Removes the rows of regions that the process has no more, once they are many."""
        if len(self.ids) <= 2 * len(regions) + STALE_MIN:
            return
        size = _PACKED.size
        kept = [at for at, region in enumerate(self.ids) if region in regions]
        self._rows = bytearray().join(self._rows[at * size : (at + 1) * size] for at in kept)
        self.ids = array("q", [self.ids[at] for at in kept])


class RegionLoads:
    """Holds the loads of all regions. ``clock``: the loop's."""

    def __init__(self, model: Regions, clock: Callable[[], float]) -> None:
        self._model, self._clock = model, clock
        self._of: dict[tuple[str, int], _OfServer] = {}

    def __len__(self) -> int:
        return sum(len(one.ids) for one in self._of.values())

    def take(self, server: Server, loads: Iterable[RegionLoad]) -> int:
        """Takes a report of a process; returns how many of the regions are ignored: it does not have them open."""
        found, now_s = self._of.get(server.key), self._clock()
        if found is None:
            self._of = {key: one for key, one in self._of.items() if key in self._model.servers}
            found = self._of[server.key] = _OfServer()
        rows, ignored = dict[int, _Row](), 0
        for one in loads:
            region = server.regions.get(one.region)
            if region is None or region.state is not RegionState.OPEN:
                ignored += 1
            else:
                before = found.find(one.region)
                rows[one.region] = _row(before if _counts(before, region) else None, one, now_s)
        found.put(rows)
        found.keep(server.regions)
        return ignored

    def of(self, region: Region) -> Load | None:
        """Returns the load of a region, None where its server has not reported one since the open."""
        server = region.server
        found = self._of.get(server.key) if server is not None and region.state is RegionState.OPEN else None
        row = found.find(region.id) if found is not None else None
        if row is None or not _counts(row, region):
            return None
        age_s = max(0.0, self._clock() - row.came_s)
        return Load(row.size_bytes, row.files, _known(row.reads_per_s), _known(row.writes_per_s), age_s)


def _counts(row: _Row | None, region: Region) -> bool:
    """Checks whether a row is of the present open of its region."""
    return row is not None and row.came_s * 1000 >= region.changed_ms


def _known(rate: float) -> float | None:
    return None if rate == UNKNOWN else rate


def _bounded(count: int, most: int = COUNT_MAX) -> int:
    return min(max(count, 0), most)


def _row(before: _Row | None, load: RegionLoad, now_s: float) -> _Row:
    """Returns the row after a report. Counters that fell begin anew, as those of another open do."""
    size, files = _bounded(load.size_bytes), _bounded(load.files, FILES_MAX)
    reads, writes = _bounded(load.reads), _bounded(load.writes)
    if before is None or reads < before.reads or writes < before.writes:
        return _Row(size, reads, writes, files, now_s, now_s, UNKNOWN, UNKNOWN)
    if (took_s := now_s - before.since_s) < RATE_S_MIN:
        return before._replace(size_bytes=size, files=files, came_s=now_s)
    rates = (reads - before.reads) / took_s, (writes - before.writes) / took_s
    return _Row(size, reads, writes, files, now_s, now_s, *rates)
