"""Words the troubles of a cluster, the worst first, and the progress of its procedures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from controller.kafka.kinds.throttle_settings import owners, throttles_of
from controller.kafka.term.term import Term
from controller.operator.counts import Counts
from controller.operator.dead_brokers import Dead, dead_brokers
from controller.operator.deletions import waiting_deletions
from controller.operator.procedure_items import detail_of
from controller.operator.progress_watch import OPERATOR, Idle
from controller.operator.refused import refused_sentences
from controller.process.wording import counted, in_time, named
from state_machines.admin_rules.throttles import BROKERS, LEADER_RATE, Place, Throttle
from state_machines.model.cluster import Cluster
from state_machines.procedures.record import Record

IDLE_MS_MIN: Final = 60_000
"""Time without progress that is said of a procedure."""
SHOWN_MAX: Final = 10
"""Procedures that a status describes; the others are counted."""


def troubles(cluster: Cluster, counts: Counts | None, under_min_isr: int | None, term: Term | None) -> Iterator[str]:
    """Yields a sentence for each trouble, worst first; ``counts`` None: partitions are still being counted."""
    if offline := len(cluster.leaderless):
        yield f"{counted(offline, 'partition')} without a leader: regent list partitions --offline"
    if under_min_isr:
        below = f"{counted(under_min_isr, 'partition')} below min.insync.replicas, producers with acks=all wait"
        yield f"{below}: regent list partitions --under-min-isr"
    yield from refused_sentences(cluster)
    yield from _dead(dead_brokers(cluster, counts, term))
    yield from waiting_deletions(cluster, term)
    if counts is not None and counts.under_replicated:
        lacking = counted(counts.under_replicated, "partition")
        yield f"{lacking} under-replicated, a replica is not in the ISR: regent list partitions --under-replicated"
    if counts is None:
        yield "more is not known yet: partitions are still being counted"


def _dead(found: Sequence[Dead]) -> Iterator[str]:
    """Names dead brokers that host replicas, or that plans wait for."""
    for one in found[:SHOWN_MAX]:
        roles = [f"it hosts {counted(one.hosts, 'replica')}"] if one.hosts else []
        roles += [f"plan {named(one.plans)} waits for it"] if one.plans else []
        yield f"broker {one.broker} is dead{one.when}: {', and '.join(roles)}"
    if len(found) > SHOWN_MAX:
        yield f"{len(found) - SHOWN_MAX} more brokers are dead: regent list brokers"


def live_procedures(term: Term | None, now_ms: int, idle: Iterable[Idle] = ()) -> list[str]:
    """Returns a sentence for each procedure that has not ended: its age, its progress, and what it waits for.

    ``idle``: how long procedures have made no progress; a long time is said.
    """
    standing = {pid: one for pid, one in _by_root(term, idle).items() if one.cause != OPERATOR}
    live = [record for record in _live(term) if not record.parent]
    told = [_told(record, now_ms, standing.get(record.pid)) for record in live[:SHOWN_MAX]]
    return told + ([f"and {len(live) - SHOWN_MAX} more: regent procedures list"] if len(live) > SHOWN_MAX else [])


def _by_root(term: Term | None, idle: Iterable[Idle]) -> dict[int, Idle]:
    """Returns the procedures without progress for long, by root: a family goes on where one of its parts does."""
    roots = {record.pid: record.root for record in _live(term)}
    found: dict[int, Idle] = {}
    for one in idle:
        root = roots.get(one.pid, one.pid)
        if root not in found or one.for_ms < found[root].for_ms:
            found[root] = one
    return {root: one for root, one in found.items() if one.for_ms >= IDLE_MS_MIN}


def _told(record: Record, now_ms: int, idle: Idle | None) -> str:
    age = in_time(max(0, now_ms - record.submitted_ms) // 1000)
    cause = f"; {record.error}" if record.error else ""
    stands = f", no progress for {in_time(idle.for_ms // 1000)}" if idle is not None else ""
    return f"{record.kind} {record.pid}, for {age}{stands}: {detail_of(record) or record.state.name.lower()}{cause}"


def throttles_held(term: Term | None) -> frozenset[Place]:
    """Returns the throttle settings that procedures own."""
    return frozenset(owners(_live(term)))


def throttles_in_force(term: Term | None, unowned: int = 0) -> list[str]:
    """Returns a sentence for each procedure that throttles brokers, and one on settings that no procedure owns."""
    left = f"{counted(unowned, 'throttle setting')} without an owner: regent throttle show, regent throttle clear"
    found: list[str] = [left] if unowned else []
    for record in _live(term):
        rates = {int(one.entity.name): one.value for one in throttles_of(record) if _is_rate(one)}
        if rates:
            brokers, values = named(sorted(rates)), named(sorted(set(rates.values())))
            found.append(f"brokers {brokers} at {values} bytes/s, by {record.kind} {record.pid}")
    return found[:SHOWN_MAX] + (["and more: regent throttle show"] if len(found) > SHOWN_MAX else [])


def rates_of(term: Term | None) -> dict[int, int]:
    """Returns the throttle in force by broker."""
    return {
        int(one.entity.name): int(one.value) for record in _live(term) for one in throttles_of(record) if _is_rate(one)
    }


def _is_rate(throttle: Throttle) -> bool:
    return throttle.entity.kind == BROKERS and throttle.setting == LEADER_RATE


def _live(term: Term | None) -> Iterable[Record]:
    engine = term.procedures.engine_or_none if term is not None else None
    return () if engine is None else engine.live()
