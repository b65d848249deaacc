"""Sums up which numbers of which terms a table of rows has: all that the search for copies and gaps needs of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from state_machines.journal.events import Kind

TERM: Final = ("cluster", "ctl_epoch", "ctl_id")
"""A term and its writer: two daemons may have written one epoch."""

_FIELDS: Final = (*TERM, "seq", "ts_us")


class Break(Struct, frozen=True, array_like=True):
    """A place in a term where the next row has another number than the one that is due.

    ``rows`` are missing there; None: the number is there twice. The times are those of the rows before and after.
    """

    seq: int
    rows: int | None
    from_us: int
    to_us: int


class Piece(Struct, frozen=True, array_like=True):
    """Rows of one term, in the order of their numbers.

    ``last_seq`` includes rows that UNRECORDED rows stand for; ``due`` is the number after the last row. ``begins_us``
    and ``ends_us`` are the times of the first and the last row, ``first_us`` and ``last_us`` the earliest and latest
    ones. ``unrecorded``: number, rows and time of each UNRECORDED row. The others are as in :mod:`pipeline.gaps`.
    """

    cluster: str
    ctl_epoch: int
    ctl_id: int
    rows: int
    first_seq: int
    last_seq: int
    due: int
    begins_us: int
    ends_us: int
    first_us: int
    last_us: int
    ended: bool
    in_doubt: bool
    last_write: int | None
    fenced: int | None
    breaks: Sequence[Break]
    unrecorded: Sequence[tuple[int, int | None, int]]

    @property
    def term(self) -> tuple[str, int, int]:
        """Returns the key of the term: cluster, controller epoch and controller id."""
        return self.cluster, self.ctl_epoch, self.ctl_id

    @property
    def doubled(self) -> bool:
        """Checks whether a number is there twice."""
        return any(each.rows is None for each in self.breaks)


def narrow(rows: Any) -> Any:
    """Returns the few columns that pieces are made of, 60 bytes a row or less."""
    kind = rows["kind"]
    wrote = pc.and_(pc.is_valid(rows["t_committed"]), _differ(rows["pepoch0"], rows["pepoch1"]))
    lost = pc.max_element_wise(pc.fill_null(rows["lost"], 1), 1)
    resigned = pc.equal(kind, Kind.CTL_RESIGNED.value)
    return rows.select(_FIELDS).append_column("wrote", wrote).append_column("stands_for", lost).append_column(
        "resigned", resigned
    ).append_column("in_doubt", pc.and_(resigned, pc.is_valid(rows["pids"]))).append_column(
        "fences", pc.equal(kind, Kind.FENCED.value)
    ).append_column("lost", pc.if_else(pc.equal(kind, Kind.UNRECORDED.value), rows["lost"], None)).append_column(
        "unrecorded", pc.equal(kind, Kind.UNRECORDED.value)
    )  # fmt: skip


def pieces_of(narrowed: Any) -> list[Piece]:
    """Returns the pieces of a table of :func:`narrow`, one for each term."""
    return _parted(narrowed, at_holes=False)


def runs_of(narrowed: Any) -> list[Piece]:
    """Returns the pieces of a table of :func:`narrow`, parted where a number is missing."""
    return _parted(narrowed, at_holes=True)


def _parted(narrowed: Any, *, at_holes: bool) -> list[Piece]:
    if not len(narrowed):
        return []
    table = narrowed.take(pc.sort_indices(narrowed, sort_keys=[(name, "ascending") for name in (*TERM, "seq")]))
    table = table.combine_chunks()
    terms = [table[name].combine_chunks() for name in TERM]
    other: Any = np.zeros(len(table) - 1, dtype=bool)
    for values in terms:
        other |= pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False)
    if at_holes:
        seq = table["seq"].to_numpy()
        other |= seq[1:] > seq[:-1] + table["stands_for"].to_numpy()[:-1]
    begins = [0, *(np.flatnonzero(other) + 1).tolist(), len(table)]
    return [_piece(table.slice(at, until - at)) for at, until in pairwise(begins)]


def _piece(term: Any) -> Piece:
    """Makes the piece of one term, whose rows are sorted by number."""
    seq, ts_us, stands_for = (term[name].to_numpy() for name in ("seq", "ts_us", "stands_for"))
    due = seq + stands_for
    return Piece(
        cluster=term["cluster"][0].as_py(),
        ctl_epoch=term["ctl_epoch"][0].as_py(),
        ctl_id=term["ctl_id"][0].as_py(),
        rows=len(term),
        first_seq=int(seq[0]),
        last_seq=int(due.max()) - 1,
        due=int(due[-1]),
        begins_us=int(ts_us[0]),
        ends_us=int(ts_us[-1]),
        first_us=int(ts_us.min()),
        last_us=int(ts_us.max()),
        ended=pc.any(term["resigned"]).as_py(),
        in_doubt=pc.any(term["in_doubt"]).as_py(),
        last_write=pc.max(term["seq"].filter(term["wrote"])).as_py(),
        fenced=pc.min(term["seq"].filter(term["fences"])).as_py(),
        breaks=_breaks(seq, due, ts_us),
        unrecorded=_unrecorded(term.filter(term["unrecorded"])),
    )


def _breaks(seq: Any, due: Any, ts_us: Any) -> list[Break]:
    found = []
    for at in np.flatnonzero(due[:-1] != seq[1:]).tolist():
        was_due, number = int(due[at]), int(seq[at + 1])
        missing = number - was_due if was_due < number else None
        found.append(Break(min(was_due, number), missing, int(ts_us[at]), int(ts_us[at + 1])))
    return found


def _unrecorded(rows: Any) -> list[tuple[int, int | None, int]]:
    return list(zip(*(rows[name].to_pylist() for name in ("seq", "lost", "ts_us")), strict=True))


def _differ(one: Any, other: Any) -> Any:
    """Compares as ``IS DISTINCT FROM`` does: null is a value."""
    both = pc.and_(pc.is_null(one), pc.is_null(other))
    return pc.if_else(both, False, pc.fill_null(pc.not_equal(one, other), True))


def concatenated(tables: Iterable[Any]) -> Any:
    """Returns one table of all; they have the columns of :func:`narrow`."""
    return pa.concat_tables(tables)
