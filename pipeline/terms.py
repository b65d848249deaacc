"""Judges A7 of whole terms: one writer per controller epoch, and none after it was fenced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pipeline.broken import Broken
from state_machines.journal.events import SCHEMA_VERSION, Kind, Row

Term = Mapping[str, Any]
"""A row of :func:`pipeline.gaps.terms`."""


def one_writer(terms: Iterable[Term]) -> Iterator[Broken]:
    """Yields violations of A7 that the terms show; no row should follow that of the fence."""
    every = list(terms)
    writers = Counter((term["cluster"], term["ctl_epoch"]) for term in every)
    for term in every:
        several, fenced, last = writers[term["cluster"], term["ctl_epoch"]], term["fenced"], term["last_write"]
        if several > 1:
            yield Broken("A7", f"epoch {term['ctl_epoch']} was written by {several} daemons", _last(term))
        elif fenced is not None and last is not None and last > fenced:
            yield Broken("A7", f"row {last} is a write after the fence", _last(term))


def _last(term: Term) -> Row:
    """Returns the row of the fence, or where the term begins."""
    seq = term["first_seq"] if term["fenced"] is None else term["fenced"]
    place = (term["cluster"], term["ctl_id"], term["ctl_epoch"], seq, term["last_us"])
    return Row(SCHEMA_VERSION, *place, mono_us=0, kind=Kind.FENCED.value)
