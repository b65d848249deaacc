"""Holds the one-shot watches at one server of the in-memory ZooKeeper, and the transactions that it lacks yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from metadata_store.acl import Acl
from metadata_store.port import WatchEvent, WatchKind
from testing.memory.tree import Touched, Tree


class Watches:
    """Paths with the sessions that watch them: their data or existence, and their children."""

    def __init__(self) -> None:
        self._data: dict[str, dict[int, None]] = {}
        self._children: dict[str, dict[int, None]] = {}

    def __len__(self) -> int:
        """Returns how many watches are armed, each path and session counted."""
        return sum(map(len, (*self._data.values(), *self._children.values())))

    def arm(
        self,
        tree: Tree,
        session: int,
        data: Iterable[str],
        exists: Iterable[str],
        children: Iterable[str],
        since_zxid: int,
    ) -> Iterator[WatchEvent]:
        """Arms watches and yields the events of those that fire at once (``DataTree.setWatches``)."""
        for path in data:
            stat = tree.stat(path)
            changed = stat is not None and stat.mzxid > since_zxid
            yield from self._arm(session, self._data, path, _fired(stat is None, changed, WatchKind.CHANGED))
        for path in exists:
            there = tree.stat(path) is not None
            yield from self._arm(session, self._data, path, WatchKind.CREATED if there else None)
        for path in children:
            stat = tree.stat(path)
            changed = stat is not None and stat.pzxid > since_zxid
            yield from self._arm(session, self._children, path, _fired(stat is None, changed, WatchKind.CHILD))

    @staticmethod
    def _arm(
        session: int, table: dict[str, dict[int, None]], path: str, fired: WatchKind | None
    ) -> Iterator[WatchEvent]:
        if fired is None:
            table.setdefault(path, {})[session] = None
        else:
            yield WatchEvent(path, fired)

    def fire(self, touched: Iterable[Touched]) -> Iterator[tuple[int, WatchEvent, tuple[Acl, ...]]]:
        """Takes the watches of touched paths; yields session and event, with the ACL list that the event passes."""
        for kind, path, acls in touched:
            sessions = self._children.pop(path, {}) if kind in (WatchKind.CHILD, WatchKind.DELETED) else {}
            if kind is not WatchKind.CHILD:
                sessions = self._data.pop(path, {}) | sessions
            for session in sessions:
                yield session, WatchEvent(path, kind), acls

    def drop(self, session: int) -> None:
        """Forgets the watches of a session."""
        for table in (self._data, self._children):
            for path in [path for path, sessions in table.items() if session in sessions]:
                del table[path][session]
                if not table[path]:
                    del table[path]


def _fired(gone: bool, changed: bool, kind: WatchKind) -> WatchKind | None:
    if gone:
        return WatchKind.DELETED
    return kind if changed else None


Transaction = Callable[[Tree], Iterable[Touched]]
"""Changes a tree, and returns the paths that it touched."""


class Follower:
    """A tree and watches of its own, which lack the transactions that wait."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree.copy()
        self.watches = Watches()
        self._waiting: list[Transaction] = []

    def follow(self, transaction: Transaction) -> None:
        """Has a transaction wait."""
        self._waiting.append(transaction)

    def catch_up(self) -> Iterator[Touched]:
        """Applies the waiting transactions in order; yields the paths that they touched."""
        waiting, self._waiting = self._waiting, []
        for transaction in waiting:
            yield from transaction(self.tree)


def skip(tree: Tree) -> Iterable[Touched]:
    """Applies a write that failed: it takes its number all the same."""
    tree.zxid += 1
    return ()
