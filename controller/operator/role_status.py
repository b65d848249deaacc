"""Reads the role in ZooKeeper again twice a second for the operators of a daemon.

No decision depends on it. Responses to operators come from memory, so that none of them waits for ZooKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal

from msgspec import Struct

from brokers.queries import Dial
from controller.kafka.kinds.throttle_settings import Standing, find_throttled, settings_in, settings_of
from controller.kafka.path.topic_settings import read_min_isr
from controller.metrics.gauges import HolderKind
from controller.operator.counts import Counted
from controller.operator.endpoint_status import Announced, announced
from controller.operator.progress_watch import ProgressWatch
from controller.role.claim import Role
from controller.role.own_znodes import Process
from metadata_store import paths
from metadata_store.codecs.controller import decode_epoch
from metadata_store.errors import ZooKeeperError
from metadata_store.kafka_store import KafkaStore
from metadata_store.nodes.cluster_nodes import read_cluster_id
from state_machines.admin_rules.throttles import BROKERS, TOPICS, Entity, Place
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import MinIsr

log = logging.getLogger("regent.view")

LOOK_S: Final = 0.5
CONFIGS_S: Final = 30.0


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
                self._let_go()
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

    def _let_go(self) -> None:
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
