"""Gives operators their view of a daemon: :class:`controller.http.ports.DaemonView` and the metrics' view.

Answers come from memory; :meth:`View.keep` reads, at intervals, the facts that the daemon itself does not need.
"""

from __future__ import annotations

import asyncio
from typing import Final

import anyio
from fastapi import FastAPI

from brokers.queries import Dial, dial_for
from controller.daemon.daemon import Daemon
from controller.http import models
from controller.http.errors import NotActive, NotFound, Refused
from controller.http.models import Explanation, Health, Operation, OperationRequest, Partition, Status, Verification
from controller.http.ports import Only, PartitionPage, PartitionQuery, RestartQuery, TopicPage
from controller.http.restart_models import RestartNext, SetOfBrokers
from controller.kafka.path.adoption import ibp_is_set
from controller.kafka.snapshots.keeper import SnapshotKeeper
from controller.kafka.snapshots.writer import folder_in
from controller.kafka.term.dispatch import KAFKA_STATES
from controller.kafka.term.term import Term
from controller.metrics.exposition import KafkaCollector
from controller.metrics.gauges import Gauges
from controller.operator.cluster_health import throttles_held
from controller.operator.cordons import CordonView
from controller.operator.counts import Counts, partitions_of
from controller.operator.dead_brokers import EarlierDeaths, dead, dead_brokers
from controller.operator.deletions import DeletionView
from controller.operator.drains import DrainView
from controller.operator.elections import ElectionView
from controller.operator.explain import explain
from controller.operator.items import (
    broker_item,
    dead_broker_item,
    ibp_item,
    partition_item,
    setting_item,
    topic_item,
    verification,
)
from controller.operator.journal_history import history_of
from controller.operator.operations import Operations
from controller.operator.pages import find_partition, find_topic, partition_page, topic_page
from controller.operator.partition_check import differences_of
from controller.operator.pauses import PauseView
from controller.operator.present import Present
from controller.operator.procedures import ProcedureView
from controller.operator.restarts import in_turns, restart_item, set_of_brokers
from controller.operator.role_changes import RoleChanges
from controller.operator.role_status import LOOK_S, StatusReader
from controller.operator.rolling_restarts import RestartView, chosen, of_kept, over, query_of
from controller.operator.routes import add_kafka_routes
from controller.operator.sampling import gauges_of, suspension
from controller.operator.snapshots import SnapshotView
from controller.operator.status import lags_of, shown_mode, status_of
from controller.operator.strays import StrayView
from controller.operator.throttles import ThrottleView
from controller.operator.verify import verify
from controller.process.wall_clock import wall_ms
from controller.process.zookeeper_tls import ReleaseOf, through_tls
from controller.role.mode import Mode
from metadata_store.errors import ZooKeeperError
from metadata_store.kazoo_adapter.server_version import server_version
from state_machines.decisions.hindrances import StopCause
from state_machines.decisions.restarts import restarting
from state_machines.decisions.stopping import removing, stopping
from state_machines.model.facts import MinIsrRead
from state_machines.model.min_isr import UNKNOWN

READY: Final = frozenset({Mode.ACTIVE, Mode.STANDBY, Mode.SHADOW})


class View:
    """One daemon's view."""

    name = "kafka"

    def __init__(
        self,
        daemon: Daemon,
        dial: Dial | None = None,
        release_of: ReleaseOf = server_version,
    ) -> None:
        self.status_reader = StatusReader(dial or dial_for(daemon.settings))
        self._daemon = daemon
        self._present = Present(daemon, self.status_reader)
        self._dial = dial or dial_for(daemon.settings)
        self._operations = Operations(daemon, self._dial, through_tls(release_of, daemon.settings.zookeeper))
        self._earlier_deaths = EarlierDeaths(daemon.settings)
        self.cordons = CordonView(self._present.active)
        self.procedures = ProcedureView(
            daemon, self._present.term, self._present.active_daemon, lambda: self.status_reader.role_status.cluster_id
        )
        self.strays = StrayView(self._present.active, self._dial)
        self.deletions = DeletionView(self._present.active)
        self.drains = DrainView(self._present.active, self.cordons, self.procedures)
        self.throttles = ThrottleView(
            self._present.active, self.procedures, lambda: daemon.role.zk if daemon.role is not None else None
        )
        self.elections = ElectionView(self._present.active, self.procedures)
        self.restarts = RestartView(self._present.active, self.procedures)
        self.pauses = PauseView(self._present.active)
        self.snapshot_keeper = SnapshotKeeper(
            self._present.term,
            folder_in(daemon.settings.state.directory),
            daemon.settings.snapshots,
            daemon.counters,
            daemon.settings.controller.id,
        )
        self.snapshots = SnapshotView(self.snapshot_keeper, self._present.active)
        self.role_history = RoleChanges(daemon)

    async def keep(self) -> None:
        """Reads ZooKeeper twice a second, and takes snapshots, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_fresh)
            tasks.start_soon(self.snapshot_keeper.keep)

    async def _keep_fresh(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(LOOK_S)

    async def refresh(self) -> None:
        """Reads ZooKeeper once."""
        await self.status_reader.refresh(
            self._daemon.role, self._present.model(), lambda: throttles_held(self._present.term())
        )
        if (term := self._present.term()) is not None:
            if (found := self.status_reader.min_isr) is not UNKNOWN:
                term.enter(MinIsrRead(found))
            self.status_reader.progress.refresh(term, wall_ms())
            await self._earlier_deaths.refresh(term, self.status_reader.role_status.cluster_id)

    # -- probes

    def liveness(self) -> Health:
        """Reports a live event loop: without one there is no response."""
        return Health(ok=True, mode=shown_mode(self._daemon), why="the event loop turns")

    def readiness(self) -> Health:
        """Reports whether the daemon is active, a warm standby or a shadow."""
        mode, why = self._daemon.mode, self._daemon.why
        if (suspended := suspension(self._daemon)) is not None:
            return Health(ok=False, mode=shown_mode(self._daemon), why=suspended)
        lease = self._daemon.lease
        if mode is Mode.ACTIVE and lease is not None and not lease.valid():
            return Health(ok=False, mode=mode.value, why="the lease ran out: ZooKeeper does not answer heartbeats")
        if (trouble := self._daemon.secret_watch.trouble) is not None:
            why += f"; without an admin endpoint: {trouble}"
        return Health(ok=mode in READY, mode=mode.value, why=why)

    def status_line(self) -> str:
        """Returns mode and reason for systemd."""
        if (suspended := suspension(self._daemon)) is not None:
            return f"suspended: {suspended}"
        return f"{self._daemon.mode}: {self._daemon.why}"

    # -- the surfaces

    def add_routes(self, app: FastAPI) -> None:
        """Adds the routes of operators."""
        add_kafka_routes(app, self)

    def collector(self) -> KafkaCollector:
        """Returns the metrics of the daemon."""
        return KafkaCollector(self._daemon.counters, self, KAFKA_STATES)

    # -- the whole

    def list_settings(self) -> list[models.Setting]:
        """Lists the settings of the term: those of the brokers, and the daemon's own in their place."""
        term = self._present.term()
        if term is None:
            raise NotActive("this daemon does not hold the role", "query the daemon that does: regent status")
        return [
            ibp_item(self._daemon.ibp, given=ibp_is_set(self._daemon.settings.controller)),
            *(setting_item(found) for found in term.controller.adoption.found.values()),
        ]

    def stale(self) -> str | None:
        """Returns why the model may be old; None while ZooKeeper answers, or without a model."""
        return self._present.stale()

    def status(self) -> Status:
        """Returns the status of the daemon and the cluster."""
        return status_of(self._daemon, self._present.term(), self._present.model(), self.status_reader)

    def describe_cluster(self) -> models.Cluster:
        """Describes the cluster, and the daemons that queue for its role."""
        daemon, seen, cluster = self._daemon, self.status_reader.role_status, self._present.cluster()
        return models.Cluster(
            cluster_id=seen.cluster_id,
            controller_id=daemon.settings.controller.id,
            controller_epoch=cluster.epoch,
            ibp=str(daemon.ibp),
            on_absence=daemon.settings.controller.on_absence,
            role_flag=seen.role_flag,
            daemons=[
                models.Daemon(id=process.id, host=process.host, pid=process.pid, position=position)
                for position, process in enumerate(seen.queue)
            ],
            brokers=sorted(cluster.brokers),
            shutting_down=sorted(cluster.shutting_down),
            topics=len(cluster.topic_index),
            partitions=partitions_of(cluster),
            malformed=[models.Malformed(path=path, why=why) for path, why in daemon.counters.malformed.items()],
        )

    # -- brokers

    def list_brokers(self) -> list[models.Broker]:
        """Lists brokers by id: the live ones, and the dead ones with assigned replicas."""
        cluster = self._present.cluster()
        counts = self.status_reader.counted.of(cluster) or Counts()
        lags = lags_of(self._present.term())
        leaving = cluster.shutting_down
        found = {b: broker_item(live, b in leaving, counts, lags.get(b)) for b, live in cluster.brokers.items()}
        term = self._present.term()
        found |= {one.broker: dead_broker_item(one, counts) for one in dead_brokers(cluster, counts, term)}
        for broker in cluster.refusals.brokers():
            if broker in found:
                found[broker] = found[broker].model_copy(update={"refuses": len(cluster.refusals.on(broker))})
        cordoned = term.cluster.cordoned if term is not None else frozenset()
        for broker in cordoned & found.keys():
            marks = {"cordoned": True, "drained": broker in cluster.drained}
            found[broker] = found[broker].model_copy(update=marks)
        return [item for _, item in sorted(found.items())]

    def describe_broker(self, broker: int) -> models.Broker:
        """Describes one broker; raises :class:`NotFound`."""
        for found in self.list_brokers():
            if found.id == broker:
                return found
        raise NotFound(f"broker {broker} is not registered, and hosts no replica", "see 'regent list brokers'")

    # -- topics and partitions

    def list_topics(self, limit: int, after: str | None) -> TopicPage:
        """Lists topics by name."""
        return topic_page(self._present.cluster(), limit, after, self.status_reader.min_isr)

    def describe_topic(self, topic: str) -> models.Topic:
        """Describes one topic; raises :class:`NotFound`."""
        cluster = self._present.cluster()
        return topic_item(cluster, find_topic(cluster, topic), self.status_reader.min_isr.of(topic))

    def list_partitions(self, query: PartitionQuery) -> PartitionPage:
        """Lists partitions that match a query."""
        if query.only & {Only.AT_MIN_ISR, Only.UNDER_MIN_ISR} and self.status_reader.min_isr.default is None:
            raise Refused(
                "min.insync.replicas is not known yet: no broker has sent its default", "try again in a few seconds"
            )
        return partition_page(self._present.cluster(), query, self.status_reader.min_isr)

    def describe_partition(self, topic: str, partition: int) -> Partition:
        """Describes one partition; raises :class:`NotFound`."""
        cluster = self._present.cluster()
        return partition_item(cluster, find_partition(cluster, topic, partition), self.status_reader.min_isr.of(topic))

    async def explain(self, topic: str, partition: int) -> Explanation:
        """Explains the state, leader and ISR of a partition, with its history from the journal."""
        cluster, term = self._present.cluster(), self._present.term()
        i = find_partition(cluster, topic, partition)
        unclean = term is not None and await self._allows_unclean(term, cluster.rows[i].topic)
        min_isr = self.status_reader.min_isr.of(topic)
        last = term.controller.recent.why(i) if term is not None else None
        since = {b: dead(b, term).when for b in cluster.rows[i].assignment.replicas if b not in cluster.brokers}
        found = explain(cluster, i, unclean=unclean, last=last, min_isr=min_isr, since=since)
        return Explanation(
            partition=partition_item(cluster, i, min_isr),
            state_because=found.state,
            leader_because=found.leader,
            isr_because=found.isr,
            would_change=found.would_change,
            differs=await differences_of(self._daemon.role, cluster, i),
            waiting_for=sorted(term.channels.unacknowledged_by(i)) if term is not None else [],
            history=await history_of(self._daemon.settings, topic, partition),
        )

    async def _allows_unclean(self, term: Term, topic: int) -> bool:
        """Reads the topic's setting from ZooKeeper; while that does not answer, takes the daemon's own."""
        try:
            known, _ = await term.controller.unclean.of([topic])
        except ZooKeeperError:
            return self._daemon.settings.controller.unclean_leader_election_enable
        return known[topic]

    # -- brokers that stop

    async def can_stop(self, brokers: frozenset[int], accepted: frozenset[StopCause]) -> SetOfBrokers:
        """Judges whether brokers may stop together."""
        cluster, min_isr = self._present.fresh(), self.status_reader.min_isr
        return set_of_brokers(await in_turns(cluster, lambda: stopping(cluster, brokers, min_isr, accepted)))

    async def can_remove(self, brokers: frozenset[int]) -> SetOfBrokers:
        """Judges whether nothing is left on brokers."""
        cluster, controller = self._present.fresh(), self._present.controller()
        return set_of_brokers(await in_turns(cluster, lambda: removing(cluster, brokers, controller)))

    async def restart_next(self, query: RestartQuery) -> RestartNext:
        """Decides which brokers a rolling restart takes next."""
        cluster, min_isr, controller = self._present.fresh(), self.status_reader.min_isr, self._present.controller()
        term, running = self._present.term(), None
        named = query.pid is not None
        if not query.since and term is not None and (running := chosen(term, query.pid)) is not None:
            if (found := over(running, named=named)) is not None:
                return found
            query = query_of(running, query)
        since = query.since or {b: known.epoch for b, known in cluster.brokers.items()}
        batch_max, accepted = query.batch_max, query.accepted
        plan = await in_turns(cluster, lambda: restarting(cluster, since, min_isr, batch_max, accepted, controller))
        found = restart_item(plan)
        if running is None or term is None:
            return found
        return of_kept(found, running, paused=term.controller.pauses.in_force is not None, named=named)

    # -- verification and operations

    async def verify(self) -> Verification:
        """Compares ZooKeeper, the model and every broker's metadata."""
        role = self._daemon.role
        if role is None:
            raise NotActive("this daemon has no ZooKeeper session", "wait until it is connected, then try again")
        term = self._present.term()
        memory = term.cluster if term is not None else None
        found = verification(await verify(role, self._dial, self._daemon.ibp, memory=memory))
        return found.model_copy(update={"memory": memory is not None})

    async def takeover(self, request: OperationRequest, principal: str) -> Operation:
        """Begins a take-over."""
        return await self._operations.takeover(request, principal)

    async def handback(self, request: OperationRequest, principal: str) -> Operation:
        """Begins a hand-back."""
        return await self._operations.handback(request, principal)

    def operation(self) -> Operation | None:
        """Returns the running operation, or the last one."""
        return self._operations.last

    def gauges(self) -> Gauges:
        """Returns the present values behind the metrics."""
        return gauges_of(self._daemon, self._present.term(), self.status_reader)
