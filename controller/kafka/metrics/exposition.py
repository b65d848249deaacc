"""Exposes the metrics of a cluster's controller, read at each scrape; nothing is computed for them in between.

``regent_*`` are the daemon's own names, in base units; :mod:`controller.kafka.metrics.kafka_names` adds the names of
Kafka's controller. ``docs/reference/metrics.md`` lists both. No metric has a label for a partition or a topic.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.kafka.metrics import kafka_names
from controller.kafka.metrics.kafka_names import KafkaStates
from controller.kafka.metrics.values import HOLDERS, Counters, Gauges, MetricsView, ShownMode
from controller.metrics import by_broker, by_label, counter, gauge, histogram

log = logging.getLogger("regent.metrics")


class KafkaCollector(Collector):
    """All metrics of a cluster's controller. A failing view costs its gauges, never the scrape.

    ``states``: those of Kafka's controller, by the kinds of the daemon's events.
    """

    def __init__(self, counters: Counters, view: MetricsView, states: KafkaStates) -> None:
        self._counters = counters
        self._view = view
        self._states = states
        self._failures = 0

    def describe(self) -> Iterable[Metric]:
        """Yields nothing, because the registration of the collector must not scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics of one scrape."""
        gauges = self._gauges()
        yield counter("regent_scrape_failures", "Scrapes without current gauges", self._failures)
        yield from _role(gauges)
        yield from _outcomes(self._counters, gauges)
        yield from _loop(self._counters, gauges)
        yield from _propagation(self._counters, gauges)
        yield from kafka_names.collect(self._counters, gauges, self._states)

    def _gauges(self) -> Gauges:
        try:
            return self._view.gauges()
        except Exception:
            self._failures += 1
            log.exception("a scrape shows zeros because the daemon's state could not be read")
            return Gauges()


def _role(g: Gauges) -> Iterator[Metric]:
    modes = GaugeMetricFamily("regent_role", "1 for the mode the daemon is in, 0 for the others", labels=["mode"])
    for mode in ShownMode:
        modes.add_metric([mode.value], float(mode is g.mode))
    yield modes
    holders = GaugeMetricFamily("regent_role_held", "1 for the kind of process in /controller", labels=["by"])
    for holder in HOLDERS:
        holders.add_metric([holder], float(holder == g.holder))
    yield holders
    yield gauge("regent_role_wanted", "1 while the role flag is regent", float(g.role_flag == "regent"))
    yield gauge("regent_term_epoch", "Controller epoch of the current term, 0 outside", g.controller_epoch)
    yield gauge(
        "regent_lease_remaining_seconds",
        "Until the lease ends, after which the daemon writes nothing",
        g.lease_remaining_s,
    )
    yield gauge("regent_lease_remaining_ratio", "The same as a part of the whole lease", g.lease_remaining_part)
    yield gauge("regent_heartbeat_age_seconds", "Since the last answered heartbeat was sent", g.heartbeat_age_s)
    yield gauge(
        "regent_standstill_seconds",
        "Since the lease of the current term ran out, which does nothing until ZooKeeper answers; 0 otherwise",
        g.standstill_s,
    )
    yield gauge("regent_zookeeper_connected", "1 while connected with a session", float(g.zookeeper_connected))
    yield gauge("regent_zookeeper_session_timeout_seconds", "As negotiated", g.session_timeout_s)
    yield gauge("regent_ibp_mismatch_brokers", "Live brokers whose IBP is not the controller's", g.ibp_mismatch_brokers)
    yield gauge("regent_outranking_brokers", "Live ones that saw a higher controller epoch", g.outranking_brokers)
    yield gauge("regent_malformed_znodes", "Znodes not understood, which are left alone", g.malformed_znodes)
    yield gauge("regent_admin_endpoint_shown", "1 while brokers show the admin endpoint to clients", g.endpoint_shown)
    yield gauge(
        "regent_under_replicated_partitions",
        "ISR below the replica set without those being added",
        g.under_replicated_partitions,
    )
    yield gauge("regent_under_min_isr_partitions", "ISR below min.insync.replicas", g.under_min_isr_partitions)
    yield gauge("regent_reassigning_partitions", "Partitions that move", g.reassigning_partitions)
    yield by_broker(
        "regent_dead_broker_replicas", "Replicas of a dead broker; 0 where only a plan waits for it", g.dead_brokers
    )
    yield gauge("regent_drained_brokers", "Brokers that are marked as drained", g.drained_brokers)
    yield gauge("regent_remembered_replicas", "Removed ones that brokers have still to stop", g.remembered_replicas)
    yield gauge("regent_unstopped_replicas", "Those of them on registered brokers", g.unstopped_replicas)
    yield gauge("regent_moves_paused", "Whether automatic moves are paused (1) by an operator", int(g.paused))
    yield gauge("regent_procedures", "Procedures that have not ended", g.procedures)
    live = GaugeMetricFamily("regent_live_procedures", "The same by kind and state", labels=["kind", "state"])
    for names, count in sorted(g.live_procedures.items()):
        live.add_metric(names, count)
    yield live
    idle = GaugeMetricFamily(
        "regent_procedures_without_progress_seconds",
        "The longest such time of a procedure, by kind and cause",
        labels=["kind", "cause"],
    )
    for names, seconds in sorted(g.idle_s.items()):
        idle.add_metric(names, seconds)
    yield idle
    yield gauge("regent_plan_copied_bytes", "Bytes that the plans which copy have copied", g.copied_bytes)
    yield gauge("regent_plan_bytes", "Bytes of these plans in all", g.plan_bytes)
    yield by_broker("regent_broker_throttle_bytes_per_second", "Throttle in force", g.throttles_bytes_per_s)
    yield gauge("regent_paused_plans", "Reassign plans that are paused, or held since a hand-back", g.paused_plans)
    yield gauge("regent_procedures_stuck", "Those with a step that was tried in vain ten times", g.procedures_stuck)
    yield gauge("regent_procedures_unusable", "Records that the daemon cannot go on with", g.procedures_unusable)
    yield gauge("regent_procedures_parked", "Those that ended terms, and are not run", g.procedures_parked)
    yield gauge(
        "regent_procedures_stand_still",
        "1 while their store cannot be used on the active daemon",
        float(g.procedures_stand_still),
    )


def _outcomes(c: Counters, g: Gauges) -> Iterator[Metric]:
    yield counter("regent_commits", "Transactions applied to ZooKeeper", c.commits)
    yield counter("regent_writes", "Znode writes in them", c.writes)
    yield counter("regent_conflicts", "Writes that met a foreign write and were decided again", c.conflicts)
    yield counter("regent_unknown_outcomes", "Writes whose reply was lost", c.unknown_outcomes)
    yield counter("regent_fenced", "Terms that ended because another controller had claimed", c.fenced)
    yield counter("regent_terms", "Terms this process began", c.terms)
    yield counter("regent_standstills", "Times that the lease of a term ran out", c.standstills)
    yield counter("regent_interim_terms", "Terms that a broker held between two of the daemons'", c.interim_terms)
    yield counter("regent_repaired_assignments", "Fresh topics freed of a daemon's id", c.repaired_assignments)
    yield counter("regent_recorded_calls", "Calls of clients that were recorded with their effect", c.recorded_calls)
    yield counter(
        "regent_unrecorded_calls", "Calls of clients that were carried out without a record", c.unrecorded_calls
    )
    yield counter("regent_shadow_compared", "Decisions compared in shadow mode", c.shadow_compared)
    yield counter("regent_shadow_differences", "Of them, different from what was written", c.shadow_differences)
    yield from _journal(c)
    yield from _snapshots(c)
    yield by_label("regent_refusals", "Transitions that were refused", "reason", c.refusals)
    yield by_label("regent_failures", "Writes that failed for good", "reason", c.failures)
    yield by_label("regent_resignations", "Terms that were given up", "reason", c.resignations)
    yield by_label("regent_broker_answers", "Answers of brokers by error", "error", c.answers)


def _loop(c: Counters, g: Gauges) -> Iterator[Metric]:
    yield gauge("regent_event_queue_size", "Events that wait for their handlers", g.event_queue_size)
    yield histogram("regent_event_queue_seconds", "Time an event waits for its handler", {"": c.queue_time})
    yield histogram("regent_event_seconds", "Time a handler takes", c.events, "event")
    yield histogram("regent_heartbeat_seconds", "Time ZooKeeper takes to answer a heartbeat", {"": c.heartbeats})
    yield histogram("regent_commit_seconds", "Until all writes of a decision are in ZooKeeper", {"": c.commit_time})


def _journal(c: Counters) -> Iterator[Metric]:
    yield counter("regent_journal_rows", "Rows written to the journal", c.journal_rows)
    yield counter("regent_journal_rows_lost", "Rows that are missing in the journal", c.journal_rows_lost)
    yield gauge("regent_journal_bytes", "Size of the journal on disk", c.journal_bytes)
    yield gauge("regent_journal_failing", "1 while the journal cannot be written", float(bool(c.journal_failing)))
    yield counter(
        "regent_journal_topic_rows", "Rows that the topic of the journal has acknowledged", c.journal_topic_rows
    )
    yield counter("regent_journal_topic_rows_lost", "Rows that are missing in the topic", c.journal_topic_rows_lost)
    yield gauge("regent_journal_topic_bytes_waiting", "Rows that wait for the topic", c.journal_topic_bytes_waiting)
    failing = float(bool(c.journal_topic_failing))
    yield gauge("regent_journal_topic_failing", "1 while the topic takes no rows", failing)


def _snapshots(c: Counters) -> Iterator[Metric]:
    yield counter("regent_snapshots", "Snapshots that were taken", c.snapshots)
    yield counter("regent_snapshot_failures", "Snapshots that could not be taken", c.snapshot_failures)
    age_s = time.monotonic() - c.snapshot_s if c.snapshot_s is not None else math.nan
    yield gauge("regent_snapshot_age_seconds", "Age of the last snapshot that this process took", age_s)


def _propagation(c: Counters, g: Gauges) -> Iterator[Metric]:
    yield histogram(
        "regent_propagation_lag_seconds", "From a change to its acknowledgement by a broker", {"": c.propagation}
    )
    yield by_broker(
        "regent_broker_propagation_age_seconds",
        "Age of the oldest change that a broker has not acknowledged",
        {broker: b.age_s for broker, b in g.brokers.items()},
    )
    yield by_broker(
        "regent_broker_unacknowledged_partitions",
        "Partitions that are committed and that a broker has not acknowledged",
        {broker: b.unacknowledged_partitions for broker, b in g.brokers.items()},
    )
    yield by_broker(
        "regent_broker_refused_partitions",
        "Partitions whose replica a broker refuses",
        {broker: b.refused_partitions for broker, b in g.brokers.items()},
    )
