"""Has the verbs that run on Spark, each a function described once: ``regent pipeline`` and ``python -m pipeline``.

A verb gets :class:`~pipeline.verbs.running.Shown` first, then its own arguments, described by
:mod:`~pipeline.verbs.options`. It returns an exit code, or raises :class:`~pipeline.ending.Stopped`. Nothing here
imports a library of the extra before a verb runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipeline.verbs.journals import audit, ingest
from pipeline.verbs.loads import EXAMPLES as OF_LOADS
from pipeline.verbs.loads import loads
from pipeline.verbs.options import Verb
from pipeline.verbs.report import EXAMPLES as OF_REPORT
from pipeline.verbs.report import report
from pipeline.verbs.stream import EXAMPLES as OF_STREAM
from pipeline.verbs.stream import stream

VERBS: Final[Sequence[tuple[Verb, Sequence[str]]]] = (
    (ingest, ("regent pipeline ingest /journals/daemon-1 /journals/daemon-2 --into /journals/merged",)),
    (audit, ("regent pipeline audit /journals/merged", "regent pipeline audit --strict /journals/merged")),
    (report, OF_REPORT),
    (stream, OF_STREAM),
    (loads, OF_LOADS),
)
"""Verbs with examples."""
