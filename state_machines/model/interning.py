"""Keeps one tuple per distinct ISR: most partitions share theirs with many others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from state_machines.model.types import PartitionRow

Isr = tuple[int, ...]

ISRS_SPARE: Final = 10_000
"""Distinct ISRs that may be kept without a row, beside as many as rows have."""


class Isrs:
    """All ISRs that rows have, and some that they had."""

    def __init__(self) -> None:
        self._known: dict[Isr, Isr] = {}
        self._needed = 0

    def __len__(self) -> int:
        return len(self._known)

    def one(self, isr: Isr) -> Isr:
        """Returns the one tuple that is equal to ``isr``."""
        return self._known.setdefault(isr, isr)

    def forget(self, rows: Iterable[PartitionRow]) -> None:
        """Drops ISRs without a row once there are many: each order in which replicas came back is a distinct ISR."""
        if len(self._known) > 2 * self._needed + ISRS_SPARE:
            self._known = {row.isr: row.isr for row in rows}
            self._needed = len(self._known)
