"""The daemon as its operators see it: implements :class:`controller.http.ports.DaemonView` and the metrics' view.

Answers come from memory; :meth:`View.keep_fresh` reads now and then what the daemon itself does not need to know.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import anyio

from brokers.outbound.channel import PropagationLag
from brokers.queries import Dial, dial_for
from configs.version import product_version
from controller.daemon.daemon import Daemon
from controller.engine.adopted_ibp import given
from controller.http import models
from controller.http.models import Explanation, Health, Operation, OperationRequest, Partition, Status, Verification
from controller.http.ports import NotActive, NotFound, Only, PartitionPage, PartitionQuery, Refused, TopicPage
from controller.journal.journal import folder_in
from controller.journal.query import history
from controller.metrics import gauges as gauge
from controller.metrics.gauges import Gauges
from controller.operator.counts import Counts, partitions_of
from controller.operator.endpoint_status import trouble_of
from controller.operator.explain import explain
from controller.operator.items import (
    broker_item,
    dead_broker_item,
    happenings,
    ibp_item,
    partition_item,
    setting_item,
    topic_item,
    verification,
)
from controller.operator.operations import Operations
from controller.operator.pages import find_partition, find_topic, partition_page, topic_page
from controller.operator.role_status import LOOK_S, StatusReader
from controller.operator.sampling import connected, gauges_of, lease_s, suspension
from controller.operator.verify import verify
from controller.process.wording import abbreviate
from controller.process.zookeeper_tls import ReleaseOf, through_tls
from controller.role.mode import Mode
from controller.term.term import Term
from metadata_store.errors import ZooKeeperError
from metadata_store.kazoo_adapter.server_version import server_version
from state_machines.model.cluster import Cluster

log = logging.getLogger("regent.journal")

READY: Final = frozenset({Mode.ACTIVE, Mode.STANDBY, Mode.SHADOW})


class View:
    """One per daemon."""

    def __init__(
        self,
        daemon: Daemon,
        dial: Dial | None = None,
        release_of: ReleaseOf = server_version,
        lines_dropped: Callable[[], int] = lambda: 0,
    ) -> None:
        self.status_reader = StatusReader(dial or dial_for(daemon.settings))
        self._daemon = daemon
        self._dial = dial or dial_for(daemon.settings)
        self._operations = Operations(daemon, self._dial, through_tls(release_of, daemon.settings.zookeeper))
        self._lines_dropped = lines_dropped

    async def keep_fresh(self) -> None:
        """Looks at ZooKeeper twice a second, for ever."""
        while True:
            await self.refresh()
            await asyncio.sleep(LOOK_S)

    async def refresh(self) -> None:
        """One look."""
        await self.status_reader.refresh(self._daemon.role, self._model())
        if (term := self._term()) is not None:
            term.controller.min_isr = self.status_reader.min_isr

    # -- probes

    def liveness(self) -> Health:
        """The loop turned, or this would not be answered."""
        return Health(ok=True, mode=self._mode(), why="the event loop turns")

    def readiness(self) -> Health:
        """Active, a warm standby, or a shadow."""
        mode, why = self._daemon.mode, self._daemon.why
        if (suspended := suspension(self._daemon)) is not None:
            return Health(ok=False, mode=self._mode(), why=suspended)
        lease = self._daemon.lease
        if mode is Mode.ACTIVE and lease is not None and not lease.valid():
            return Health(ok=False, mode=mode.value, why="the lease ran out: ZooKeeper does not answer heartbeats")
        if (trouble := self._daemon.secret_watch.trouble) is not None:
            why += f"; without an admin endpoint: {trouble}"
        return Health(ok=mode in READY, mode=mode.value, why=why)

    def _mode(self) -> str:
        return gauge.ShownMode.SUSPENDED.value if suspension(self._daemon) else self._daemon.mode.value

    # -- the whole

    def list_settings(self) -> list[models.Setting]:
        """What the term goes by."""
        term = self._term()
        if term is None:
            raise NotActive("this daemon does not hold the role", "ask the daemon that does: regent status")
        return [
            ibp_item(self._daemon.ibp, given=given(self._daemon.settings.controller)),
            *(setting_item(one) for one in term.controller.adoption.found.values()),
        ]

    def stale(self) -> str | None:
        """Says since when the model may be old; None while ZooKeeper answers, or where there is no model."""
        return suspension(self._daemon) if self._model() is not None else None

    def status(self) -> Status:
        """The daemon and the cluster in one look."""
        daemon, seen, term = self._daemon, self.status_reader.role_status, self._term()
        suspended = suspension(daemon)
        holds = term is not None
        base = Status(
            mode=self._mode(),
            why=suspended or daemon.why,
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
            **self._endpoint(term),
        )
        cluster = self._model()
        base = base.model_copy(update=self._of_shadow())
        return base if cluster is None else base.model_copy(update=self._numbers(cluster, term))

    def _endpoint(self, term: Term | None) -> dict[str, str | None]:
        """In office as brokers are told; before, as it has announced itself."""
        daemon, seen = self._daemon, self.status_reader.role_status.endpoint
        if daemon.shadow is not None:
            return {}
        shown = term.controller.endpoint if term is not None else seen.endpoint if seen.ours else None
        return {
            "admin_endpoint": str(shown) if shown is not None else None,
            "admin_endpoint_trouble": trouble_of(seen, daemon.secret_watch.trouble),
        }

    def _of_shadow(self) -> dict[str, object]:
        shadow = self._daemon.shadow
        if shadow is None:
            return {}
        statistics = shadow.statistics
        return {
            "shadow_compared": statistics.compared.total() + statistics.differing,
            "shadow_differences": statistics.differing,
            "shadow_report": str(shadow.file) if shadow.file is not None else None,
        }

    def _numbers(self, cluster: Cluster, term: Term | None) -> dict[str, object]:
        counts = self.status_reader.counted.of(cluster)
        told = self._propagation().values()
        return {
            "brokers": len(cluster.brokers),
            "topics": len(cluster.topic_index),
            "partitions": partitions_of(cluster),
            "offline_partitions": len(cluster.leaderless),
            "under_replicated_partitions": counts.under_replicated if counts is not None else None,
            "under_min_isr_partitions": self._under_min_isr(counts),
            "reassignments": len(cluster.reassigning),
            "unacknowledged_partitions": sum(broker.partitions for broker in told),
            "propagation_age_s_max": max((broker.oldest_s for broker in told), default=0.0),
            "event_queue_size": len(term.queue) if term is not None else 0,
            "warnings": self._warnings(counts, term),
        }

    def _under_min_isr(self, counts: Counts | None) -> int | None:
        """Returns None while partitions are being counted, or while no broker has said its default."""
        return counts.under_min_isr if counts is not None and self.status_reader.min_isr.default is not None else None

    def _warnings(self, counts: Counts | None, term: Term | None) -> list[str]:
        counters = self._daemon.counters
        found = [f"{path} cannot be used: {why}" for path, why in list(counters.malformed.items())[:5]]
        if len(counters.malformed) > len(found):
            found.append(f"{len(counters.malformed) - len(found)} more znodes cannot be used")
        if term is not None and (above := term.outranked.brokers):
            found.append(
                f"brokers {above} have seen a higher controller epoch, and do nothing that this daemon sends: "
                "restart them"
            )
        if (term := self._term()) is not None:
            found += sorted(term.controller.adoption.advised)
        found += self._unreachable()
        if counters.lowered_ibp_brokers:
            found.append(f"brokers {sorted(counters.lowered_ibp_brokers)} have another IBP than the controller")
        if counters.journal_failing:
            found.append(f"the journal cannot be written, what is decided is not recorded: {counters.journal_failing}")
        if counters.shadow_differences:
            found.append(
                f"{counters.shadow_differences} of {counters.shadow_compared} compared decisions differ from Kafka's: "
                "see the log"
            )
        if counts is None:
            found.append("partitions are still being counted: under-replicated ones are not known yet")
        return found

    def _unreachable(self) -> list[str]:
        """Registered brokers to which no connection can be made, with the error of the first."""
        away = [told for told in self._propagation().values() if told.unreachable]
        if not away:
            return []
        named = abbreviate([str(told.broker_id) for told in away], "brokers")
        first = f"broker {away[0].broker_id}: {away[0].last_error}"
        return [f"registered, but unreachable: {named} ({first}); a dead one leaves when its ZooKeeper session ends"]

    def describe_cluster(self) -> models.Cluster:
        """The cluster, and the daemons that queue for its role."""
        daemon, seen, cluster = self._daemon, self.status_reader.role_status, self._cluster()
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
        """Brokers by id: the live ones, and the dead ones that replicas are assigned to."""
        cluster = self._cluster()
        counts = self.status_reader.counted.of(cluster) or Counts()
        told = self._propagation()
        leaving = cluster.shutting_down
        found = {b: broker_item(live, b in leaving, counts, told.get(b)) for b, live in cluster.brokers.items()}
        found |= {b: dead_broker_item(b, counts) for b in counts.hosts.keys() - cluster.brokers.keys()}
        return [item for _, item in sorted(found.items())]

    def describe_broker(self, broker: int) -> models.Broker:
        """One of them."""
        for found in self.list_brokers():
            if found.id == broker:
                return found
        raise NotFound(f"broker {broker} is not registered, and hosts no replica", "see 'regent list brokers'")

    # -- topics and partitions

    def list_topics(self, limit: int, after: str | None) -> TopicPage:
        """Topics by name."""
        return topic_page(self._cluster(), limit, after, self.status_reader.min_isr)

    def describe_topic(self, topic: str) -> models.Topic:
        """One of them."""
        cluster = self._cluster()
        return topic_item(cluster, find_topic(cluster, topic), self.status_reader.min_isr.of(topic))

    def list_partitions(self, query: PartitionQuery) -> PartitionPage:
        """Partitions that match."""
        if query.only & {Only.AT_MIN_ISR, Only.UNDER_MIN_ISR} and self.status_reader.min_isr.default is None:
            raise Refused(
                "min.insync.replicas is not known yet: no broker has sent its default", "try again in a few seconds"
            )
        return partition_page(self._cluster(), query, self.status_reader.min_isr)

    def describe_partition(self, topic: str, partition: int) -> Partition:
        """One of them."""
        cluster = self._cluster()
        return partition_item(cluster, find_partition(cluster, topic, partition), self.status_reader.min_isr.of(topic))

    async def explain(self, topic: str, partition: int) -> Explanation:
        """Why it is as it is."""
        cluster, term = self._cluster(), self._term()
        i = find_partition(cluster, topic, partition)
        unclean = term is not None and await self._allows_unclean(term, cluster.rows[i].topic)
        min_isr = self.status_reader.min_isr.of(topic)
        last = term.controller.recent.why(i) if term is not None else None
        found = explain(cluster, i, unclean=unclean, last=last, min_isr=min_isr)
        return Explanation(
            partition=partition_item(cluster, i, min_isr),
            state_because=found.state,
            leader_because=found.leader,
            isr_because=found.isr,
            would_change=found.would_change,
            waiting_for=sorted(term.channels.unacknowledged_by(i)) if term is not None else [],
            history=await self._history(topic, partition),
        )

    async def _allows_unclean(self, term: Term, topic: int) -> bool:
        """As ZooKeeper has it now; while it does not answer, the daemon's own setting."""
        try:
            known, _ = await term.controller.unclean.of([topic])
        except ZooKeeperError:
            return self._daemon.settings.controller.unclean_leader_election_enable
        return known[topic]

    async def _history(self, topic: str, partition: int) -> list[models.Happening]:
        """What the journal's files say; the disk is waited for in a thread."""
        settings = self._daemon.settings
        if not settings.journal.enabled:
            return []
        folder = folder_in(settings.state.directory)
        try:
            return happenings(await anyio.to_thread.run_sync(history, folder, topic, partition))
        except OSError as error:
            log.warning("the journal in %s cannot be read: %s", folder, error)
            return []

    # -- verification and operations

    async def verify(self) -> Verification:
        """Compares ZooKeeper, memory and every broker."""
        role = self._daemon.role
        if role is None:
            raise NotActive("this daemon has no ZooKeeper session", "wait until it is connected, then ask again")
        term = self._term()
        memory = term.cluster if term is not None else None
        found = verification(await verify(role, self._dial, self._daemon.ibp, memory=memory))
        return found.model_copy(update={"memory": memory is not None})

    async def takeover(self, request: OperationRequest) -> Operation:
        """Begins to take the role."""
        return await self._operations.takeover(request)

    async def handback(self, request: OperationRequest) -> Operation:
        """Begins to give it back."""
        return await self._operations.handback(request)

    def operation(self) -> Operation | None:
        """The one that runs, or the last."""
        return self._operations.last

    def gauges(self) -> Gauges:
        """The state now."""
        return gauges_of(self._daemon, self._term(), self.status_reader, self._lines_dropped())

    # -- helpers

    def _term(self) -> Term | None:
        """The term, once it is in office."""
        term = self._daemon.term
        return term if term is not None and term.serving.is_set() else None

    def _model(self) -> Cluster | None:
        """The term's model, or the shadow's."""
        term, shadow = self._term(), self._daemon.shadow
        if term is not None:
            return term.cluster
        return shadow.tracker.model if shadow is not None and self._daemon.mode is Mode.SHADOW else None

    def _who_is(self) -> str:
        """Whom to ask instead."""
        seen = self.status_reader.role_status
        if seen.holder_kind == "daemon" and seen.queue and seen.queue[0].nonce != self._daemon.me.nonce:
            return f"ask the daemon on {seen.queue[0].host} (pid {seen.queue[0].pid})"
        return "see 'regent status'"

    def _cluster(self) -> Cluster:
        cluster = self._model()
        if cluster is None:
            raise NotActive(f"this daemon is {self._daemon.mode.value}: {self._daemon.why}", self._who_is())
        return cluster

    def _propagation(self) -> dict[int, PropagationLag]:
        term = self._term()
        return term.channels.lag() if term is not None else {}
