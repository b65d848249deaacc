"""Writes as other clients during a handler's work: at one of its requests, to the queue, to watched parents."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.errors import ZkError, ZooKeeperError
from metadata_store.port import ANY_VERSION
from tests.simulation.kafka import faults
from tests.simulation.kafka.acting import Acting
from tests.simulation.kafka.zookeeper import SimZooKeeper

GARBAGE: Final = b'{"version":1,'
NOTIFICATIONS: Final = {
    "isr-change": f"{paths.ISR_CHANGES}/isr_change_",
    "log-dir-event": f"{paths.LOG_DIR_EVENTS}/log_dir_event_",
    "config-change": paths.CONFIG_CHANGE_PREFIX,
}
"""Sequential znodes that the controller reads once."""
REQUESTS: Final = {"reassignment": paths.REASSIGN_PARTITIONS, "preferred-election": paths.PREFERRED_ELECTION}
PARENTS: Final = (paths.DELETE_TOPICS, paths.ISR_CHANGES, paths.LOG_DIR_EVENTS, paths.CONFIG_CHANGES)


class InterferenceActions(Acting):
    """Interferes with daemons, which go on or begin another term."""

    def do_at_request(self, number: int, verb: str, *words: object) -> None:
        """Performs an action at the ``number``-th request that a serving daemon sends while it handles an event."""
        self.w.interposed.append((number, verb, words))

    def requested(self, zk: SimZooKeeper) -> None:
        """Counts a request of a daemon."""
        daemon = self.w.serving_daemon() if self.w.interposed else None
        if daemon is None or daemon.zk is not zk or daemon.term is None or daemon.term.handling is None:
            return
        waiting, self.w.interposed = self.w.interposed, []
        for number, verb, words in waiting:
            if number > 1:
                self.w.interposed.append((number - 1, verb, words))
            else:
                self.w.happened(faults.OPERATOR_INTERPOSED)
                self._later(0.0, self.w.act, verb, words)

    def do_leave_queue(self, number: int) -> None:
        """Deletes a daemon's position in the queue of daemons."""
        daemon = self._daemon(number)
        if daemon is not None and daemon.zk is not None:
            owned = self.w.ensemble.leader.tree.ephemerals(daemon.zk.session_id)
            for path in [path for path in owned if path.startswith(own.LOCKS)]:
                self.w.operate(self._delete(path, faults.OPERATOR_UNQUEUED))

    def do_drop_parent(self, number: int) -> None:
        """Deletes an empty parent that the controller watches: the term ends, and the next creates the parent again."""
        self.w.operate(self._delete(PARENTS[number], faults.OPERATOR_DROPPED))

    async def _delete(self, path: str, fault: str) -> None:
        self.w.interfered.add(path)
        with suppress(ZkError):
            await self.w.operator.delete(path, ANY_VERSION)
            self.w.happened(fault)

    def do_litter(self, what: str, for_s: float) -> None:
        """Creates a malformed notification, or a malformed request by znode, which its writer deletes later."""
        self.w.operate(
            self._notify(NOTIFICATIONS[what]) if what in NOTIFICATIONS else self._request(REQUESTS[what], for_s)
        )

    async def _notify(self, prefix: str) -> None:
        self.w.interfered.add(prefix)
        with suppress(ZkError):
            await self.w.operator.create(prefix, GARBAGE, sequential=True)
            self.w.happened(faults.OPERATOR_LITTERED)

    async def _request(self, path: str, for_s: float) -> None:
        self.w.interfered.add(path)
        with suppress(ZkError):
            created = await self.w.operator.create(path, GARBAGE)
            self.w.happened(faults.OPERATOR_LITTERED)
            await asyncio.sleep(for_s)
            with suppress(ZooKeeperError):
                await self.w.operator.sync("/")
                found = await self.w.operator.get(path)
                if found is not None and found.stat.czxid == created.stat.czxid:
                    await self.w.operator.delete(path, found.stat.version)
