"""Gives operators their view of a daemon, a part for each subject, and the metrics and probes theirs.

Answers come from memory; :meth:`View.keep` reads, at intervals, the facts that the daemon itself does not need.
"""

from __future__ import annotations

import asyncio
from typing import Final

import anyio
from fastapi import FastAPI

from brokers.queries import Dial, dial_for
from controller.daemon.daemon import Daemon
from controller.daemon.state import Mode
from controller.http.models import Health
from controller.kafka.metrics.exposition import KafkaCollector
from controller.kafka.metrics.values import Gauges
from controller.kafka.snapshots.keeper import SnapshotKeeper
from controller.kafka.snapshots.writer import folder_in
from controller.kafka.term.dispatch import KAFKA_STATES
from controller.operator.brokers import BrokerView, EarlierDeaths, add_broker_routes
from controller.operator.cordons import CordonView, add_cordon_routes
from controller.operator.deletions import DeletionView, add_deletion_routes
from controller.operator.drains import DrainView, add_drain_routes
from controller.operator.elections import ElectionView, add_election_routes
from controller.operator.explain import ExplainView, add_explanation_route
from controller.operator.gauges import gauges_of
from controller.operator.health import throttles_held
from controller.operator.partitions import PartitionView, add_partition_routes
from controller.operator.pauses import PauseView, add_pause_routes
from controller.operator.plans import PlanView, add_plan_routes
from controller.operator.present import LOOK_S, Present, StatusReader, suspension
from controller.operator.procedures import ProcedureView, add_procedure_routes
from controller.operator.restarts import RestartView, add_restart_routes
from controller.operator.role import RoleView, add_role_routes
from controller.operator.snapshots import SnapshotView, add_snapshot_routes
from controller.operator.status import StatusView, add_status_routes, shown_mode
from controller.operator.stray_removal import StrayRemovalView, add_stray_removal_route
from controller.operator.strays import StrayView, add_stray_route
from controller.operator.throttles import ThrottleView, add_throttle_routes
from controller.operator.verify import VerifyView, add_verification_route
from controller.process.clock import wall_ms
from controller.process.zookeeper import ReleaseOf, through_tls
from metadata_store.kazoo_adapter.servers import server_version
from state_machines.model.facts import MinIsrRead
from state_machines.model.min_isr import UNKNOWN

READY: Final = frozenset({Mode.ACTIVE, Mode.STANDBY, Mode.SHADOW})


class View:
    """One daemon's view. Requests to its parts may raise ``ViewError``."""

    name = "kafka"

    def __init__(
        self,
        daemon: Daemon,
        dial: Dial | None = None,
        release_of: ReleaseOf = server_version,
    ) -> None:
        dial = dial or dial_for(daemon.settings)
        self.status_reader = StatusReader(dial)
        self._daemon = daemon
        self._present = present = Present(daemon, self.status_reader)
        self._earlier_deaths = EarlierDeaths(daemon.settings)
        self.snapshot_keeper = SnapshotKeeper(
            present.term,
            folder_in(daemon.settings.state.directory),
            daemon.settings.snapshots,
            daemon.counters,
            daemon.settings.controller.id,
        )
        self.whole = StatusView(daemon, present)
        self.brokers = BrokerView(present)
        self.partitions = PartitionView(present)
        self.explanations = ExplainView(daemon, present)
        self.verifications = VerifyView(daemon, present, dial)
        self.role = RoleView(daemon, dial, through_tls(release_of, daemon.settings.zookeeper))
        self.cordons = CordonView(present.active)
        self.procedures = ProcedureView(daemon, present.term, present.active_daemon)
        self.plans = PlanView(self.procedures, lambda: self.status_reader.role_status.cluster_id)
        self.drains = DrainView(present.active, self.cordons, self.procedures)
        self.throttles = ThrottleView(
            present.active, self.procedures, lambda: daemon.role.zk if daemon.role is not None else None
        )
        self.elections = ElectionView(present.active, self.procedures)
        self.restarts = RestartView(present, self.procedures)
        self.pauses = PauseView(present.active)
        self.snapshots = SnapshotView(self.snapshot_keeper, present.active)
        self.strays = StrayView(present.active, dial)
        self.stray_removal = StrayRemovalView(present.active, self.strays)
        self.deletions = DeletionView(present.active)

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

    def status_line(self) -> str:
        """Returns mode and reason for systemd."""
        if (suspended := suspension(self._daemon)) is not None:
            return f"suspended: {suspended}"
        return f"{self._daemon.mode}: {self._daemon.why}"

    def liveness(self) -> Health:
        """Reports a live event loop: without one there is no response. Works from the first moment, in every mode."""
        return Health(ok=True, mode=shown_mode(self._daemon), why="the event loop turns")

    def readiness(self) -> Health:
        """Reports whether the daemon is active, a warm standby or a shadow; else the reason."""
        mode, why = self._daemon.mode, self._daemon.why
        if (suspended := suspension(self._daemon)) is not None:
            return Health(ok=False, mode=shown_mode(self._daemon), why=suspended)
        lease = self._daemon.lease
        if mode is Mode.ACTIVE and lease is not None and not lease.valid():
            return Health(ok=False, mode=mode.value, why="the lease ran out: ZooKeeper does not answer heartbeats")
        if (trouble := self._daemon.secret_watch.trouble) is not None:
            why += f"; without an admin endpoint: {trouble}"
        return Health(ok=mode in READY, mode=mode.value, why=why)

    def gauges(self) -> Gauges:
        """Returns the present values behind the metrics."""
        return gauges_of(self._daemon, self._present.term(), self.status_reader)

    def collector(self) -> KafkaCollector:
        """Returns the metrics of the daemon."""
        return KafkaCollector(self._daemon.counters, self, KAFKA_STATES)

    def add_routes(self, app: FastAPI) -> None:
        """Adds the routes of all parts to the surface of a daemon."""
        add_status_routes(app, self.whole)
        add_broker_routes(app, self.brokers)
        add_partition_routes(app, self.partitions)
        add_explanation_route(app, self.explanations)
        add_verification_route(app, self.verifications)
        add_role_routes(app, self.role)
        add_procedure_routes(app, self.procedures)
        add_plan_routes(app, self.plans)
        add_cordon_routes(app, self.cordons)
        add_drain_routes(app, self.drains)
        add_throttle_routes(app, self.throttles)
        add_election_routes(app, self.elections)
        add_restart_routes(app, self.restarts)
        add_pause_routes(app, self.pauses)
        add_snapshot_routes(app, self.snapshots)
        add_stray_route(app, self.strays)
        add_stray_removal_route(app, self.stray_removal)
        add_deletion_routes(app, self.deletions)
