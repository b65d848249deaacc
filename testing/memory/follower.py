"""Plays a server of the in-memory ZooKeeper that is behind the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from testing.memory.tree import Touched, Tree
from testing.memory.watches import Watches

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
