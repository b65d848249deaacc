"""Holds the state of a daemon: its mode, its session, its term, and their few transitions.

:class:`controller.daemon.daemon.Daemon` adds sessions, signals and tasks. A candidate and a secret's watch see only
this state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from brokers.listener.controller_listener import ControllerListener
from brokers.listener.inbound import ListenerLimits
from brokers.security.access import Access
from brokers.transport import Transport
from brokers.wire.envelope import OVERHEAD_BYTES_MAX
from brokers.wire.versions import Ibp
from configs.settings import Settings
from controller.journal.journal import Journal
from controller.kafka.path.events import EventKind
from controller.kafka.path.gate import weakly
from controller.kafka.requests.calls import Calls
from controller.kafka.term.term import Term
from controller.metrics.counters import Counters
from controller.procedures.parking import Parking
from controller.role.claim import Role
from controller.role.lease import Lease
from controller.role.mode import Mode
from controller.role.own_znodes import Process
from metadata_store.port import ZooKeeper

log = logging.getLogger("regent.daemon")


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
