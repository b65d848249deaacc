"""Samples the values behind the metrics from the daemon, at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from controller.daemon.daemon import Daemon
from controller.daemon.state import Mode
from controller.kafka.metrics import values as gauge
from controller.kafka.metrics.values import BrokerGauges, Gauges
from controller.kafka.procedures import reassign
from controller.kafka.term.dispatch import controller_state
from controller.kafka.term.term import Term
from controller.operator.brokers import dead_brokers
from controller.operator.counts import Counts, Deletions, imbalance, partitions_of
from controller.operator.health import rates_of
from controller.operator.present import StatusReader, connected, lease_part, lease_s, suspension
from controller.operator.progress import ProgressWatch
from controller.process.clock import boottime_s, wall_ms
from state_machines.procedures.kernel import is_stuck

MODES: Final = {
    Mode.CONNECTING: gauge.ShownMode.STARTING,
    Mode.STANDBY: gauge.ShownMode.STANDBY,
    Mode.BLOCKED: gauge.ShownMode.BLOCKED,
    Mode.CLAIMING: gauge.ShownMode.STANDBY,
    Mode.TAKING_OFFICE: gauge.ShownMode.STANDBY,
    Mode.ACTIVE: gauge.ShownMode.ACTIVE,
    Mode.HANDING_BACK: gauge.ShownMode.ACTIVE,
    Mode.SHADOW: gauge.ShownMode.SHADOW,
    Mode.STOPPING: gauge.ShownMode.STOPPING,
}


def gauges_of(daemon: Daemon, term: Term | None, status_reader: StatusReader) -> Gauges:
    """Returns the present values; ``term`` is the term once it is active."""
    zk = daemon.zk
    base = Gauges(
        mode=gauge.ShownMode.SUSPENDED if suspension(daemon) else MODES[daemon.mode],
        lease_remaining_s=lease_s(daemon),
        lease_remaining_part=lease_part(daemon),
        heartbeat_age_s=max(0.0, boottime_s() - daemon.heartbeat_s),
        holder=status_reader.role_status.holder_kind if term is None else "daemon",
        role_flag=status_reader.role_status.role_flag,
        zookeeper_connected=connected(daemon),
        session_timeout_s=zk.session_timeout_ms / 1000 if zk is not None else 0.0,
        ibp_mismatch_brokers=len(daemon.counters.lowered_ibp_brokers),
        outranking_brokers=len(term.outranked.brokers) if term is not None else 0,
        malformed_znodes=len(daemon.counters.malformed),
    )
    if daemon.term is not None and daemon.term.stands_still and daemon.lease is not None:
        base = replace(base, standstill_s=max(0.0, -daemon.lease.remaining_s()))
    if term is None:
        return base
    counts, deletions = status_reader.counted.seen(term.cluster)
    return _with_procedures(_with_model(base, term, counts, deletions), term, counts, status_reader.progress)


def _with_model(base: Gauges, term: Term, counts: Counts, deletions: Deletions) -> Gauges:
    """Adds the values of the model to those of every mode."""
    cluster = term.cluster
    return replace(
        base,
        controller_epoch=term.claim.epoch,
        event_queue_size=len(term.queue),
        brokers={
            b: BrokerGauges(
                queued=lag.partitions,
                age_s=lag.oldest_s,
                unacknowledged_partitions=lag.partitions,
                refused_partitions=len(cluster.refusals.on(b)),
            )
            for b, lag in term.channels.lag().items()
        },
        endpoint_shown=term.parts.endpoint.found is not None,
        controller_state=controller_state(term.handling),
        offline_partitions=len(cluster.leaderless),
        under_replicated_partitions=counts.under_replicated,
        under_min_isr_partitions=counts.under_min_isr,
        preferred_replica_imbalance=imbalance(counts, deletions),
        reassigning_partitions=len(cluster.reassigning),
        drained_brokers=len(cluster.drained),
        remembered_replicas=term.controller.strays.on(),
        unstopped_replicas=term.controller.strays.on(cluster.brokers),
        paused=term.controller.pauses.in_force is not None,
        topics=len(cluster.topic_index),
        partitions=partitions_of(cluster),
        active_brokers=len(cluster.brokers),
        topics_to_delete=len(cluster.deletions),
        replicas_to_delete=deletions.replicas,
        topics_ineligible_to_delete=deletions.ineligible_topics,
        replicas_ineligible_to_delete=deletions.ineligible_replicas,
    )


def _with_procedures(base: Gauges, term: Term, counts: Counts, progress: ProgressWatch) -> Gauges:
    """Adds the values of procedures, and of what plans wait for."""
    found, paces = procedures_of(term), progress.paces()
    idle_s: dict[tuple[str, str], float] = {}
    for one in progress.idle(term, wall_ms()):
        idle_s[one.kind, one.cause] = max(idle_s.get((one.kind, one.cause), 0.0), one.for_ms / 1_000)
    return replace(
        base,
        procedures=sum(found.by_kind.values()),
        live_procedures=found.by_kind,
        paused_plans=found.paused_plans,
        procedures_stuck=found.stuck,
        procedures_unusable=found.unusable,
        procedures_parked=found.parked,
        procedures_stand_still=term.procedures.engine_or_none is None,
        idle_s=idle_s,
        copied_bytes=sum(pace.copied_bytes for pace in paces),
        plan_bytes=sum(pace.size_bytes for pace in paces),
        throttles_bytes_per_s=dict(sorted(rates_of(term).items())),
        dead_brokers={one.broker: one.hosts for one in dead_brokers(term.cluster, counts, term)},
    )


class Procedures(NamedTuple):
    """Counts of procedures that have not ended. ``unusable``: records that the daemon cannot go on with.

    ``parked``: those that ended terms, and are not run.
    """

    by_kind: Mapping[tuple[str, str], int]
    stuck: int
    paused_plans: int
    unusable: int
    parked: int = 0


def procedures_of(term: Term) -> Procedures:
    """Counts the procedures of a term; none where the records cannot be used."""
    engine = term.procedures.engine_or_none
    if engine is None:
        return Procedures({}, 0, 0, 0)
    live = [record for record in engine.records.values() if not record.state.is_final]
    by_kind = Counter((record.kind, record.state.name.lower()) for record in live)
    stuck, paused = sum(map(is_stuck, live)), sum(map(reassign.is_paused, live))
    return Procedures(by_kind, stuck, paused, len(engine.unusable), len(engine.parked))
