"""Words the troubles of a cluster, the worst first, the progress of its procedures, and warnings that name a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from controller.daemon.daemon import Daemon
from controller.kafka.procedures.throttle_settings import owners, throttles_of
from controller.kafka.term.term import Term
from controller.operator.brokers import Dead, Lags, dead_brokers
from controller.operator.counts import Counts
from controller.operator.deletions import waiting_deletions
from controller.operator.present import Announced, StatusReader, suspension
from controller.operator.procedure_items import detail_of
from controller.operator.progress import OPERATOR, Idle
from controller.operator.reasons import refused_sentences
from controller.procedures.refusals import stopped
from controller.process.wording import abbreviate, counted, in_time, named
from state_machines.admin_rules.throttles import BROKERS, LEADER_RATE, Place, Throttle
from state_machines.model.cluster import Cluster
from state_machines.procedures.record import Record

IDLE_MS_MIN: Final = 60_000
"""Time without progress that is said of a procedure."""
SHOWN_MAX: Final = 10
"""Procedures that a status describes; the others are counted."""
MALFORMED_NAMED_MAX: Final = 5
FOREIGN: Final = (
    "its announcement is not sealed with this daemon's admin secret: give both the same admin.secret_file, then "
    "restart the endpoint"
)
SILENT: Final = (
    "none has announced itself beside this daemon: Kafka's tools find no controller while it holds the role; see the "
    "endpoint's log"
)


def suspended(daemon: Daemon, term: Term | None) -> list[str]:
    """Says first that nobody controls the cluster for now: the rest is as it was when ZooKeeper last answered."""
    why = suspension(daemon) if term is not None else None
    return [] if why is None else [f"the controller is suspended, and the rows below may be old: {why}"]


def under_min_isr_of(counts: Counts | None, reader: StatusReader) -> int | None:
    """Returns None while partitions are being counted, or while no broker has sent its default."""
    return counts.under_min_isr if counts is not None and reader.min_isr.default is not None else None


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


def warnings(daemon: Daemon, term: Term | None, counts: Counts | None, lags: Lags) -> Iterator[str]:
    """Yields what an operator should know or mend about this daemon, with the remedy."""
    counters = daemon.counters
    malformed = list(counters.malformed.items())
    for path, why in malformed[:MALFORMED_NAMED_MAX]:
        yield f"{path} cannot be used: {why}"
    if len(malformed) > MALFORMED_NAMED_MAX:
        more = len(malformed) - MALFORMED_NAMED_MAX
        yield f"{more} more znodes cannot be used: regent describe cluster names them all"
    if counters.open_znodes:
        yield counters.open_znodes
    if term is not None:
        if above := term.outranked.brokers:
            yield (
                f"brokers {above} have seen a higher controller epoch, and refuse all requests of this daemon: "
                "restart them"
            )
        yield from sorted(term.controller.adoption.advised)
        yield from _procedures(term)
    yield from _unreachable(lags)
    if counters.lowered_ibp_brokers:
        yield f"brokers {sorted(counters.lowered_ibp_brokers)} have another IBP than the controller"
    if counters.journal_failing:
        yield f"the journal cannot be written, decisions are not recorded: {counters.journal_failing}"
    if counters.journal_topic_failing:
        yield f"no row of the journal reaches its topic: {counters.journal_topic_failing}"
    if counters.shadow_differences:
        yield (
            f"{counters.shadow_differences} of {counters.shadow_compared} compared decisions differ from Kafka's: "
            "see the log"
        )
    if counts is None:
        yield "partitions are still being counted: under-replicated ones are not known yet"


def trouble_of(seen: Announced, secret_trouble: str | None) -> str | None:
    """Returns why the endpoint serves no clients, or would not after a restart; None without trouble."""
    if secret_trouble is not None:
        return secret_trouble
    if seen.endpoint is None:
        return SILENT
    return None if seen.ours else FOREIGN


def _procedures(term: Term) -> Iterator[str]:
    """Names the procedures that do not go on, or why none does."""
    engine = term.procedures.engine_or_none
    if engine is not None:
        yield from stopped(engine, "regent procedures", "regent procedures list -o wide")
    elif term.procedures.loads_later:
        yield (
            f"{term.procedures.unavailable}: they are loaded again by themselves; where one of them is the cause, "
            "'regent procedures bypass PID' ends it before"
        )


def _unreachable(lags: Lags) -> Iterator[str]:
    """Names the registered brokers to which no connection can be made, with the error of the first."""
    unreachable = [lag for lag in lags.values() if lag.unreachable]
    if unreachable:
        named = abbreviate([str(lag.broker_id) for lag in unreachable], "brokers")
        first = f"broker {unreachable[0].broker_id}: {unreachable[0].last_error}"
        yield f"registered, but unreachable: {named} ({first}); a dead one leaves when its ZooKeeper session ends"
