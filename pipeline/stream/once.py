"""Leaves out rows that are there already: the same in all columns as another row with the same number of a term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.pieces import TERM

KEY: Final = (*TERM, "seq")


def new_rows(rows: Any, kept: Any, key: Sequence[str] = KEY) -> Any:
    """Returns the rows that are neither in ``kept`` nor earlier in ``rows``, which has the same columns.

    Rows with the same ``key`` are compared.
    """
    both = pa.concat_tables([kept, rows]).combine_chunks()
    order = pc.sort_indices(
        both.select(key).append_column("at", pa.array(np.arange(len(both)))),
        sort_keys=[(name, "ascending") for name in (*key, "at")],
    ).to_numpy()
    first = _first_of_key(both, order, key)
    copies: Any = np.zeros(len(both), dtype=bool)
    for distance in range(1, int((np.arange(len(both)) - first).max(initial=0)) + 1):
        at = np.flatnonzero(first + distance <= np.arange(len(both)))
        at = at[order[at] >= len(kept)]
        if len(at):
            copies[order[at[same(both, order[at], order[at - distance])]]] = True
    return rows if not copies.any() else rows.filter(pa.array(~copies[len(kept) :]))


def same(table: Any, one: Any, other: Any) -> Any:
    """Compares rows ``one`` of a table with rows ``other`` in all columns; null is the same as null.

    Returns an array of bool, as long as the two arrays of indices.
    """
    alike: Any = np.ones(len(one), dtype=bool)
    for name in table.column_names:
        column = table[name].combine_chunks()
        if column.null_count < len(column) and alike.any():
            alike &= _alike(column.take(pa.array(one)), column.take(pa.array(other)))
    return alike


def _first_of_key(both: Any, order: Any, key: Sequence[str]) -> Any:
    """Returns for each place of the order the first place with the same key."""
    begins: Any = np.ones(len(order), dtype=bool)
    for name in key:
        values = both[name].combine_chunks().take(pa.array(order))
        differs = pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False)
        begins[1:] = differs if name == key[0] else begins[1:] | differs
    return np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))


def _alike(one: Any, other: Any) -> Any:
    if pa.types.is_list(one.type):  # Arrow compares no lists
        return np.array([a == b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)], dtype=bool)
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.or_(pc.fill_null(pc.equal(one, other), False), both_null).to_numpy(zero_copy_only=False)
