"""Runs the daemon: sessions, standby, terms, and the surfaces around them.

A new session replaces a lost one; each starts with a position in the queue of daemons. The first daemon in the queue
claims while the role flag is ``regent``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import anyio

from brokers.listener.controller_listener import ControllerListener
from brokers.queries import Dial
from brokers.security.access import Access
from brokers.transport import Transport
from configs.settings import Settings
from controller.daemon.candidate import STANDBY_POLL_S, Candidate
from controller.daemon.state import DaemonState, Mode, SecretWatch
from controller.journal.journal import Journal
from controller.kafka.metrics.values import Counters
from controller.kafka.shadow.report import report_path
from controller.kafka.shadow.shadow import Shadow
from controller.process.clock import boottime_s
from controller.process.watchdogs import StallGuard
from controller.process.zookeeper import digest_pair
from controller.role.claim import Role
from controller.role.lease import Lease, Outage
from controller.role.own_znodes import Process, this_process
from controller.role.queue import PositionLost
from metadata_store.errors import NotConnected, ZkError, ZooKeeperError
from metadata_store.port import ConnectionState, WatchEvent, ZooKeeper

log = logging.getLogger("regent.daemon")


def _shadow(settings: Settings, counters: Counters) -> Shadow:
    file = report_path(settings.state.directory)
    return Shadow(poll_s=settings.shadow.poll_s, counters=counters, file=file)


class Daemon(DaemonState):
    """One process. ``connect`` creates a ZooKeeper session object (not yet connected).

    ``me``, ``listener`` and ``transport`` default to this process, its listener and TCP. ``access``: TLS and SASL of
    both; without it there is neither. ``secret`` is shared with admin endpoints
    (:mod:`brokers.security.shared_secret`); without it their calls are refused. ``secret_file`` is read again while
    the daemon runs. Without a ``journal`` none is kept. ``endpoint_beside``: an admin endpoint starts beside it.
    """

    def __init__(
        self,
        settings: Settings,
        connect: Callable[[], ZooKeeper],
        *,
        takeover: bool = False,
        shadow: bool = False,
        endpoint_beside: bool = False,
        dial: Dial | None = None,
        guard: StallGuard | None = None,
        new_lease: Callable[[float, float], Lease] = Lease.of_session,
        me: Process | None = None,
        listener: ControllerListener | None = None,
        transport: Transport | None = None,
        journal: Journal | None = None,
        counters: Counters | None = None,
        secret: bytes | None = None,
        secret_file: Path | None = None,
        access: Access | None = None,
    ) -> None:
        super().__init__(
            settings,
            me=me or this_process(settings.controller.id),
            counters=counters or Counters(),
            access=access or Access(),
            listener=listener,
            transport=transport,
            journal=journal,
            secret=secret,
        )
        self.secret_watch = SecretWatch(self, secret_file)
        self.guard = guard
        self.shadow = _shadow(settings, self.counters) if shadow else None
        self.heartbeat_s = boottime_s()
        """Sending time of the last answered heartbeat, of any session; before the first, the start of the process."""
        self._new_lease = new_lease
        self._connect = connect
        self._candidate = Candidate(
            self, dial, takeover=takeover, endpoint_beside=endpoint_beside and settings.admin.listed
        )
        self._lost = asyncio.Event()
        self._outage = Outage()

    async def run(self) -> None:
        """Serves until :meth:`stop` has ended. Replaces lost sessions; raises errors that no new session repairs."""
        await self.listener.start()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.secret_watch.keep)
                while not self.stopping.is_set():
                    await self._session()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self.listener.stop()

    # -- one session

    async def _session(self) -> None:
        """Connects, queues, and claims whenever it is our turn; returns when the session is over."""
        self.become(Mode.CONNECTING, f"connecting to ZooKeeper at {self.settings.zookeeper.connect}")
        zk = self.zk = self._connect()
        self._lost = asyncio.Event()
        zk.on_watch, zk.on_state = self._watched, self._state_changed
        zk.on_state_thread = self._state_changed_at_once
        try:
            with self.until_stopped():
                await zk.connect(self.settings.zookeeper.connect_timeout_ms / 1000)
        except ZooKeeperError as error:
            self.become(Mode.CONNECTING, f"no ZooKeeper session: {error}; tried again every second", logging.WARNING)
            await self.pause(1.0)
            await zk.close()
            return
        if self.stopping.is_set():
            await zk.close()
            return
        lease = self.lease = self._new_lease(zk.session_timeout_ms / 1000, self.settings.controller.lease_fraction)
        self._granted(zk)
        role = self.role = Role(
            zk,
            self.me,
            hold=self.settings.controller.on_absence == "hold",
            digest=digest_pair(self.settings),
            listener=":".join(map(str, self.advertised())),
            secret=self.secret,
        )
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lease.keep, self._heartbeat, ZooKeeperError)
                tasks.start_soon(self._end_when_lost, tasks.cancel_scope)
                if self.shadow is not None:
                    await self._follow(zk, self.shadow)
                else:
                    await self._candidate.run(role, lease)
                tasks.cancel_scope.cancel()
        except* (NotConnected, PositionLost) as lost:
            log.warning("the ZooKeeper session is over: %s", _first(lost))
        finally:
            await self._leave(zk, role)

    async def _heartbeat(self) -> None:
        """Sends one on the present session and records it for the metrics."""
        assert self.zk is not None
        sent_s = boottime_s()
        await self.zk.heartbeat()
        self.heartbeat_s = sent_s
        self.counters.heartbeats.record(boottime_s() - sent_s)

    async def _leave(self, zk: ZooKeeper, role: Role) -> None:
        """Gives up the queue position and closes the session; a lost session has lost its position."""
        with anyio.move_on_after(2.0, shield=True):
            try:
                await role.leave_queue()
            except ZooKeeperError:
                log.debug("the queue position ends with the session")
        with anyio.CancelScope(shield=True):
            await zk.close()
        zk.on_watch = zk.on_state = zk.on_state_thread = None
        self.zk = self.role = self.lease = None

    async def _end_when_lost(self, scope: anyio.CancelScope) -> None:
        """Ends the session's scope once the session is lost; a term ends in its own way first."""
        await self._lost.wait()
        if self.term is not None:
            self.term.gate.end("the ZooKeeper session is lost")
            await self.term.finished.wait()
        scope.cancel()

    def _watched(self, event: WatchEvent) -> None:
        if self.term is not None:
            self.term.watched(event)
        self.changed.set()

    def _state_changed(self, state: ConnectionState) -> None:
        if state is ConnectionState.LOST:
            self._lost.set()
        if state is ConnectionState.CONNECTED and self.zk is not None:
            self._granted(self.zk)
        if self.zk is not None:
            self._log_outage(self.zk, state)
        if self.term is not None:
            self.term.state_changed(state)
        self.changed.set()

    def _granted(self, zk: ZooKeeper) -> None:
        """Applies the session timeout of a new connection to the lease, its heartbeats and the loop's guard."""
        granted_s = zk.session_timeout_ms / 1000
        if self.lease is not None:
            self.lease.renegotiated(granted_s)
        if self.guard is not None:
            self.guard.within(granted_s)

    def _log_outage(self, zk: ZooKeeper, state: ConnectionState) -> None:
        """Logs an outage outside of terms; a term logs its own outages with the lease."""
        in_term = self.term is not None and not self.term.gate.ended
        if state is ConnectionState.SUSPENDED:
            self._outage.begin(self.lease)
            if not in_term:
                log.warning("connection to ZooKeeper server %s is lost: this daemon waits until it is back", zk.peer)
        elif state is ConnectionState.CONNECTED and (length := self._outage.end()) is not None and not in_term:
            log.info("ZooKeeper server %s is connected after %s", zk.peer, length)

    def _state_changed_at_once(self, state: ConnectionState) -> None:
        """Ends the term at once; runs on the adapter's thread."""
        term = self.term
        if term is not None and state is ConnectionState.LOST:
            term.gate.end("the ZooKeeper session is lost")

    async def _follow(self, zk: ZooKeeper, shadow: Shadow) -> None:
        """Runs the shadow: it takes no queue position, writes nothing and sends nothing."""
        while not self.stopping.is_set():
            self.become(Mode.SHADOW, "deciding beside Kafka's own controller; nothing is written or sent")
            try:
                with self.until_stopped():
                    await shadow.run(zk)
            except ZkError as error:
                self.become(
                    Mode.BLOCKED,
                    f"ZooKeeper refused a request of this shadow ({error}): check the ACL of {error.path}, and "
                    "zookeeper.digest_file; tried again every few seconds",
                )
                await self.pause(STANDBY_POLL_S)


def _first(group: BaseExceptionGroup[Exception]) -> BaseException:
    """Returns the first error inside of nested groups."""
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
