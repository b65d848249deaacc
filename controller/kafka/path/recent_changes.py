"""Remembers the last changes of a term and their reasons, for operators."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from state_machines.model.decision import Change

CHANGES_MAX: Final = 20_000
"""Changes kept over all partitions: the rows before and after each stay in memory with it."""


class RecentChanges:
    """Keeps batches as they were applied; it copies and indexes nothing, a query searches from the newest."""

    def __init__(self, changes_max: int = CHANGES_MAX) -> None:
        self._batches: deque[Sequence[Change]] = deque()
        self._max = changes_max
        self._count = 0

    def add(self, changes: Sequence[Change]) -> None:
        """Adds an applied batch; of one above the bound only the end is kept."""
        if not changes:
            return
        batch = changes[-self._max :] if len(changes) > self._max else changes
        self._batches.append(batch)
        self._count += len(batch)
        while self._count > self._max:
            self._count -= len(self._batches.popleft())

    def why(self, entity: int) -> str | None:
        """Returns the reason of a row's last change and the brokers that left its ISR; None where it is not kept."""
        for batch in reversed(self._batches):
            for change in reversed(batch):
                if change.entity == entity:
                    return _sentence(change)
        return None


def _sentence(change: Change) -> str:
    left = [str(broker) for broker in change.before.isr if broker not in change.after.isr]
    return f"{change.why}; {', '.join(left)} left the ISR" if left else change.why
