"""Makes limits of the product small in a run, so that a cluster of some fifty partitions meets all of them.

They are made for a million partitions. With their real values no decision here would take several multis, no request
would be cut, and no snapshot would take several turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from typing import Any, Final
from unittest import mock

from brokers.outbound.batches import REQUEST_ROWS_MAX
from brokers.outbound.snapshot import Snapshots
from brokers.wire.versions import Ibp
from metadata_store.fencing import fenced
from state_machines.propagation.propagation import Propagation

SMALL: Final = 2 / 3
"""Share of seeds with small limits."""


@dataclass(frozen=True)
class SimulationLimits:
    """The limits of one run.

    ``writes`` of a multi (a chain's multi creates a third of that many). ``rows``: partitions of a request. ``turn``:
    partitions of a snapshot's turn. ``bytes`` and ``heads``: encoded turns, and heads, that are kept.

    ``ended``: partitions of vanished topics that a term keeps, and ISRs without a partition. ``first``: topics read
    first at a failover. ``loaded``: partitions loaded at once. ``topics``: topics started together.
    """

    writes: int
    rows: int
    turn: int
    bytes: int
    heads: int
    ended: int
    first: int
    loaded: int
    topics: int

    def __str__(self) -> str:
        return " ".join(f"{name} {value}" for name, value in asdict(self).items())


def draw(r: Random) -> SimulationLimits | None:
    """Draws the limits of a seed; None: the product's own."""
    if r.random() >= SMALL:
        return None
    rows = r.randint(6, 16)
    return SimulationLimits(
        writes=r.choice((r.randint(3, 8), r.randint(6, 20))),
        rows=rows,
        turn=r.randint(5, rows),
        bytes=r.choice((1_000, 20_000)),
        heads=r.choice((5, 40, 400)),
        ended=r.choice((5, 20, 100)),
        first=r.choice((1, 1, 2, 3)),
        loaded=r.randint(4, 20),
        topics=r.choice((1, 2, 5)),
    )


def parsed(words: Sequence[str]) -> SimulationLimits:
    """Parses the text that ``str`` gives."""
    return SimulationLimits(**{name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)})


def rows_max(limits: SimulationLimits | None) -> int:
    """Returns the most partitions in one request."""
    return limits.rows if limits is not None else REQUEST_ROWS_MAX


@contextmanager
def limited(limits: SimulationLimits | None) -> Iterator[None]:
    """Sets the limits for the time of a run."""
    with ExitStack() as stack:
        if limits is not None:
            for target, value in _targets(limits).items():
                stack.enter_context(mock.patch(target, value))
            stack.enter_context(mock.patch.object(fenced.batches, "__defaults__", (limits.writes, None)))
        yield


def _targets(limits: SimulationLimits) -> dict[str, Any]:
    return {
        "controller.kafka.path.controller.WRITES_MAX": limits.writes,
        "metadata_store.nodes.cluster_nodes.WRITES_MAX": limits.writes,
        "brokers.outbound.batches.REQUEST_ROWS_MAX": limits.rows,
        "brokers.outbound.channel.REQUEST_ROWS_MAX": limits.rows,
        "brokers.outbound.batches.KEPT_MAX": limits.heads,
        "state_machines.model.assigned.ISRS_SPARE": limits.ended,
        "brokers.outbound.delivery.Snapshots": partial(_snapshots, limits),
        "controller.kafka.term.failover.FIRST_TOPICS": limits.first,
        "controller.kafka.term.failover.TURN_ROWS": limits.loaded,
        "controller.kafka.topics.topic_change.PARTITIONS_MAX": limits.loaded,
        "controller.kafka.topics.topic_change.TOPICS_MAX": limits.topics,
        "controller.kafka.topics.topic_change.ENDED_ROWS_MAX": limits.ended,
    }


def _snapshots(limits: SimulationLimits, propagation: Propagation, ibp: Ibp, _turn_rows: int) -> Snapshots:
    return Snapshots(propagation, ibp, limits.turn, limits.bytes)
