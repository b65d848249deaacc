"""Reports the status of a daemon and its cluster from memory, and describes the cluster and its settings."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fastapi import FastAPI, Response
from pydantic import Field

from brokers.wire.versions import Ibp
from configs.version import product_version
from controller.daemon.daemon import Daemon as Running
from controller.http.documents import NotActive, document
from controller.http.models import Document, Item
from controller.kafka.metrics.values import ShownMode
from controller.kafka.path.adoption import IBP, ibp_is_set
from controller.kafka.term.term import Term
from controller.operator.brokers import lags_of
from controller.operator.counts import partitions_of
from controller.operator.health import (
    live_procedures,
    suspended,
    throttles_held,
    throttles_in_force,
    trouble_of,
    troubles,
    under_min_isr_of,
    warnings,
)
from controller.operator.pauses import pause_sentence
from controller.operator.present import Present, StatusReader, connected, lease_s, suspension
from controller.process.clock import wall_ms
from state_machines.admin_rules.broker_settings import InForce, advice, shown, source
from state_machines.model.cluster import Cluster as Model


class Status(Item):
    """Status of the daemon and the cluster. ``why`` is one sentence about the mode.

    Numbers of the cluster are absent where the daemon has no model of it, as on a standby.
    """

    mode: str
    why: str
    version: str
    controller_id: int
    controller_epoch: int | None = Field(
        None, description="of this daemon's term; without one the cluster's, as ZooKeeper last had it"
    )
    since: datetime | None = None
    lease_remaining_s: float = 0.0
    role_flag: Literal["regent", "brokers"] = "brokers"
    on_absence: Literal["brokers", "hold"] = "brokers"
    holder: int | None = Field(None, description="id in /controller")
    holder_kind: Literal["daemon", "broker", "nobody"] = "nobody"
    cluster_id: str | None = None
    ibp: str = ""
    zookeeper_connected: bool = False
    session_timeout_ms: int = 0
    admin_endpoint: str | None = Field(
        None,
        description="address at which clients of brokers find the controller: as an active daemon sends it to "
        "brokers, or on a standby as announced by the endpoint beside it",
    )
    admin_endpoint_trouble: str | None = Field(
        None, description="why the endpoint beside this daemon serves no clients, or would not after a restart"
    )
    health: list[str] | None = Field(None, description="what is wrong with the cluster, worst first; empty: nothing is")
    procedures: list[str] | None = Field(
        None, description="procedures that have not ended: age, progress, and what they wait for"
    )
    throttles: list[str] | None = Field(None, description="throttles in force: of procedures, and without an owner")
    unowned_throttle_settings: int | None = Field(
        None, description="throttle settings in ZooKeeper that no procedure takes back; absent: none"
    )
    brokers: int | None = None
    topics: int | None = None
    partitions: int | None = None
    offline_partitions: int | None = None
    under_replicated_partitions: int | None = None
    under_min_isr_partitions: int | None = Field(
        None, description="their producers with acks=all wait; absent until a broker has sent min.insync.replicas"
    )
    reassignments: int | None = Field(None, description="partitions that move to other replicas")
    cordoned_brokers: list[int] | None = Field(None, description="brokers that get no further replica; absent: none")
    drained_brokers: list[int] | None = Field(None, description="brokers that lead last; absent: none")
    remembered_replicas: int | None = Field(
        None, description="removed replicas that their brokers have still to stop (regent strays); absent: none"
    )
    paused: str | None = Field(None, description="why automatic moves stand still, and until when; absent: they go on")
    unacknowledged_partitions: int | None = Field(
        None, description="committed, but not acknowledged by every broker yet"
    )
    propagation_age_s_max: float | None = None
    event_queue_size: int | None = None
    shadow_compared: int | None = Field(None, description="decisions that a shadow has compared, over all processes")
    shadow_differences: int | None = None
    shadow_report: str | None = Field(None, description="file on the daemon's machine with all counts")
    warnings: list[str] = []


class Setting(Item):
    """A setting of brokers that Kafka's controller obeys, and the value that holds here."""

    key: str = Field(description="of the daemon's own settings, where it may be set")
    broker_setting: str
    value: str
    source: str = Field(description="set by us, adopted from brokers, or no broker has reported it yet")
    differs: str = Field("", description="brokers with another value, and the remedy")


class Daemon(Item):
    """A daemon in the queue for the role."""

    id: int
    host: str
    pid: int
    position: int = Field(description="0 holds the role or claims next")


class Malformed(Item):
    """A malformed znode, which is left alone."""

    path: str
    why: str


class Cluster(Item):
    """The cluster in the daemon's model."""

    cluster_id: str | None
    controller_id: int
    controller_epoch: int
    ibp: str
    on_absence: Literal["brokers", "hold"]
    role_flag: Literal["regent", "brokers"]
    daemons: list[Daemon] = []
    brokers: list[int] = []
    shutting_down: list[int] = []
    topics: int = 0
    partitions: int = 0
    malformed: list[Malformed] = []


class StatusView:
    """The daemon and its cluster as a whole."""

    def __init__(self, daemon: Running, present: Present) -> None:
        self._daemon = daemon
        self._present = present

    def status(self) -> Status:
        """Returns the status of the daemon and the cluster, in every mode."""
        return status_of(self._daemon, self._present.term(), self._present.model(), self._present.reader)

    def settings(self) -> list[Setting]:
        """Lists the settings of the term: those of the brokers, and the daemon's own in their place."""
        term = self._present.term()
        if term is None:
            raise NotActive("this daemon does not hold the role", "query the daemon that does: regent status")
        return [
            ibp_item(self._daemon.ibp, given=ibp_is_set(self._daemon.settings.controller)),
            *(setting_item(found) for found in term.controller.adoption.found.values()),
        ]

    def cluster(self) -> Cluster:
        """Describes the cluster, and the daemons that queue for its role."""
        daemon, seen, cluster = self._daemon, self._present.reader.role_status, self._present.cluster()
        return Cluster(
            cluster_id=seen.cluster_id,
            controller_id=daemon.settings.controller.id,
            controller_epoch=cluster.epoch,
            ibp=str(daemon.ibp),
            on_absence=daemon.settings.controller.on_absence,
            role_flag=seen.role_flag,
            daemons=[
                Daemon(id=process.id, host=process.host, pid=process.pid, position=position)
                for position, process in enumerate(seen.queue)
            ],
            brokers=sorted(cluster.brokers),
            shutting_down=sorted(cluster.shutting_down),
            topics=len(cluster.topic_index),
            partitions=partitions_of(cluster),
            malformed=[Malformed(path=path, why=why) for path, why in daemon.counters.malformed.items()],
        )

    def stale(self) -> str | None:
        """Returns why the model may be old; None while it is not."""
        return self._present.stale()


def add_status_routes(app: FastAPI, view: StatusView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/status", response_model=Document[Status])
    async def status() -> Response:
        return document("Status", [view.status()])

    @app.get("/v1/settings", response_model=Document[Setting])
    async def settings() -> Response:
        return document("Setting", view.settings())

    @app.get("/v1/cluster", response_model=Document[Cluster])
    async def cluster() -> Response:
        return document("Cluster", [view.cluster()], stale=view.stale())


def status_of(daemon: Running, term: Term | None, cluster: Model | None, reader: StatusReader) -> Status:
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


def shown_mode(daemon: Running) -> str:
    """Returns the mode, or that the daemon is suspended."""
    return ShownMode.SUSPENDED.value if suspension(daemon) else daemon.mode.value


def _endpoint(daemon: Running, term: Term | None, reader: StatusReader) -> dict[str, object]:
    """Returns the admin endpoint that an active daemon propagates to brokers; before, the announced one."""
    seen = reader.role_status.endpoint
    if daemon.shadow is not None:
        return {}
    shown = term.parts.endpoint.found if term is not None else seen.endpoint if seen.ours else None
    return {
        "admin_endpoint": str(shown) if shown is not None else None,
        "admin_endpoint_trouble": trouble_of(seen, daemon.secret_watch.trouble),
    }


def _of_shadow(daemon: Running) -> dict[str, object]:
    shadow = daemon.shadow
    if shadow is None:
        return {}
    statistics = shadow.statistics
    return {
        "shadow_compared": statistics.compared.total() + statistics.differing,
        "shadow_differences": statistics.differing,
        "shadow_report": str(shadow.file) if shadow.file is not None else None,
    }


def _numbers(daemon: Running, term: Term | None, cluster: Model, reader: StatusReader) -> dict[str, object]:
    counts = reader.counted.of(cluster)
    lags = lags_of(term)
    under_min_isr = under_min_isr_of(counts, reader)
    unowned = reader.unowned(lambda: throttles_held(term)) if term is not None else 0
    return {
        "health": [*suspended(daemon, term), *troubles(cluster, counts, under_min_isr, term)],
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
        "warnings": list(warnings(daemon, term, counts, lags)),
    }


def setting_item(found: InForce) -> Setting:
    """Builds the item of one setting."""
    return Setting(
        key=f"controller.{found.setting.key}",
        broker_setting=found.setting.name,
        value=shown(found.value),
        source=source(found),
        differs=advice(found) or "",
    )


def ibp_item(ibp: Ibp, *, given: bool) -> Setting:
    """Builds the item of the term's IBP. ``given``: the operator has set it."""
    source = "set by us" if given else "the lowest of the brokers, as known when the term began"
    return Setting(key="controller.ibp", broker_setting=IBP, value=str(ibp), source=source)
