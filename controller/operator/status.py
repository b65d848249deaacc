"""Reports the status of a daemon and its cluster from memory, with warnings that name a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from brokers.outbound.channel import PropagationLag
from configs.version import product_version
from controller.daemon.daemon import Daemon
from controller.http.models import Status
from controller.kafka.term.term import Term
from controller.metrics.gauges import ShownMode
from controller.operator.cluster_health import live_procedures, throttles_held, throttles_in_force, troubles
from controller.operator.counts import Counts, partitions_of
from controller.operator.endpoint_status import trouble_of
from controller.operator.pauses import pause_sentence
from controller.operator.role_status import StatusReader
from controller.operator.sampling import connected, lease_s, suspension
from controller.procedures.refusals import stopped
from controller.process.wall_clock import wall_ms
from controller.process.wording import abbreviate
from state_machines.model.cluster import Cluster

Lags = dict[int, PropagationLag]

MALFORMED_NAMED_MAX: Final = 5


def status_of(daemon: Daemon, term: Term | None, cluster: Cluster | None, reader: StatusReader) -> Status:
    """Returns the status now. ``term``: the active one; ``cluster``: its model, or the shadow's."""
    seen, holds = reader.role_status, term is not None
    status = Status(
        mode=shown_mode(daemon),
        why=suspension(daemon) or daemon.why,
        version=product_version(),
        controller_id=daemon.settings.controller.id,
        controller_epoch=term.claim.epoch if term is not None else seen.epoch,
        lease_remaining_s=lease_s(daemon),
        role_flag=seen.role_flag,
        on_absence=daemon.settings.controller.on_absence,
        holder=daemon.settings.controller.id if holds else seen.holder,
        holder_kind="daemon" if holds else seen.holder_kind,
        cluster_id=seen.cluster_id,
        ibp=str(daemon.ibp),
        zookeeper_connected=connected(daemon),
        session_timeout_ms=daemon.zk.session_timeout_ms if daemon.zk is not None else 0,
    )
    more = _endpoint(daemon, term, reader) | _of_shadow(daemon)
    if cluster is not None:
        more |= _numbers(daemon, term, cluster, reader)
    return status.model_copy(update=more)


def shown_mode(daemon: Daemon) -> str:
    """Returns the mode, or that the daemon is suspended."""
    return ShownMode.SUSPENDED.value if suspension(daemon) else daemon.mode.value


def lags_of(term: Term | None) -> Lags:
    """Returns the lag of the propagation to each broker; none without a term."""
    return term.channels.lag() if term is not None else {}


def _endpoint(daemon: Daemon, term: Term | None, reader: StatusReader) -> dict[str, object]:
    """Returns the admin endpoint that an active daemon propagates to brokers; before, the announced one."""
    seen = reader.role_status.endpoint
    if daemon.shadow is not None:
        return {}
    shown = term.parts.endpoint.found if term is not None else seen.endpoint if seen.ours else None
    return {
        "admin_endpoint": str(shown) if shown is not None else None,
        "admin_endpoint_trouble": trouble_of(seen, daemon.secret_watch.trouble),
    }


def _of_shadow(daemon: Daemon) -> dict[str, object]:
    shadow = daemon.shadow
    if shadow is None:
        return {}
    statistics = shadow.statistics
    return {
        "shadow_compared": statistics.compared.total() + statistics.differing,
        "shadow_differences": statistics.differing,
        "shadow_report": str(shadow.file) if shadow.file is not None else None,
    }


def _numbers(daemon: Daemon, term: Term | None, cluster: Cluster, reader: StatusReader) -> dict[str, object]:
    counts = reader.counted.of(cluster)
    lags = lags_of(term)
    under_min_isr = _under_min_isr(counts, reader)
    unowned = reader.unowned(lambda: throttles_held(term)) if term is not None else 0
    return {
        "health": [*_suspended(daemon, term), *troubles(cluster, counts, under_min_isr, term)],
        "procedures": live_procedures(term, wall_ms(), () if term is None else reader.progress.idle(term, wall_ms())),
        "throttles": throttles_in_force(term, unowned),
        "unowned_throttle_settings": unowned or None,
        "brokers": len(cluster.brokers),
        "topics": len(cluster.topic_index),
        "partitions": partitions_of(cluster),
        "offline_partitions": len(cluster.leaderless),
        "under_replicated_partitions": counts.under_replicated if counts is not None else None,
        "under_min_isr_partitions": under_min_isr,
        "reassignments": len(cluster.reassigning),
        "cordoned_brokers": (sorted(term.cluster.cordoned) if term is not None else None) or None,
        "drained_brokers": sorted(cluster.drained) or None,
        "remembered_replicas": (term.controller.strays.on() if term is not None else 0) or None,
        "paused": pause_sentence(term.controller.pauses.in_force) if term is not None else None,
        "unacknowledged_partitions": sum(lag.partitions for lag in lags.values()),
        "propagation_age_s_max": max((lag.oldest_s for lag in lags.values()), default=0.0),
        "event_queue_size": len(term.queue) if term is not None else 0,
        "warnings": list(_warnings(daemon, term, counts, lags)),
    }


def _suspended(daemon: Daemon, term: Term | None) -> list[str]:
    """Says first that nobody controls the cluster for now: the rest is as it was when ZooKeeper last answered."""
    why = suspension(daemon) if term is not None else None
    return [] if why is None else [f"the controller is suspended, and the rows below may be old: {why}"]


def _under_min_isr(counts: Counts | None, reader: StatusReader) -> int | None:
    """Returns None while partitions are being counted, or while no broker has sent its default."""
    return counts.under_min_isr if counts is not None and reader.min_isr.default is not None else None


def _warnings(daemon: Daemon, term: Term | None, counts: Counts | None, lags: Lags) -> Iterator[str]:
    counters = daemon.counters
    malformed = list(counters.malformed.items())
    for path, why in malformed[:MALFORMED_NAMED_MAX]:
        yield f"{path} cannot be used: {why}"
    if len(malformed) > MALFORMED_NAMED_MAX:
        yield f"{len(malformed) - MALFORMED_NAMED_MAX} more znodes cannot be used"
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
