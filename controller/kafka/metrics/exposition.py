"""Exposes the metrics of a cluster's controller, read at each scrape; nothing is computed for them in between.

``regent_*`` are the daemon's own names, in base units. The names of Kafka's controller are those that jmx_exporter
gives to its MBeans, in lower case. ``docs/reference/metrics.md`` lists both. No metric has a label for a partition or a
topic.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.kafka.metrics.values import HOLDERS, Counters, Gauges, MetricsView, ShownMode
from controller.metrics import Timer, by_broker, by_label, counter, gauge, histogram

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Quantiles of a Kafka timer."""

ZK_MIGRATION_STATE: Final = 4
"""Kafka ``ZkMigrationState.ZK``, which a controller in ZooKeeper mode reports."""
log = logging.getLogger("regent.metrics")


class KafkaState(Enum):
    """The values of Kafka's gauge ``ControllerState``, and their timers without the suffix ``RateAndTimeMs``.

    States without events here keep their timers at zero, for alerts on absent series.
    """

    CONTROLLER_CHANGE = 1, "ControllerChange"
    LEADER_ELECTION = 2, "LeaderElection"
    TOPIC_CHANGE = 3, "TopicChange"
    TOPIC_DELETION = 4, "TopicDeletion"
    PARTITION_REASSIGNMENT = 5, "PartitionReassignment"
    AUTO_LEADER_BALANCE = 6, "AutoLeaderBalance"
    MANUAL_LEADER_BALANCE = 7, "ManualLeaderBalance"
    CONTROLLED_SHUTDOWN = 8, "ControlledShutdown"
    ISR_CHANGE = 9, "IsrChange"
    LEADER_AND_ISR_RESPONSE_RECEIVED = 10, "LeaderAndIsrResponseReceived"
    LOG_DIR_CHANGE = 11, "LogDirChange"
    CONTROLLER_SHUTDOWN = 12, "ControllerShutdown"
    UNCLEAN_LEADER_ELECTION_ENABLE = 13, "UncleanLeaderElectionEnable"
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 14, "TopicUncleanLeaderElectionEnable"
    LIST_PARTITION_REASSIGNMENT = 15, "ListPartitionReassignment"
    UPDATE_FEATURES = 17, "UpdateFeatures"

    def __init__(self, number: int, timer: str) -> None:
        self.number = number
        self.timer = timer


KafkaStates = Mapping[str, KafkaState]
"""By the kind of event in the daemon's queue; kinds that Kafka does not have are absent."""


def _of_kafka(c: Counters, g: Gauges, states: KafkaStates) -> Iterator[Metric]:
    """Yields the metrics under the names of Kafka's controller."""
    yield from _controller(g)
    yield from _queues(c, g)
    yield from _stats(c, states)


def _controller(g: Gauges) -> Iterator[Metric]:
    active = g.mode in (ShownMode.ACTIVE, ShownMode.SUSPENDED)
    values = {
        "ActiveControllerCount": float(g.mode is ShownMode.ACTIVE),
        "OfflinePartitionsCount": g.offline_partitions,
        "PreferredReplicaImbalanceCount": g.preferred_replica_imbalance,
        "ControllerState": g.controller_state,
        "GlobalTopicCount": g.topics,
        "GlobalPartitionCount": g.partitions,
        "TopicsToDeleteCount": g.topics_to_delete,
        "ReplicasToDeleteCount": g.replicas_to_delete,
        "TopicsIneligibleToDeleteCount": g.topics_ineligible_to_delete,
        "ReplicasIneligibleToDeleteCount": g.replicas_ineligible_to_delete,
        "ActiveBrokerCount": g.active_brokers,
        "FencedBrokerCount": 0,
    }
    for name, value in values.items():
        yield gauge(f"kafka_controller_kafkacontroller_{name.lower()}", name, value if active else 0)
    yield gauge("kafka_controller_kafkacontroller_zkmigrationstate", "ZkMigrationState", ZK_MIGRATION_STATE)


def _queues(c: Counters, g: Gauges) -> Iterator[Metric]:
    manager = "kafka_controller_controllereventmanager"
    channels = "kafka_controller_controllerchannelmanager"
    yield gauge(f"{manager}_eventqueuesize", "EventQueueSize", g.event_queue_size)
    yield _timer(f"{manager}_eventqueuetimems", "EventQueueTimeMs", {"": [c.queue_time]})
    yield gauge(f"{channels}_totalqueuesize", "TotalQueueSize", sum(b.queued for b in g.brokers.values()))
    yield by_broker(f"{channels}_queuesize", "QueueSize", {broker: b.queued for broker, b in g.brokers.items()})
    requests = {str(broker): [c.broker_requests[broker]] for broker in g.brokers if broker in c.broker_requests}
    yield _timer(f"{channels}_requestrateandqueuetimems", "RequestRateAndQueueTimeMs", requests)


def _stats(c: Counters, states: KafkaStates) -> Iterator[Metric]:
    stats = "kafka_controller_controllerstats"
    # Exporters disagree on the name of a meter's count: the rules that operators use give it one of these two.
    yield counter(f"{stats}_uncleanleaderelections", "UncleanLeaderElectionsPerSec", c.unclean_elections)
    meter = Metric(f"{stats}_uncleanleaderelectionspersec", "Count of UncleanLeaderElectionsPerSec", "unknown")
    meter.add_sample(meter.name, {}, c.unclean_elections)
    yield meter
    for state in KafkaState:
        timers = [c.events[kind] for kind, found in states.items() if found is state and kind in c.events]
        yield _timer(f"{stats}_{state.timer.lower()}rateandtimems", f"{state.timer}RateAndTimeMs", {"": timers})


def _timer(name: str, text: str, timers: Mapping[str, list[Timer]]) -> Metric:
    """Returns quantiles and count of each timer (several make one), by ``broker_id`` where the key is not empty."""
    family = Metric(name, f"{text}, in milliseconds", "summary")
    for broker, parts in timers.items():
        labels = {"broker_id": broker} if broker else {}
        recent = sorted(seconds for part in parts for seconds in part.lately()) or [0.0]
        for quantile in QUANTILES:
            value = recent[min(int(quantile * len(recent)), len(recent) - 1)]
            family.add_sample(name, labels | {"quantile": str(quantile)}, value * 1e3)
        family.add_sample(f"{name}_count", labels, sum(part.count for part in parts))
        family.add_sample(f"{name}_sum", labels, sum(part.total_s for part in parts) * 1e3)
    return family


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
        yield from _of_kafka(self._counters, gauges, self._states)

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
