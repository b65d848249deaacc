"""The storage that the servers of a service share: it knows fence tokens, and the logs of servers.

A write goes into the log of its server where servers are fenced by their log, else beside the data of its region. A new
owner sees what is beside the data: a clean close and the split of a log bring edits there.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

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


class Storage:
    """Holds tokens, data and logs. ``tokens``: the highest one of each region; ``logged``: edits go through logs.

    ``acknowledged``: the edits that clients know to be written, by region. ``opened``: processes, with their tokens.
    """

    def __init__(self, *, logged: bool) -> None:
        self.logged = logged
        self.tokens: dict[int, int] = {}
        self.opened: dict[tuple[int, int], Key] = {}
        self.acknowledged: dict[int, list[Edit]] = defaultdict(list)
        self._data: dict[int, list[Edit]] = defaultdict(list)
        self._logs: dict[Key, list[Edit]] = defaultdict(list)
        self._fenced: set[Key] = set()

    def open(self, region: int, token: int) -> int:
        """Enters an owner's token; returns the number of edits it sees. Raises :class:`StaleToken`."""
        self._check(region, token)
        self.tokens[region] = token
        return len(self._data[region])

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
        self._move(server, lambda edit: edit.region == region)

    def fence(self, server: Key) -> list[str]:
        """Keeps a server from writing; returns the parts of its log that have edits."""
        self._fenced.add(server)
        return [part for part in PARTS if any(_part(edit) == part for edit in self._logs[server])]

    def split(self, server: Key, part: str) -> None:
        """Moves the edits of a part to the data of their regions."""
        self._move(server, lambda edit: _part(edit) == part)

    def is_fenced(self, server: Key) -> bool:
        """Checks whether the log of a server takes no edits any more."""
        return server in self._fenced

    def is_split(self, server: Key) -> bool:
        """Checks whether the log of a server has no edits left."""
        return not self._logs[server]

    def missing(self, region: int) -> list[Edit]:
        """Returns acknowledged edits that an owner would not see."""
        seen = set(self._data[region])
        return [edit for edit in self.acknowledged[region] if edit not in seen]

    def _check(self, region: int, token: int) -> None:
        if token < self.tokens.get(region, 0):
            raise StaleToken(f"region {region}: token {token}, an owner with {self.tokens[region]} has opened it")

    def _move(self, server: Key, chosen: object) -> None:
        assert callable(chosen)
        left = []
        for edit in self._logs[server]:
            if chosen(edit):
                self._data[edit.region].append(edit)
            else:
                left.append(edit)
        self._logs[server] = left


def _part(edit: Edit) -> str:
    return PARTS[edit.value % len(PARTS)]
