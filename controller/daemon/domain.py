"""Makes the controller of a Kafka cluster a domain of the process: the daemon with its journal and its secret."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import anyio
import anyio.to_thread

from brokers.client import prepare_queries
from brokers.queries import dial_for
from brokers.security.access import Access
from brokers.security.shared_secret import SecretUnusable, shared_secret
from brokers.wire.messages import CARRIED, prepare
from configs.settings import Settings
from controller.daemon.daemon import Daemon
from controller.journal.journal import Journal
from controller.journal.segments import folder_in
from controller.journal.topic import JournalTopic
from controller.journal.topic_producer import connect
from controller.kafka.metrics.values import Counters
from controller.kafka.path.events import Event, EventKind
from controller.process.watchdogs import StallGuard
from controller.process.zookeeper import connections
from controller.role.lease import Lease


class KafkaDomain:
    """Runs one daemon. Its journal, the journal's topic and its secret are those of the settings; a shadow has none."""

    def __init__(
        self,
        settings: Settings,
        access: Access,
        guard: StallGuard | None,
        *,
        shadow: bool = False,
        takeover: bool = False,
        endpoint_beside: bool = False,
        new_lease: Callable[[float, float], Lease] = Lease.of_session,
    ) -> None:
        counters = Counters()
        self._topic = _topic(settings, counters) if settings.journal.topic and not shadow else None
        self._journal = _journal(settings, counters, self._topic) if settings.journal.enabled and not shadow else None
        self.over = asyncio.Event()
        self.daemon = Daemon(
            settings,
            connections(settings),
            takeover=takeover,
            shadow=shadow,
            endpoint_beside=endpoint_beside,
            dial=dial_for(settings),
            guard=guard,
            new_lease=new_lease,
            journal=self._journal,
            counters=counters,
            secret=None if shadow else _secret(settings),
            secret_file=None if shadow else settings.secret_file,
            access=access,
        )

    @property
    def exit_code(self) -> int:
        """Returns the exit code of the process."""
        return self.daemon.exit_code

    async def begin(self) -> None:
        """Starts the journal."""
        if self._journal is not None:
            self._journal.start()
        if self._topic is not None:
            self._topic.start(partial(addresses, self.daemon))

    async def run(self) -> None:
        """Runs the daemon until it has stopped, and beside it prepares cold codecs.

        The daemon has a task of its own: a cancellation lets it finish what it shields.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, prepare_queries)
            tasks.start_soon(anyio.to_thread.run_sync, prepare, CARRIED)
            tasks.start_soon(self.daemon.run)
        self.over.set()

    def end(self) -> None:
        """Writes the last rows of the journal."""
        if self._journal is not None:
            self._journal.close()

    def stop(self) -> None:
        """Begins a clean stop."""
        self.daemon.stop()

    async def moves(self, within_s: float) -> bool:
        """Returns whether a no-op passed the queue in time, or the queue is waiting for ZooKeeper."""
        term = self.daemon.term
        if term is None or not term.serving.is_set() or not term.gate.ready.is_set():
            return True
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        term.queue.post(
            Event(EventKind.SETTLED, passed, key=("watchdog", id(passed)), preempt=lambda: _give_up(passed))
        )
        with anyio.move_on_after(within_s):
            await asyncio.wait({passed})
        return passed.done() or not term.gate.ready.is_set()


def _give_up(passed: asyncio.Future[None]) -> None:
    passed.cancel()


def _journal(settings: Settings, counters: Counters, topic: JournalTopic | None) -> Journal:
    return Journal(folder_in(settings.state.directory), settings.journal, counters, copies=topic)


def _topic(settings: Settings, counters: Counters) -> JournalTopic:
    """Returns the topic that gets the journal's rows."""
    timeout_s = settings.brokers.request_timeout_ms / 1000
    return JournalTopic(settings.journal, counters, partial(connect, security=settings.security, timeout_s=timeout_s))


def addresses(daemon: Daemon) -> list[str]:
    """Returns ``host:port`` of the live brokers by the model, where a term has one. Any thread."""
    term, listener = daemon.term, daemon.settings.brokers.inter_broker_listener
    brokers = list(term.controller.cluster.brokers.values()) if term is not None else []
    found = [endpoint for broker in brokers if (endpoint := broker.endpoint(listener)) is not None]
    return [f"[{at.host}]:{at.port}" if ":" in at.host else f"{at.host}:{at.port}" for at in found]


def _secret(settings: Settings) -> bytes | None:
    """Reads the secret shared with admin endpoints; None where that fails: the daemon logs why and reads it again."""
    try:
        return shared_secret(settings.secret_file)
    except SecretUnusable:
        return None
