"""Compares changes with what the store of a domain can write: what is too large is split or fails before it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controller.procedures.group import CHANGE_BYTES_MAX
from metadata_store.records.port import RecordStore
from state_machines.procedures.kernel import Change
from state_machines.procedures.record import Record

SPARE: Final = 50
"""Part of a write that a split leaves over: the message for the rest may be longer than the one for all."""


class Scale:
    """Weighs changes for a store."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._has_bound = store.bytes_max > 0

    def problem(self, change: Change, rows: Sequence[object] = ()) -> tuple[int, str | None]:
        """Returns the weight of a change, and why it cannot be stored; None where it can."""
        raw = sum([len(put.data) + len(put.result) for put in change.puts]) if change.puts else 0
        if raw > CHANGE_BYTES_MAX:
            return raw, f"its records have {raw} bytes, one step may write {CHANGE_BYTES_MAX}"
        if not self._has_bound:
            return 0, None
        bytes_max = self._store.bytes_max
        try:
            weight = self._store.weigh(change.puts, change.deletes, rows)
        except Exception as error:
            return 0, f"its records cannot be encoded: {type(error).__name__}: {error}"
        if weight > bytes_max:
            return weight, f"its write has {weight} bytes, the store takes {bytes_max}"
        return weight, None

    def fitting(self, parent: Record, children: Sequence[Record], rows: Sequence[object]) -> int:
        """Returns how many of the first children fit into one write with their parent, and with rows."""
        raw_max, bytes_max = CHANGE_BYTES_MAX, self._store.bytes_max
        raw = len(parent.data) + raw_max // SPARE
        weight = self._store.weigh((parent,), (), rows) + bytes_max // SPARE
        for count, one in enumerate(children):
            raw += len(one.data)
            weight += self._store.weigh((one,))
            if raw > raw_max or weight > bytes_max > 0:
                return count
        return len(children)
