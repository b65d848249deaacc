"""The storage that the servers of a service share: it knows fence tokens, the logs of servers, and data of regions.

A write goes into the log of its server where servers are fenced by their log, else beside the data of its region. A new
owner sees what is beside the data: a clean close and the split of a log bring edits there. A region whose data begins
in that of others sees theirs in its range, until it has a copy; the copy of an open counts for none that follows it
and is told the sources again. It stays where the data of a source is discarded: a store that went back to a copy tells
of that source all the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from regent_agent.protocol import Source
from regent_agent.service import OpenedRegion

Key = tuple[str, int]
"""Name and incarnation of a server."""
PARTS = ("a", "b")
"""Parts of each log."""


class StaleToken(Exception):
    """A region has had an owner with a higher token."""


class LogFenced(Exception):
    """The log of this process takes no edits any more."""


class Edit(NamedTuple):
    """A value that a client wrote."""

    region: int
    token: int
    value: int
    key: bytes = b""


class Storage:
    """Holds tokens, data and logs. ``tokens``: the highest one of each region; ``logged``: edits go through logs.

    ``acknowledged``: the edits that clients know to be written, by region. ``opened``: processes, with their tokens.
    ``discarding``: gets each region whose data is about to be discarded.
    """

    def __init__(self, *, logged: bool) -> None:
        self.logged = logged
        self.discarding: Callable[[int], None] = lambda _: None
        self.tokens: dict[int, int] = {}
        self.opened: dict[tuple[int, int], Key] = {}
        self.acknowledged: dict[int, list[Edit]] = defaultdict(list)
        self._data: dict[int, list[Edit]] = defaultdict(list)
        self._recovered: dict[int, list[Edit]] = defaultdict(list)
        """Edits of logs that were split: they wait beside the data of their region until that is opened."""
        self._copies: dict[int, tuple[int, list[Edit]]] = {}
        """What regions have copied of their sources, with the token of the open that did it."""
        self._discarded: set[int | str] = set()
        """Regions and snapshots whose data is discarded."""
        self._staged: dict[str, dict[int, dict[int, list[Edit]]]] = defaultdict(lambda: defaultdict(dict))
        """Copies for snapshots, by snapshot, region and token."""
        self._logs: dict[Key, list[Edit]] = defaultdict(list)
        self._fenced: set[Key] = set()

    def open(self, region: OpenedRegion) -> list[Edit]:
        """Enters an owner's token; returns the edits that it sees. Raises :class:`StaleToken`."""
        self._check(region.region, region.token)
        self.tokens[region.region] = region.token
        self._data[region.region] += self._recovered.pop(region.region, ())
        there = not any((one.snapshot or one.region) in self._discarded for one in region.sources)
        if region.sources and there and self._copies.get(region.region, (region.token,))[0] < region.token:
            del self._copies[region.region]
        return self.visible(region)

    def visible(self, region: OpenedRegion) -> list[Edit]:
        """Returns the edits that an owner sees as it opens a region."""
        has_copy = region.region in self._copies
        return [*self._of(region.region), *([] if has_copy else self._inherited(region))]

    def copy(self, region: OpenedRegion) -> None:
        """Copies what a region sees of its sources; raises :class:`StaleToken`."""
        self._check(region.region, region.token)
        if region.region not in self._copies:
            self._copies[region.region] = region.token, self._inherited(region)

    def has_copy(self, region: int) -> bool:
        """Checks whether a region has copied what it sees of its sources."""
        return region in self._copies

    def discard(self, region: int) -> None:
        """Removes the data of a region."""
        self.discarding(region)
        self._discarded.add(region)
        self._data.pop(region, None)
        self._copies.pop(region, None)

    def stage(self, name: str, region: OpenedRegion, edits: Iterable[Edit]) -> None:
        """Keeps a copy of a region's data for a snapshot."""
        self._discarded.discard(name)
        self._staged[name][region.region][region.token] = list(edits)

    def unstage(self, name: str, region: int) -> None:
        """Removes the copies of a region for a snapshot."""
        self._staged[name].pop(region, None)

    def discard_snapshot(self, name: str) -> None:
        """Removes all copies for a snapshot."""
        self._discarded.add(name)
        self._staged.pop(name, None)

    def staged(self, name: str, region: int, token: int) -> list[Edit] | None:
        """Returns the latest copy for a snapshot that an owner up to a token has staged; None without one."""
        copies = self._staged[name][region]
        return copies[max(found)] if (found := [one for one in copies if one <= token]) else None

    def append(self, server: Key, edit: Edit) -> None:
        """Writes an edit durably; raises :class:`LogFenced` or :class:`StaleToken`."""
        if self.logged:
            if server in self._fenced:
                raise LogFenced(f"{server} is fenced")
            self._logs[server].append(edit)
        else:
            self._check(edit.region, edit.token)
            self._data[edit.region].append(edit)

    def flush(self, server: Key, region: int) -> None:
        """Moves the edits of a region from a server's log to its data."""
        if server in self._fenced:
            raise LogFenced(f"{server} is fenced")
        self._move(server, self._data, lambda edit: edit.region == region)

    def fence(self, server: Key) -> list[str]:
        """Keeps a server from writing; returns the parts of its log that have edits."""
        self._fenced.add(server)
        return [part for part in PARTS if any(_part(edit) == part for edit in self._logs[server])]

    def split(self, server: Key, part: str) -> None:
        """Moves the edits of a part beside the data of their regions."""
        self._move(server, self._recovered, lambda edit: _part(edit) == part)

    def is_fenced(self, server: Key) -> bool:
        """Checks whether the log of a server takes no edits any more."""
        return server in self._fenced

    def is_split(self, server: Key) -> bool:
        """Checks whether the log of a server has no edits left."""
        return not self._logs[server]

    def missing(self, region: OpenedRegion) -> list[Edit]:
        """Returns acknowledged edits that an owner would not see."""
        seen = set(self.visible(region))
        return [edit for edit in self.acknowledged[region.region] if edit not in seen]

    def _of(self, region: int) -> list[Edit]:
        """Returns the data of a region, without what it refers to."""
        return [*self._data[region], *self._copies.get(region, (0, ()))[1]]

    def _inherited(self, region: OpenedRegion) -> list[Edit]:
        return [
            edit
            for source in region.sources
            for edit in self._source(source)
            if is_in(edit.key, region.start, region.end) and is_in(edit.key, source.start, source.end)
        ]

    def _source(self, source: Source) -> list[Edit]:
        if source.snapshot:
            return self.staged(source.snapshot, source.region, source.token) or []
        return self._of(source.region)

    def _check(self, region: int, token: int) -> None:
        if token < self.tokens.get(region, 0):
            raise StaleToken(f"region {region}: token {token}, an owner with {self.tokens[region]} has opened it")

    def _move(self, server: Key, to: dict[int, list[Edit]], chosen: Callable[[Edit], bool]) -> None:
        left = []
        for edit in self._logs[server]:
            if chosen(edit):
                to[edit.region].append(edit)
            else:
                left.append(edit)
        self._logs[server] = left


def is_in(key: bytes, start: bytes, end: bytes) -> bool:
    """Checks whether a key is in a range; an empty end is behind all keys."""
    return start <= key and (not end or key < end)


def _part(edit: Edit) -> str:
    return PARTS[edit.value % len(PARTS)]
