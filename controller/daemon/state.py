"""Holds the state of a daemon: its mode, its session, its term, its secret, and their few transitions.

:class:`controller.daemon.daemon.Daemon` adds sessions and tasks. Candidates, hand-backs and the watch of the secret see
only this state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

import anyio

from brokers.listener.controller_listener import ControllerListener
from brokers.listener.inbound import ListenerLimits
from brokers.security.access import Access
from brokers.security.shared_secret import SecretUnusable, present_secret, shared_secret
from brokers.transport import Transport
from brokers.wire.envelope import OVERHEAD_BYTES_MAX
from brokers.wire.versions import Ibp
from configs.settings import Settings
from controller.journal.journal import Journal
from controller.kafka.metrics.values import Counters
from controller.kafka.path.events import EventKind
from controller.kafka.path.gate import weakly
from controller.kafka.requests.calls import Calls
from controller.kafka.term.term import Term
from controller.procedures.parking import Parking
from controller.role.claim import Role
from controller.role.lease import Lease
from controller.role.own_znodes import Process
from metadata_store.errors import ZooKeeperError
from metadata_store.port import ZooKeeper

log = logging.getLogger("regent.daemon")

READ_S: Final = 2.0
"""Time between two reads of the file."""


class Mode(StrEnum):
    """The present activity of a daemon, as status and log lines show it."""

    CONNECTING = "connecting"
    STANDBY = "standby"
    BLOCKED = "blocked"
    CLAIMING = "claiming"
    TAKING_OFFICE = "taking office"
    ACTIVE = "active"
    HANDING_BACK = "handing back"
    SHADOW = "shadow"
    STOPPING = "stopping"


def listener_limits(settings: Settings) -> ListenerLimits:
    """Returns the bounds of the controller listener: the largest request of an admin endpoint fits, in its envelope."""
    wanted = settings.listener
    return ListenerLimits(
        frame_bytes_max=max(wanted.frame_bytes_max, settings.admin.frame_bytes_max + OVERHEAD_BYTES_MAX),
        connections_max=wanted.connections_max,
        connections_per_address_max=wanted.connections_per_address_max,
        frame_timeout_ms=wanted.frame_timeout_ms,
        idle_timeout_ms=wanted.idle_timeout_ms,
    )


class DaemonState:
    """State that the parts of one daemon share.

    ``zk``, ``role``, ``lease``: of the present session, None without one. ``term``: the present term, None without
    one. ``changed`` is set whenever ZooKeeper reports something.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        me: Process,
        counters: Counters,
        access: Access,
        listener: ControllerListener | None = None,
        transport: Transport | None = None,
        journal: Journal | None = None,
        secret: bytes | None = None,
    ) -> None:
        self.settings = settings
        self.me = me
        self.counters = counters
        self.secret = secret
        self.transport = transport or access.transport
        self.journal = journal
        self.parking = Parking()
        self.ibp = Ibp.parse(settings.controller.ibp)
        self.mode = Mode.CONNECTING
        self.why = "not connected to ZooKeeper yet"
        self.zk: ZooKeeper | None = None
        self.role: Role | None = None
        self.lease: Lease | None = None
        self.term: Term | None = None
        self.listener = listener or ControllerListener(
            settings.listener.host,
            settings.listener.port,
            listener_limits(settings),
            secret,
            tls=access.tls,
            authenticator=access.authenticator,
            callers=access.callers,
        )
        self.stopping = asyncio.Event()
        self.changed = asyncio.Event()
        self.exit_code = 0
        self._draining: asyncio.Task[None] | None = None
        self._waiting = anyio.CancelScope()

    def become(self, mode: Mode, why: str, level: int | None = None) -> None:
        """Changes the mode and logs the reason once, by default as a warning where the mode needs a remedy.

        A stopping daemon keeps that mode.
        """
        if level is None:
            level = logging.WARNING if mode is Mode.BLOCKED else logging.INFO
        if self.stopping.is_set() and mode is not Mode.STOPPING:
            return
        if (mode, why) != (self.mode, self.why):
            log.log(level, "%s: %s", mode, why)
        self.mode, self.why = mode, why
        if mode in (Mode.STANDBY, Mode.STOPPING):
            self.parking.refuse_early(f"this daemon is {mode} ({why}): send the request to the active one")

    def stop(self) -> None:
        """Begins a clean stop: waiting events are handled and propagated, then mode ``brokers`` releases the role.

        A second stop, or one while nothing can be written, does not wait.
        """
        again = self.stopping.is_set()
        self.become(Mode.STOPPING, "a stop was requested")
        self.stopping.set()
        self._waiting.cancel()
        term = self.term
        if term is None:
            return
        if again or not term.serving.is_set() or not term.gate.open():
            term.gate.end("the daemon stops")
        else:
            self._draining = asyncio.get_running_loop().create_task(self._drain(term), name="drain")

    async def _drain(self, term: Term) -> None:
        """Drains the term within ``controller.drain_timeout_ms``, or until the term ends by itself."""
        try:
            await term.drain(self.listener, self.settings.controller.drain_timeout_ms / 1000, log.info)
        finally:
            term.gate.end("the daemon stops")

    @contextmanager
    def until_stopped(self) -> Iterator[None]:
        """Cuts the waits inside short at a stop; ``stopping`` is set then."""
        self._waiting = anyio.CancelScope()
        with self._waiting:
            if self.stopping.is_set():
                self._waiting.cancel()
            yield

    # -- terms

    def begin_term(self, term: Term) -> None:
        """Begins the term of a won claim: its queue takes the brokers' requests from now on."""
        self.term = term
        self.become(Mode.TAKING_OFFICE, f"claimed epoch {term.claim.epoch}")
        if self.stopping.is_set():
            term.gate.end("the daemon stops")
        known = weakly(term.topic_name, None), weakly(term.registered, False)
        self.listener.serve(Calls(term.queue, term.authorizer, *known))

    def end_term(self, term: Term) -> None:
        """Ends a term: brokers look for another controller."""
        self.listener.resign()
        if self._draining is not None:
            self._draining.cancel()
        self.term = None
        term.finished.set()

    def take_secret(self, secret: bytes) -> None:
        """Replaces the secret shared with admin endpoints; an active daemon judges the endpoint beside it anew."""
        self.secret = secret
        self.listener.take_secret(secret)
        if self.role is not None:
            self.role.take_secret(secret)
        if self.term is not None:
            self.term.queue.signal(EventKind.ENDPOINT_CHANGE)

    def advertised(self) -> tuple[str, int]:
        """Returns host and port where brokers reach the controller listener."""
        wanted = self.settings.listener
        return wanted.advertised_host, wanted.advertised_port or self.listener.port

    async def pause(self, seconds: float) -> None:
        """Waits for some seconds, at most until a stop."""
        with anyio.move_on_after(seconds):
            await self.stopping.wait()


class SecretWatch:
    """Follows the file of a daemon's secret; ``trouble`` is why it cannot be used now, None while it can."""

    def __init__(self, daemon: DaemonState, file: Path | None) -> None:
        self.trouble: str | None = None
        self._d = daemon
        self._file = file

    async def keep(self) -> None:
        """Reads the file now and every two seconds until cancelled; returns at once without a file."""
        while self._file is not None:
            await self._look(self._file)
            await asyncio.sleep(READ_S)

    async def _look(self, file: Path) -> None:
        """Takes the secret in the file; an unusable file leaves the secret that was read before."""
        read = shared_secret if self._d.secret is None else present_secret
        try:
            found = await anyio.to_thread.run_sync(read, file)
            self.trouble = None
        except SecretUnusable as error:
            if str(error) != self.trouble:
                log.warning("%s: %s", self._consequence(), error)
            self.trouble, found = str(error), None
        if found is not None and found != self._d.secret:
            log.info(
                "the admin secret in %s is in force: an admin endpoint with the same one reaches this daemon", file
            )
            self._d.take_secret(found)
        await self._seal()

    def _consequence(self) -> str:
        if self._d.secret is None:
            return "no admin endpoint can reach this daemon"
        return "the daemon continues with the admin secret that it read before, and its admin endpoint will not start"

    async def _seal(self) -> None:
        """Seals this daemon's znodes; after a failure tries again at the next read."""
        d, role, term = self._d, self._d.role, self._d.term
        if role is None or d.secret is None:
            return
        claim = term.claim if term is not None and term.gate.open() else None
        try:
            await role.seal_again(claim)
            seals = await role.seals()
            if claim is not None and seals is not None:
                d.listener.identify(seals.cluster_id, d.me.id)
        except ZooKeeperError as error:
            log.debug("the seals under the admin secret could not be written, the next read tries again: %s", error)
