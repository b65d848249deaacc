"""Builds the response items of partitions, topics, brokers and verdicts, without I/O."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from brokers.outbound.channel import PropagationLag
from brokers.wire.versions import Ibp
from controller.daemon.preflight.listeners import PROTOCOL_NAMES
from controller.http import models
from controller.http.models import Partition, Topic, Verification
from controller.http.record_items import time_of
from controller.journal import query
from controller.kafka.path.adoption import IBP
from controller.operator.comparison import CopyDifference
from controller.operator.counts import Counts
from controller.operator.dead_brokers import Dead
from controller.operator.verify import Verdict
from state_machines.admin_rules.broker_settings import InForce, advice, shown, source
from state_machines.journal.events import Row
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import at, under
from state_machines.model.types import Broker, PartitionState
from state_machines.model.types import Topic as TopicRows


def setting_item(found: InForce) -> models.Setting:
    """Builds the item of one setting."""
    return models.Setting(
        key=f"controller.{found.setting.key}",
        broker_setting=found.setting.name,
        value=shown(found.value),
        source=source(found),
        differs=advice(found) or "",
    )


def ibp_item(ibp: Ibp, *, given: bool) -> models.Setting:
    """Builds the item of the term's IBP. ``given``: the operator has set it."""
    source = "set by us" if given else "the lowest of the brokers, as known when the term began"
    return models.Setting(key="controller.ibp", broker_setting=IBP, value=str(ibp), source=source)


def partition_item(cluster: Cluster, i: int, min_isr: int | None) -> Partition:
    """Builds the item of one partition."""
    row = cluster.rows[i]
    return Partition(
        topic=cluster.topics[row.topic].name,
        partition=row.partition,
        state=row.state.name,
        leader=row.leader if row.state is PartitionState.ONLINE else None,
        leader_epoch=row.leader_epoch,
        partition_epoch=row.version,
        controller_epoch=row.controller_epoch,
        replicas=list(row.assignment.replicas),
        isr=list(row.isr),
        adding=list(row.assignment.adding),
        removing=list(row.assignment.removing),
        offline_replicas=list(cluster.offline_replicas(i)),
        recovering=row.recovering,
        under_replicated=row.under_replicated,
        at_min_isr=None if min_isr is None else at(row, min_isr),
        under_min_isr=None if min_isr is None else under(row, min_isr),
        min_isr=min_isr,
        preferred=row.led_as_preferred,
        refused_by=list(cluster.refusals.refusing(i, row.assignment.replicas)),
    )


def topic_item(cluster: Cluster, topic: TopicRows, min_isr: int | None) -> Topic:
    """Builds the item of one topic; the replication factor is that of its first partition."""
    rows = [cluster.rows[i] for i in topic.rows]
    return Topic(
        name=topic.name,
        id=None if topic.topic_id is None else base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("="),
        partitions=len(rows),
        replication_factor=len(rows[0].assignment.origin) if rows else 0,
        offline=sum(row.state is not PartitionState.ONLINE for row in rows),
        under_replicated=sum(row.under_replicated for row in rows),
        under_min_isr=None if min_isr is None else sum(under(row, min_isr) for row in rows),
        not_preferred=sum(not row.led_as_preferred for row in rows),
    )


def broker_item(broker: Broker, leaving: bool, counts: Counts, lag: PropagationLag | None) -> models.Broker:
    """Builds the item of a live broker, with the lag of the propagation to it."""
    return models.Broker(
        id=broker.id,
        state="shutting down" if leaving else "unreachable" if lag is not None and lag.unreachable else "live",
        epoch=broker.epoch,
        rack=broker.rack,
        listeners=[
            models.Listener(
                name=e.listener, host=e.host, port=e.port, security_protocol=PROTOCOL_NAMES[e.security_protocol]
            )
            for e in broker.endpoints
        ],
        leads=counts.leads[broker.id],
        hosts=counts.hosts[broker.id],
        queued=lag.partitions if lag is not None else 0,
        unacknowledged_partitions=lag.partitions if lag is not None else 0,
        propagation_age_s=lag.oldest_s if lag is not None else 0.0,
        last_error=lag.last_error if lag is not None else None,
    )


def dead_broker_item(found: Dead, counts: Counts) -> models.Broker:
    """Builds the item of a broker that is not registered, and hosts replicas or is awaited by a plan."""
    return models.Broker(
        id=found.broker,
        state="dead",
        leads=counts.leads[found.broker],
        hosts=found.hosts,
        dead_since=time_of(found.since_ms or 0),
        dead_before=time_of(found.began_ms) if found.since_ms is None else None,
        awaited_by=list(found.plans),
    )


def history_rows(rows: Iterable[Row]) -> list[models.HistoryRow]:
    """Builds items with a sentence for each row of the journal."""
    return [
        models.HistoryRow(
            at=query.at(row), controller_epoch=row.ctl_epoch, daemon=row.ctl_id, kind=row.kind, told=_of_partition(row)
        )
        for row in rows
    ]


def _of_partition(row: Row) -> str:
    """Describes the event of a partition, or of one of its replicas."""
    return query.sentence(row) if row.broker is None else f"replica on broker {row.broker}: {query.sentence(row)}"


def verification(verdict: Verdict) -> Verification:
    """Builds the response of a verification."""
    return Verification(
        partitions=verdict.partitions,
        brokers=verdict.brokers,
        unreachable=sorted(verdict.unreachable),
        differences=[_difference(found) for found in verdict.differences],
        differences_total=verdict.total,
    )


def _difference(found: CopyDifference) -> models.Difference:
    return models.Difference(
        topic=found.topic or "(cluster)",
        partition=found.partition,
        field=found.field,
        expected=found.expected,
        found=found.found,
        broker=found.broker,
    )
