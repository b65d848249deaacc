"""The metrics of Kafka's controller, under the names that jmx_exporter gives to its MBeans (in lower case).

So dashboards and alerts made for Kafka's controller show the daemon's. Where the brokers' exporter is scraped too,
``sum(kafka_controller_kafkacontroller_activecontrollercount) == 1`` holds over brokers and daemons together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client.metrics_core import Metric

from controller.metrics.counters import Counters, Timer
from controller.metrics.gauges import Gauges, ShownMode
from controller.metrics.metric_families import by_broker, counter, gauge

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those of a Kafka timer."""

ZK_MIGRATION_STATE: Final = 4
"""Kafka ``ZkMigrationState.ZK``: what a controller in ZooKeeper mode reports."""


class KafkaState(NamedTuple):
    """A value of Kafka's gauge ``ControllerState``, and its timer without the suffix ``RateAndTimeMs``."""

    value: int
    timer: str


STATES: Final[Mapping[str, KafkaState]] = {
    "failover": KafkaState(1, "ControllerChange"),
    "broker_change": KafkaState(2, "LeaderElection"),
    "broker_modifications": KafkaState(2, "LeaderElection"),
    "topic_change": KafkaState(3, "TopicChange"),
    "partition_modifications": KafkaState(3, "TopicChange"),
    "topic_deletion": KafkaState(4, "TopicDeletion"),
    "deletion_progress": KafkaState(4, "TopicDeletion"),
    "delete_topics": KafkaState(4, "TopicDeletion"),
    "controlled_shutdown": KafkaState(8, "ControlledShutdown"),
    "isr_notification": KafkaState(9, "IsrChange"),
    "alter_partition": KafkaState(9, "IsrChange"),
    "reassign_partitions": KafkaState(5, "PartitionReassignment"),
    "resume_reassignments": KafkaState(5, "PartitionReassignment"),
    "advance_reassignments": KafkaState(5, "PartitionReassignment"),
    "finish_reassignments": KafkaState(5, "PartitionReassignment"),
    "dropped_replicas": KafkaState(5, "PartitionReassignment"),
    "reassigned_state": KafkaState(5, "PartitionReassignment"),
    "reassigned_states": KafkaState(5, "PartitionReassignment"),
    "alter_reassignments": KafkaState(5, "PartitionReassignment"),
    "list_reassignments": KafkaState(15, "ListPartitionReassignment"),
    "auto_balance": KafkaState(6, "AutoLeaderBalance"),
    "preferred_election": KafkaState(7, "ManualLeaderBalance"),
    "elect_leaders": KafkaState(7, "ManualLeaderBalance"),
    "replicas_failed": KafkaState(10, "LeaderAndIsrResponseReceived"),
    "log_dir_event": KafkaState(11, "LogDirChange"),
    "config_change": KafkaState(13, "UncleanLeaderElectionEnable"),
    "replace_daemons": KafkaState(5, "PartitionReassignment"),
}
"""By the kind of event in the daemon's queue. Kinds that Kafka does not have are 0 (Idle) and have no Kafka timer."""

TIMERS: Final = (
    "ControllerChange", "LeaderElection", "TopicChange", "TopicDeletion", "PartitionReassignment",
    "AutoLeaderBalance", "ManualLeaderBalance", "ControlledShutdown", "IsrChange", "LeaderAndIsrResponseReceived",
    "LogDirChange", "ControllerShutdown", "UncleanLeaderElectionEnable", "TopicUncleanLeaderElectionEnable",
    "ListPartitionReassignment", "UpdateFeatures",
)  # fmt: skip
"""Every timer of Kafka's ``ControllerStats``; those without events here stay at zero, for alerts on absent series."""


def controller_state(kind: str | None) -> int:
    """The value of Kafka's ``ControllerState`` while an event of ``kind`` is handled (None: nothing is)."""
    state = STATES.get(kind or "")
    return state.value if state else 0


def collect(c: Counters, g: Gauges) -> Iterator[Metric]:
    """One scrape."""
    yield from _controller(g)
    yield from _queues(c, g)
    yield from _stats(c)


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


def _stats(c: Counters) -> Iterator[Metric]:
    stats = "kafka_controller_controllerstats"
    # Exporters disagree on the name of a meter's count: the rules that operators use give it one of these two.
    yield counter(f"{stats}_uncleanleaderelections", "UncleanLeaderElectionsPerSec", c.unclean_elections)
    meter = Metric(f"{stats}_uncleanleaderelectionspersec", "Count of UncleanLeaderElectionsPerSec", "unknown")
    meter.add_sample(meter.name, {}, c.unclean_elections)
    yield meter
    for name in TIMERS:
        kinds = [kind for kind, state in STATES.items() if state.timer == name and kind in c.events]
        timers = [c.events[kind] for kind in kinds]
        yield _timer(f"{stats}_{name.lower()}rateandtimems", f"{name}RateAndTimeMs", {"": timers})


def _timer(name: str, text: str, timers: Mapping[str, list[Timer]]) -> Metric:
    """Quantiles and count of each timer (several make one), by ``broker_id`` where the key is not empty."""
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
