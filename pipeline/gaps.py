"""Finds missing rows of the merged journals (J1), as intervals of numbers and of time, and sums up terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pipeline.pieces import Break, Piece

HOLE: Final = "HOLE"
UNRECORDED: Final = "UNRECORDED"
CUT_SHORT: Final = "CUT_SHORT"
IN_DOUBT: Final = "IN_DOUBT"
NO_JOURNAL: Final = "NO_JOURNAL"
EXPIRED: Final = "EXPIRED"
SAME_NUMBER: Final = "SAME_NUMBER"

WHY: Final = {
    HOLE: "rows are missing",
    UNRECORDED: "the daemon could not write them",
    CUT_SHORT: "the term has no end: its daemon was killed, its last second may be missing",
    IN_DOUBT: "the store gave no response to the last write of the term: it may be applied, and has no rows",
    NO_JOURNAL: "no journal of these terms is here: a broker's, or those of a daemon that was not named",
    EXPIRED: "the daemon's oldest file begins here",
    SAME_NUMBER: "two different rows have this number",
}
"""Kinds of gaps. EXPIRED is expected; SAME_NUMBER is no gap, but spoils a count as well."""


class Gap(Struct, frozen=True):
    """A gap, with the fields of :data:`pipeline.schema.GAPS`."""

    cluster: str
    ctl_epoch: int
    ctl_id: int | None
    seq: int
    rows: int | None
    kind: str
    why: str
    ts_from_us: int | None
    ts_to_us: int | None


def terms(pieces: Iterable[Piece]) -> list[Piece]:
    """Joins the pieces of each term and writer; returns them by cluster and epoch.

    Pieces of one term have no number in common, except within one piece. ``first_seq`` and ``last_seq`` include the
    rows that UNRECORDED rows stand for. ``last_write`` is the number of the last row of a write, ``fenced`` that of the
    row of the fence, or None.
    """
    ordered = sorted(pieces, key=lambda piece: (piece.term, piece.first_seq))
    return [_joined(list(of_term)) for _, of_term in groupby(ordered, key=lambda piece: piece.term)]


def gaps(terms: Sequence[Piece]) -> list[Gap]:
    """Returns every gap, in the order of epochs and numbers. ``terms`` are all of :func:`terms`."""
    found = [gap for term in terms for gap in (*_between(term), *_unrecorded(term))]
    found += [*_begins(terms), *_ends(terms), *_no_journal(terms)]
    return sorted(found, key=lambda gap: (gap.cluster, gap.ctl_epoch, gap.seq, gap.kind, gap.ctl_id or 0))


def _joined(pieces: Sequence[Piece]) -> Piece:
    first, last = pieces[0], pieces[-1]
    between = [
        Break(one.due, following.first_seq - one.due, one.ends_us, following.begins_us)
        for one, following in pairwise(pieces)
        if one.due != following.first_seq
    ]
    return replace(
        first,
        rows=sum(piece.rows for piece in pieces),
        last_seq=max(piece.last_seq for piece in pieces),
        due=last.due,
        ends_us=last.ends_us,
        first_us=min(piece.first_us for piece in pieces),
        last_us=max(piece.last_us for piece in pieces),
        ended=any(piece.ended for piece in pieces),
        in_doubt=any(piece.in_doubt for piece in pieces),
        last_write=max((piece.last_write for piece in pieces if piece.last_write is not None), default=None),
        fenced=min((piece.fenced for piece in pieces if piece.fenced is not None), default=None),
        breaks=[each for piece in pieces for each in piece.breaks] + between,
        unrecorded=[each for piece in pieces for each in piece.unrecorded],
    )


def _gap(term: Piece, seq: int, rows: int | None, kind: str, from_us: int | None, to_us: int | None) -> Gap:
    return Gap(term.cluster, term.ctl_epoch, term.ctl_id, seq, rows, kind, WHY[kind], from_us, to_us)


def _between(term: Piece) -> Iterator[Gap]:
    """Yields holes within a term, and numbers that two rows have."""
    for each in term.breaks:
        kind = SAME_NUMBER if each.rows is None else HOLE
        yield _gap(term, each.seq, each.rows, kind, each.from_us, each.to_us)


def _unrecorded(term: Piece) -> Iterator[Gap]:
    for seq, rows, at_us in term.unrecorded:
        yield _gap(term, seq, rows, UNRECORDED, at_us, at_us)


def _begins(terms: Sequence[Piece]) -> Iterator[Gap]:
    """Yields gaps at the begin of terms; a daemon's oldest term may have one, its first files are expired."""
    oldest: dict[tuple[str, int], int] = {}
    for term in terms:
        daemon = (term.cluster, term.ctl_id)
        oldest[daemon] = min(term.ctl_epoch, oldest.get(daemon, term.ctl_epoch))
    for term in terms:
        if term.first_seq > 1:
            expired = oldest[term.cluster, term.ctl_id] == term.ctl_epoch
            yield _gap(term, 1, term.first_seq - 1, EXPIRED if expired else HOLE, None, term.first_us)


def _followed(terms: Sequence[Piece]) -> Iterator[tuple[Piece, Piece]]:
    """Yields terms with the one that follows in their cluster."""
    return ((one, following) for one, following in pairwise(terms) if one.cluster == following.cluster)


def _ends(terms: Sequence[Piece]) -> Iterator[Gap]:
    """Yields terms that another one followed although their last rows are not known: killed ones, and in doubt."""
    for term, following in _followed(terms):
        known = term.ended and not term.in_doubt
        if not known and following.ctl_epoch > term.ctl_epoch:
            kind = IN_DOUBT if term.ended else CUT_SHORT
            yield _gap(term, term.last_seq + 1, None, kind, term.last_us, following.first_us)


def _no_journal(terms: Sequence[Piece]) -> Iterator[Gap]:
    """Yields epochs between those of the journals; the gap begins with the first of them."""
    for term, following in _followed(terms):
        if following.ctl_epoch > term.ctl_epoch + 1:
            missing = _gap(term, 1, None, NO_JOURNAL, term.last_us, following.first_us)
            yield replace(missing, ctl_epoch=term.ctl_epoch + 1, ctl_id=None)
