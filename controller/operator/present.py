"""Finds what a daemon has at the moment: term, model, lease, and the role as ZooKeeper had it twice a second.

No decision depends on it. Responses to operators come from memory, so that none of them waits for ZooKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal

from msgspec import Struct

from brokers.queries import Dial
from controller.daemon.daemon import Daemon
from controller.daemon.state import Mode
from controller.http.documents import NotActive, ViewRefused
from controller.kafka.metrics.values import HolderKind
from controller.kafka.path.topic_settings import read_min_isr
from controller.kafka.procedures.throttle_settings import Standing, find_throttled, settings_in, settings_of
from controller.kafka.term.term import Term
from controller.operator.counts import Counted
from controller.operator.progress import ProgressWatch
from controller.role.claim import Role
from controller.role.own_znodes import Process
from metadata_store import paths
from metadata_store.codecs.controller import decode_epoch
from metadata_store.errors import ZooKeeperError
from metadata_store.kafka_store import KafkaStore
from metadata_store.nodes.cluster_nodes import read_cluster_id
from metadata_store.nodes.endpoint_znode import AdminEndpoint, decode_endpoint, endpoint_path
from metadata_store.port import ConnectionState
from state_machines.admin_rules.throttles import BROKERS, TOPICS, Entity, Place
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import MinIsr

log = logging.getLogger("regent.view")

LOOK_S: Final = 0.5
CONFIGS_S: Final = 30.0
SILENT_FRACTION: Final = 1 / 3
"""Part of the session timeout without an answer (two heartbeats) after which the daemon counts as suspended."""


class Announced(Struct, frozen=True):
    """The endpoint's announcement in its znode. ``ours``: it is sealed with the daemon's secret."""

    endpoint: AdminEndpoint | None = None
    ours: bool = False


class RoleStatus(Struct, frozen=True):
    """The role as ZooKeeper had it at the last read. ``queue``: live daemons in order.

    ``epoch`` is the controller epoch, None without a readable one; ``endpoint`` is the one beside this daemon.
    """

    role_flag: Literal["regent", "brokers"] = "brokers"
    holder: int | None = None
    holder_kind: HolderKind = "nobody"
    cluster_id: str | None = None
    queue: tuple[Process, ...] = ()
    epoch: int | None = None
    endpoint: Announced = Announced()


class Present:
    """Answers from the daemon's memory, anew at each call: a term may end between two of them."""

    def __init__(self, daemon: Daemon, reader: StatusReader) -> None:
        self._daemon = daemon
        self.reader = reader

    def term(self) -> Term | None:
        """Returns the term once it is active."""
        term = self._daemon.term
        return term if term is not None and term.serving.is_set() else None

    def model(self) -> Cluster | None:
        """Returns the term's model, or the shadow's."""
        term, shadow = self.term(), self._daemon.shadow
        if term is not None:
            return term.cluster
        return shadow.tracker.model if shadow is not None and self._daemon.mode is Mode.SHADOW else None

    def active(self) -> Term:
        """Returns the active term for a request; raises :class:`NotActive`, also where it would wait for ZooKeeper."""
        term = self.term()
        if term is None:
            raise NotActive(f"this daemon is {self._daemon.mode.value}: {self._daemon.why}", self.active_daemon())
        refuse_standing(term, self._daemon)
        return term

    def active_daemon(self) -> str:
        """Names the daemon that does hold the role, as a remedy."""
        seen = self.reader.role_status
        if seen.holder_kind == "daemon" and seen.queue and seen.queue[0].nonce != self._daemon.me.nonce:
            return f"query the daemon on {seen.queue[0].host} (pid {seen.queue[0].pid})"
        return "see 'regent status'"

    def controller(self) -> int | None:
        """Returns the id in ``/controller``: a broker's while this daemon is a shadow."""
        return self._daemon.settings.controller.id if self.term() is not None else self.reader.role_status.holder

    def stale(self) -> str | None:
        """Returns why the model may be old; None while ZooKeeper answers, or without a model."""
        return suspension(self._daemon) if self.model() is not None else None

    def fresh(self) -> Cluster:
        """Returns the model; raises :class:`ViewRefused` where it may be old, because a yes would be dangerous then."""
        cluster, stale = self.cluster(), self.stale()
        if stale is not None:
            raise ViewRefused(
                f"the model may be old: {stale}", "wait until ZooKeeper answers the daemon, then try again"
            )
        return cluster

    def cluster(self) -> Cluster:
        """Returns the model; raises :class:`NotActive`."""
        cluster = self.model()
        if cluster is None:
            raise NotActive(f"this daemon is {self._daemon.mode.value}: {self._daemon.why}", self.active_daemon())
        return cluster


class StatusReader:
    """Keeps the status of the role, the counts of a large model and the topics' min ISR fresh."""

    def __init__(self, dial: Dial) -> None:
        self.role_status = RoleStatus()
        self.counted = Counted()
        self.progress = ProgressWatch()
        self._dial = dial
        self._failed = ""
        self._configs_due_s = 0.0
        self._configs_of: Cluster | None = None
        self._standing: tuple[Standing, ...] = ()

    def unowned(self, held: Callable[[], Collection[Place]]) -> int:
        """Counts the throttle settings that no procedure held when they were read, nor holds now."""
        if not self._standing:
            return 0
        now = held()
        return sum(one.place not in now for one in self._standing)

    @property
    def min_isr(self) -> MinIsr:
        """Returns the settings by which partitions count as under min ISR."""
        return self.counted.min_isr

    async def refresh(
        self, role: Role | None, cluster: Cluster | None, held: Callable[[], Collection[Place]] = frozenset
    ) -> None:
        """Reads once; after a failure keeps the last values, because an operator's view must not end the daemon.

        ``held``: returns the throttle settings that procedures own now.
        """
        try:
            if role is not None:
                self.role_status = await look(role)
            if cluster is None:
                self._drop_model()
            else:
                await self.counted.refresh(cluster)
                await self._refresh_configs(role, cluster, held)
            self._failed = ""
        except ZooKeeperError as error:
            log.debug("the status of the role could not be read, the last one stays: %s", error)
        except Exception as error:
            if (failed := repr(error)) != self._failed:
                log.exception("the status for operators could not be read, the last one stays")
            self._failed = failed

    def _drop_model(self) -> None:
        """Drops the model of an ended term, which must not stay in memory beside the next one."""
        self.counted, self._configs_of, self._standing = Counted(self.min_isr), None, ()

    async def _refresh_configs(
        self, role: Role | None, cluster: Cluster, held: Callable[[], Collection[Place]]
    ) -> None:
        now_s = asyncio.get_running_loop().time()
        if role is None or (cluster is self._configs_of and now_s < self._configs_due_s):
            return
        self._configs_of, self._configs_due_s = cluster, now_s + CONFIGS_S
        before = set(held())
        throttled, _ = await find_throttled(role.zk, (BROKERS,))
        standing = list(settings_in(throttled))

        def saw(topic: str, entries: Mapping[str, str]) -> None:
            standing.extend(settings_of(Entity(TOPICS, topic), entries))

        found = (await read_min_isr(KafkaStore(role.zk), self._dial, cluster, saw)).after(self.min_isr)
        before.update(held())
        self._standing = tuple(one for one in standing if one.place not in before)
        if found != self.min_isr:
            self.counted.min_isr = found


async def look(role: Role) -> RoleStatus:
    """Reads the status of the role."""
    flag, _ = await role.flag()
    holder, _ = await role.controller()
    kind: HolderKind = "nobody"
    if holder is not None:
        kind = "daemon" if await role.is_daemon(holder) else "broker"
    cluster_id = await read_cluster_id(role.zk)
    return RoleStatus(
        "regent" if flag.holder == "regent" else "brokers",
        holder.broker if holder is not None else None,
        kind,
        cluster_id if isinstance(cluster_id, str) else None,
        tuple(process for _, process in await role.queue() if process is not None),
        await _epoch(role),
        await announced(role),
    )


async def _epoch(role: Role) -> int | None:
    node = await role.zk.get(paths.CONTROLLER_EPOCH)
    found = decode_epoch(paths.CONTROLLER_EPOCH, node.data) if node is not None else None
    return found if isinstance(found, int) else None


async def announced(role: Role) -> Announced:
    """Reads the announcement."""
    node = await role.zk.get(endpoint_path(role.me.id))
    found = decode_endpoint(node.data) if node is not None else None
    if node is None or found is None:
        return Announced()
    seals = await role.seals()
    return Announced(found, seals is not None and seals.announces(role.me.id, node.stat.ephemeral_owner, found))


def connected(daemon: Daemon) -> bool:
    """Returns whether there is a ZooKeeper session with a connection."""
    return daemon.zk is not None and daemon.zk.state is ConnectionState.CONNECTED


def suspension(daemon: Daemon) -> str | None:
    """Returns why ZooKeeper serves no request of this daemon now, and until when; None while it does.

    Before the first session it is None, too.
    """
    zk, lease, term = daemon.zk, daemon.lease, daemon.term
    if zk is None or lease is None or daemon.mode is Mode.STOPPING:
        return None
    if zk.state is not ConnectionState.CONNECTED:
        lost = f"the connection to ZooKeeper server {zk.peer} is lost"
        return f"{lost}: no heartbeat was answered for {lease.silent_s():.0f} s{_until(term)}"
    if lease.silent_s() > SILENT_FRACTION * lease.session_timeout_s:
        silent = f"ZooKeeper server {zk.peer} has answered no heartbeat for {lease.silent_s():.0f} s"
        return f"{silent}, although the connection is up{_until(term)}"
    if term is not None and not term.gate.ready.is_set():
        return "the connection to ZooKeeper is back, and the claim is being compared with it"
    return None


def refuse_standing(term: Term, daemon: Daemon) -> None:
    """Raises :class:`NotActive` where a term does nothing because its lease ran out."""
    if term.stands_still:
        why = suspension(daemon) or "the claim is being compared with ZooKeeper"
        raise NotActive(f"this daemon is suspended: {why}", "try again once 'regent status' shows that it is active")


def _until(term: Term | None) -> str:
    """Says what a suspended term does, and what ends that."""
    if term is None:
        return ""
    left_s = term.gate.lease.remaining_s()
    if not term.stands_still:
        return f"; calls wait for the {max(0.0, left_s):.0f} s that are left of the lease, and are refused then"
    return (
        f"; since the lease ran out {-left_s:.0f} s ago nothing is written or sent, and calls are refused; "
        f"epoch {term.claim.epoch} goes on once ZooKeeper answers, unless session or claim are lost by then"
    )


def lease_s(daemon: Daemon) -> float:
    """Returns the seconds until the lease ends, after which the daemon writes and sends nothing."""
    return max(0.0, daemon.lease.remaining_s()) if daemon.lease is not None else 0.0


def lease_part(daemon: Daemon) -> float:
    """Returns the remaining part of the lease, from 1 down to 0."""
    if daemon.lease is None:
        return 0.0
    whole_s = daemon.lease.session_timeout_s * daemon.settings.controller.lease_fraction
    return min(1.0, lease_s(daemon) / whole_s)
