"""Computes how far the moves of a plan are from what their destinations report: bytes, rate, time to go, reasons.

Only destinations are measured: a source goes on to write, and its broker may be the busiest one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from state_machines.decisions.plan_caps import Caps, sizes_of
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan, Status
from state_machines.model.cluster import Cluster
from state_machines.model.types import TopicPartition

PLAN_PAUSED: Final = "the plan is paused: regent reassign resume PID"
PLAN_HELD: Final = "the plan is held, because the role was given back: regent reassign resume PID"
ALL_PAUSED: Final = "automatic moves are paused: regent resume"
NEXT_WAVE: Final = "it begins with the next wave"
BEHIND_PLAN: Final = "another plan runs first: regent locks"
NO_LEADER: Final = "the partition has no leader to copy from: start one of its replicas in sync"
IN_SYNC: Final = "its new replicas are in sync: the former ones are stopped next"
ENDING: Final = "nothing is left to copy: it waits for brokers to acknowledge"
CLOSE_TO_END: Final = "its size is copied: the last records, which arrive meanwhile, are left"
STALLED_S_MIN: Final = 2.0
"""Time without a further byte after which a move counts as stalled."""


class Copied(NamedTuple):
    """The log of a new replica. ``offset_lag``: records behind, -1 where its broker does not know it."""

    bytes: int
    offset_lag: int


class Sample(NamedTuple):
    """Reports of destinations at one time. ``unread``: destinations without a report, and why.

    ``copied``: bytes of the plan that were copied by then.
    """

    at_s: float
    logs: Mapping[tuple[TopicPartition, int], Copied]
    unread: Mapping[int, str]
    copied: int = 0


class Standing(NamedTuple):
    """Why a plan as a whole begins nothing.

    ``paused``: all automatic moves are; ``behind``: another plan runs first; ``throttle_missing``: why the throttle is
    not in force.
    """

    paused: bool = False
    behind: bool = False
    throttle_missing: str = ""


class MovePace(Struct, frozen=True):
    """The progress of one move; None: not known. ``records_behind`` is of the slowest new replica."""

    copied_bytes: int = 0
    size_bytes: int = 0
    rate_bytes_per_s: int | None = None
    remaining_s: int | None = None
    records_behind: int | None = None
    why: str = ""


class PlanPace(Struct, frozen=True):
    """The progress of a plan. ``sizes_unknown``: moves that are left, whose bytes are not known and do not count."""

    copied_bytes: int
    size_bytes: int
    sizes_unknown: int
    rate_bytes_per_s: int | None
    remaining_s: int | None


def destinations(plan: ReassignPlan, cluster: Cluster) -> dict[int, list[TopicPartition]]:
    """Returns the partitions that brokers receive for the plan now, by broker."""
    found: dict[int, list[TopicPartition]] = {}
    for move in plan.moves:
        for broker in _adding(move, cluster):
            found.setdefault(broker, []).append(TopicPartition(move.topic, move.partition))
    return found


def paces(
    plan: ReassignPlan, cluster: Cluster, now: Sample, before: Sample | None, standing: Standing
) -> list[MovePace]:
    """Returns the progress of each move; rates are those since ``before``."""
    caps = Caps(plan, cluster, sizes_of(plan.moves, {}))
    copying = sum(bool(_adding(move, cluster)) for move in plan.moves)
    look = _Look(plan, cluster, now, before, copying)
    return [look.pace(move, caps, standing) for move in plan.moves]


def total(plan: ReassignPlan, each: Sequence[MovePace], now: Sample, before: Sample | None) -> PlanPace:
    """Returns the progress of the plan; its rate is that since ``before``.

    None where other destinations report now than before: bytes of an earlier time would count as those of this one.
    None where less is copied now, too: the plan is being taken back since, and copies to other brokers.
    """
    counted = {Status.QUEUED, Status.BEGUN, Status.DONE}
    moves = [(move, pace) for move, pace in zip(plan.moves, each, strict=True) if move.status in counted]
    size, copied = sum(pace.size_bytes for _, pace in moves), sum(pace.copied_bytes for _, pace in moves)
    unknown = sum(bool(move.added) and not move.bytes and move.status is not Status.DONE for move, _ in moves)
    rate = None
    same = before is not None and now.copied >= before.copied and before.unread.keys() == now.unread.keys()
    if before is not None and same and now.at_s > before.at_s:
        rate = round((now.copied - before.copied) / (now.at_s - before.at_s))
    remaining = 0 if copied >= size else -(-(size - copied) // rate) if rate else None
    return PlanPace(copied, size, unknown, rate, remaining if not unknown else None)


def _adding(move: PlannedMove, cluster: Cluster) -> tuple[int, ...]:
    """Returns the brokers that receive a replica now."""
    row = cluster.find(move.topic, move.partition) if move.status is Status.BEGUN else None
    written = cluster.reassigning.get(row) if row is not None else None
    return written.kept.adding if written is not None and written.target == move.target else ()


class _Look:
    """One look at the moves of a plan."""

    def __init__(self, plan: ReassignPlan, cluster: Cluster, now: Sample, before: Sample | None, copying: int) -> None:
        self._plan = plan
        self._cluster = cluster
        self._now = now
        self._before = before
        self._copying = copying

    def pace(self, move: PlannedMove, caps: Caps, standing: Standing) -> MovePace:
        """Returns the progress of one move."""
        if move.status is Status.BEGUN:
            return self._copied(move)
        if move.status is Status.DONE:
            return MovePace(move.bytes, move.bytes)
        why = move.why or (self._why_queued(move, caps, standing) if move.status is Status.QUEUED else "")
        return MovePace(0, move.bytes, why=why)

    def _why_queued(self, move: PlannedMove, caps: Caps, standing: Standing) -> str:
        if self._plan.paused or self._plan.held:
            return PLAN_HELD if self._plan.held else PLAN_PAUSED
        if standing.paused:
            return ALL_PAUSED
        if standing.behind:
            return BEHIND_PLAN
        if standing.throttle_missing:
            return f"the throttle is not in force yet: {standing.throttle_missing}"
        return caps.why_full(move.added, move.replica_bytes) or NEXT_WAVE

    def _copied(self, move: PlannedMove) -> MovePace:
        adding, name = _adding(move, self._cluster), TopicPartition(move.topic, move.partition)
        if not adding:
            why = "; ".join(self._behind(move, name)) or ENDING
            return MovePace(move.bytes, move.bytes, why=why)
        logs = {broker: self._now.logs.get((name, broker), Copied(0, -1)) for broker in adding}
        copied = sum(log.bytes for log in logs.values())
        size = max(move.bytes, copied)
        rate = self._rate(name, adding)
        left = size - copied
        behind = max((log.offset_lag for log in logs.values()), default=-1)
        remaining = -(-left // rate) if rate and left else None
        why = "; ".join(dict.fromkeys(self._hindrances(move, name, logs))) or (CLOSE_TO_END if not left else "")
        return MovePace(copied, size, rate, remaining, behind if behind >= 0 else None, why)

    def _rate(self, name: TopicPartition, adding: Iterable[int]) -> int | None:
        if self._before is None or self._now.at_s <= self._before.at_s:
            return None
        grown = sum(
            max(0, self._now.logs[name, b].bytes - self._before.logs.get((name, b), Copied(0, -1)).bytes)
            for b in adding
            if (name, b) in self._now.logs
        )
        return round(grown / (self._now.at_s - self._before.at_s))

    def _hindrances(self, move: PlannedMove, name: TopicPartition, logs: Mapping[int, Copied]) -> Iterator[str]:
        """Yields why new replicas copy nothing at the moment."""
        row = self._cluster.find(*name)
        assert row is not None, "a move that is under way has a row"
        known = self._cluster.rows[row]
        lagging = [broker for broker in logs if broker not in known.isr]
        if not lagging:
            yield from list(self._behind(move, name)) or [IN_SYNC]
        elif known.leader not in self._cluster.brokers:
            yield NO_LEADER
        for broker in lagging:
            if broker not in self._cluster.live:
                yield f"broker {broker} is not live: start it, or take the plan back"
            elif broker in self._cluster.failed(row):
                yield f"the log directory of the replica on broker {broker} has failed: replace the disk"
            elif broker in self._now.unread:
                yield f"broker {broker} sends no report: {self._now.unread[broker]}"
            elif (name, broker) not in self._now.logs:
                yield f"broker {broker} has no log of it yet: its fetcher has not started"
            elif logs[broker].offset_lag != 0 and self._is_stalled(name, broker):
                yield f"broker {broker} copies nothing: {self._why_stalled()}"

    def _behind(self, move: PlannedMove, name: TopicPartition) -> Iterator[str]:
        """Yields a sentence for each replica of the target that is not in sync: the move ends once all are."""
        row = self._cluster.find(*name)
        isr = self._cluster.rows[row].isr if row is not None else move.target
        for broker in move.target:
            if broker not in isr and broker not in self._cluster.live:
                yield f"broker {broker}, which keeps its replica, is not live: start it, or take the plan back"
            elif broker not in isr:
                yield f"the replica on broker {broker} is not in sync: it copies what it missed"

    def _is_stalled(self, name: TopicPartition, broker: int) -> bool:
        here, before = self._now.logs[name, broker], self._before
        if before is None or self._now.at_s - before.at_s < STALLED_S_MIN:
            return here.bytes == 0
        known = before.logs.get((name, broker))
        return known is not None and known.bytes == here.bytes

    def _why_stalled(self) -> str:
        rate = self._plan.rate_in_force
        if rate:
            return (
                f"the throttle of {rate} bytes/s is shared by {self._copying} moves: "
                "regent reassign set PID --throttle RATE"
            )
        return "its fetcher has not started, or the leader does not respond: see the broker's log"
