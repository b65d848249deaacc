"""Finds what crosses a reassign plan: other plans with its partitions, and clients that superseded its moves."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Final, NamedTuple, TypeAlias

from controller.procedures.recorder import CallKind
from controller.process.wording import named
from state_machines.decisions.plan_progress import ENDED, PlannedMove
from state_machines.model.types import TopicPartition
from state_machines.procedures.record import Record
from state_machines.procedures.states import State

PLANS_MAX: Final = 100
"""Plans that run or wait; a further one is refused."""
KNOWN_MAX: Final = 2 * PLANS_MAX
"""Plans of which the partitions are kept; beyond it the oldest ones go first, and are decoded again where needed."""
_SEPARATORS: Final = re.compile(r"[ ,;:]+")

Numbers: TypeAlias = Mapping[str, Set[int]]
"""Numbers of partitions by topic."""


class Overlap(NamedTuple):
    """Why a plan is refused, and what would make it succeed."""

    why: str
    remedy: str


def left_of(moves: Iterable[PlannedMove]) -> Numbers:
    """Returns the partitions of moves that have not ended."""
    found: dict[str, set[int]] = {}
    for move in moves:
        if move.status not in ENDED:
            found.setdefault(move.topic, set()).add(move.partition)
    return found


class _Known(NamedTuple):
    """A message, and the partitions that it has still to move."""

    data: bytes
    left: Numbers


class LeftOfPlans:
    """Keeps the partitions that live plans have still to move, by pid: a plan that waits is decoded once.

    Several threads may look; one of them forgets. ``moves_of``: decodes a plan.
    """

    def __init__(self, moves_of: Callable[[Record], Iterable[PlannedMove]]) -> None:
        self._moves_of = moves_of
        self._known: dict[int, _Known] = {}

    def of(self, record: Record) -> Numbers:
        """Returns the partitions that a plan has still to move."""
        known = self._known.get(record.pid)
        if known is None or known.data != record.data:
            known = self._known[record.pid] = _Known(record.data, left_of(self._moves_of(record)))
            for pid in list(self._known)[:-KNOWN_MAX]:
                self._known.pop(pid, None)
        return known.left

    def keep(self, pids: Collection[int]) -> None:
        """Forgets all other plans."""
        for pid in list(self._known):
            if pid not in pids:
                self._known.pop(pid, None)


def overlap(wanted: Numbers, others: Collection[tuple[Record, Numbers]]) -> Overlap | None:
    """Returns why a plan is refused beside the live ones: they are too many, or one moves some of its partitions."""
    for record, left in others:
        both = [
            TopicPartition(topic, number)
            for topic in sorted(wanted.keys() & left.keys())
            for number in sorted(wanted[topic] & left[topic])
        ]
        if both:
            count = f"{len(both)} of these {sum(map(len, wanted.values()))} partitions"
            ends = "" if record.state is State.FAILED else f", or end it with 'regent procedures cancel {record.pid}'"
            return Overlap(
                f"plan {record.pid} moves {count}: {named(both)}",
                f"wait for its end, 'regent procedures wait {record.pid}'{ends}; then make a new plan",
            )
    if len(others) >= PLANS_MAX:
        first = min(record.pid for record, _ in others)
        return Overlap(
            f"{len(others)} plans run or wait, at most {PLANS_MAX} may",
            f"wait for the end of one, 'regent procedures wait {first}'; then apply this one again",
        )
    return None


def callers_of(records: Iterable[Record], names: Collection[TopicPartition], since: int) -> dict[TopicPartition, str]:
    """Returns the latest caller of each partition whose reassignment a call with a higher pid than ``since`` changed.

    A call that changed many partitions names some of them in its result; nothing is known of the others.
    """
    wanted = {str(name): name for name in names}
    calls = [one for one in records if one.kind == CallKind.ALTER_REASSIGNMENTS and one.pid > since]
    found: dict[TopicPartition, str] = {}
    for call in sorted(calls, key=lambda one: one.pid):
        by = f"{call.caller.principal} ({call.caller.client}), pid {call.pid}"
        named = wanted.keys() & set(_SEPARATORS.split(call.result.decode("utf-8", "replace")))
        found |= {wanted[word]: by for word in named}
    return found
