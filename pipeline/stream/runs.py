"""Keeps account of the numbers of rows that a stream has written, as runs without a hole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from pipeline.gaps import terms
from pipeline.pieces import TERM, Break, Piece, narrow, runs_of


def merged(runs: Sequence[Piece], rows: Any) -> list[Piece]:
    """Returns the runs with those of a table of rows, which are new; a number that is there already is a break."""
    narrowed = narrow(rows)
    known = numbers_in(runs, narrowed)
    again = narrowed.filter(pa.array(known))
    found = [*runs, *runs_of(narrowed.filter(pa.array(~known)))]
    for each in runs_of(again):
        at = next(index for index, run in enumerate(found) if run.term == each.term and _meet(run, each))
        numbers = again["seq"].to_numpy()[is_of(again, each.term)]
        doubled = numbers[(numbers >= each.first_seq) & (numbers <= each.last_seq)].tolist()
        found[at] = _absorbed(found[at], each, doubled)
    ordered = sorted(found, key=lambda run: (run.term, run.first_seq))
    return [run for _, of_term in groupby(ordered, key=lambda run: run.term) for run in _joined(of_term)]


def numbers_in(runs: Sequence[Piece], rows: Any) -> Any:
    """Returns for each row, as an array of bool, whether a run has its number."""
    found: Any = np.zeros(len(rows), dtype=bool)
    for _, inside in _inside(runs, rows):
        found |= inside
    return found


def _inside(runs: Sequence[Piece], rows: Any) -> Iterator[tuple[Piece, Any]]:
    """Yields runs with the rows, as an array of bool, that have a number of it."""
    epochs = set(pc.unique(rows["ctl_epoch"]).to_pylist())
    seq = rows["seq"].to_numpy()
    for run in runs:
        if run.ctl_epoch in epochs:
            inside = (seq >= run.first_seq) & (seq <= run.last_seq)
            if inside.any():
                yield run, inside & is_of(rows, run.term)


def is_of(rows: Any, term: tuple[str, int, int]) -> Any:
    """Returns for each row, as an array of bool, whether it is of the term."""
    same: Any = np.ones(len(rows), dtype=bool)
    for name, value in zip(TERM, term, strict=True):
        same &= pc.equal(rows[name], value).to_numpy()
    return same


def _joined(ordered: Iterable[Piece]) -> list[Piece]:
    """Joins runs of one term that follow upon each other, or that meet."""
    found: list[Piece] = []
    for run in ordered:
        if found and found[-1].due == run.first_seq:
            [found[-1]] = terms([found[-1], run])
        elif found and _meet(found[-1], run):
            found[-1] = _absorbed(found[-1], run, [run.first_seq])
        else:
            found.append(run)
    return found


def _meet(one: Piece, other: Piece) -> bool:
    return one.first_seq <= other.last_seq and other.first_seq <= one.last_seq


def _absorbed(run: Piece, other: Piece, doubled: Iterable[int]) -> Piece:
    """Returns a run with rows of numbers that it has; ``doubled``: each of those numbers."""
    first, last = min(run, other, key=lambda each: each.first_seq), max(run, other, key=lambda each: each.last_seq)
    return replace(
        run,
        rows=run.rows + other.rows,
        first_seq=first.first_seq,
        last_seq=last.last_seq,
        due=last.due,
        begins_us=first.begins_us,
        ends_us=last.ends_us,
        first_us=min(run.first_us, other.first_us),
        last_us=max(run.last_us, other.last_us),
        ended=run.ended or other.ended,
        in_doubt=run.in_doubt or other.in_doubt,
        last_write=max((each for each in (run.last_write, other.last_write) if each is not None), default=None),
        fenced=min((each for each in (run.fenced, other.fenced) if each is not None), default=None),
        breaks=[*run.breaks, *(Break(seq, None, other.begins_us, other.ends_us) for seq in doubled)],
        unrecorded=[*run.unrecorded, *other.unrecorded],
    )
