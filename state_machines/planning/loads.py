"""Counts replicas and first replicas by broker, and keeps the brokers that may host in order of their load."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable

from state_machines.model.types import Assignment


class Loads:
    """Counts by broker, of the replicas that stay once reassignments under way are complete.

    ``order`` holds ``hosts`` as (count, id), the least loaded first.
    """

    def __init__(self, assignments: Iterable[tuple[Assignment, int]], hosts: Collection[int]) -> None:
        self.replicas: Counter[int] = Counter()
        self.first: Counter[int] = Counter()
        for assignment, rows in assignments:
            target = assignment.target
            for broker in target:
                self.replicas[broker] += rows
            if target:
                self.first[target[0]] += rows
        self._hosts = frozenset(hosts)
        self.order = sorted((self.replicas[b], b) for b in self._hosts)
        self.first_mean = self.first.total() / max(1, len(self._hosts))
        """First replicas that each host would have if they were even."""

    def move(self, origin: tuple[int, ...], target: tuple[int, ...]) -> None:
        """Enters a partition's move."""
        for broker in origin:
            if broker not in target:
                self._count(broker, -1)
        for broker in target:
            if broker not in origin:
                self._count(broker, 1)
        self.first[origin[0]] -= 1
        self.first[target[0]] += 1

    def _count(self, broker: int, change: int) -> None:
        before = self.replicas[broker]
        self.replicas[broker] = before + change
        if broker in self._hosts:
            del self.order[bisect_left(self.order, (before, broker))]
            insort(self.order, (before + change, broker))
