"""Exposes the metrics of Kafka's controller, under the (lower-case) names that jmx_exporter gives to its MBeans.

So dashboards and alerts made for Kafka's controller show the daemon's. Where the brokers' exporter is scraped too,
``sum(kafka_controller_kafkacontroller_activecontrollercount) == 1`` holds over brokers and daemons together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from prometheus_client.metrics_core import Metric

from controller.kafka.metrics.values import Counters, Gauges, ShownMode
from controller.metrics import Timer, by_broker, counter, gauge

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Quantiles of a Kafka timer."""

ZK_MIGRATION_STATE: Final = 4
"""Kafka ``ZkMigrationState.ZK``, which a controller in ZooKeeper mode reports."""


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


def collect(c: Counters, g: Gauges, states: KafkaStates) -> Iterator[Metric]:
    """Yields the metrics of one scrape."""
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
