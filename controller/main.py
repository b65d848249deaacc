"""Runs ``regent run``: the process around a daemon with its logs, the loop's guard, HTTP and systemd."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import anyio
from prometheus_client.registry import Collector

from brokers.client import prepare_queries
from brokers.queries import dial_for
from brokers.security.access import access_of
from brokers.security.shared_secret import SecretUnusable, shared_secret
from brokers.security.users import SecurityUnusable
from brokers.wire.messages import CARRIED, prepare
from configs.settings import Settings
from controller.app import create_app
from controller.daemon.daemon import Daemon
from controller.http.server import serving
from controller.http.tcp import serving_remotely
from controller.journal.journal import Journal
from controller.journal.segments import folder_in
from controller.journal.topic import JournalTopic
from controller.journal.topic_producer import connect
from controller.kafka.path.event_kinds import EventKind
from controller.kafka.path.event_queue import Event
from controller.kafka.term.dispatch import KAFKA_STATES
from controller.life import failed, log_start, need_http, need_regions, tune
from controller.metrics.counters import Counters
from controller.metrics.exposition import About, DaemonCollector, registry
from controller.operator.sampling import suspension
from controller.operator.view import View
from controller.process.logs import logging_to
from controller.process.sessions import connections
from controller.process.stall_guard import StallGuard
from controller.process.systemd import ServiceManager
from controller.regions.domain import RegionsDomain, shown
from controller.regions.metrics.exposition import RegionsCollector
from controller.regions.operator.view import View as RegionsView
from controller.regions.process import domain_of, regions_secrets_of, running
from controller.role.lease import Lease

log = logging.getLogger("regent.daemon")

STATUS_S = 1.0


async def run(
    settings: Settings,
    *,
    shadow: bool = False,
    takeover: bool = False,
    endpoint_beside: bool = False,
    guarded: bool = True,
    new_lease: Callable[[float, float], Lease] = Lease.of_session,
) -> int:
    """Runs a daemon until SIGTERM or SIGINT; returns the exit code.

    ``endpoint_beside``: an admin endpoint starts with it. ``guarded`` and ``new_lease`` are for tests.
    """
    tune()
    guard = StallGuard(settings.controller.loop_stall_ms_max / 1000)
    with logging_to(settings.log) as lines:
        log_start(settings)
        try:
            access = access_of(settings.security, only_brokers=settings.listener.only_brokers)
            secrets = regions_secrets_of(settings)
        except SecurityUnusable as error:
            return failed(error)
        counters = Counters()
        topic = topic_of(settings, counters) if not shadow else None
        journal = journal_of(settings, counters, topic) if not shadow else None
        regions = domain_of(settings, access.tls, secrets) if settings.regions.enabled and not shadow else None
        daemon = Daemon(
            settings,
            connections(settings),
            takeover=takeover,
            shadow=shadow,
            endpoint_beside=endpoint_beside,
            dial=dial_for(settings),
            guard=guard if guarded else None,
            new_lease=new_lease,
            journal=journal,
            counters=counters,
            secret=None if shadow else secret_of(settings),
            secret_file=None if shadow else settings.secret_file,
            access=access,
        )
        view = View(daemon, lines_dropped=lambda: lines.dropped)
        if topic is not None:
            topic.start(partial(addresses, daemon))
        guard.on_lag = counters.loop_lag.record
        guard.last_words = partial(lines.log_last, log)
        if guarded:
            guard.start()
        try:
            await _serve(daemon, view, regions)
        except Exception as error:
            return failed(error)
        finally:
            guard.stop()
            if journal is not None:
                journal.close()
        log.info("regent has stopped")
    return daemon.exit_code


async def _serve(daemon: Daemon, view: View, regions: RegionsDomain | None) -> None:
    """Runs the daemon, and beside it regions, HTTP, the systemd status and the preparation of cold codecs."""
    settings, manager = daemon.settings, ServiceManager()
    collectors: list[Collector] = [DaemonCollector(About.of(settings), daemon.counters, view, KAFKA_STATES)]
    regions_view = RegionsView(regions, settings) if regions is not None else None
    if regions is not None and regions_view is not None:
        collectors.append(RegionsCollector(regions.counters, regions_view))
    app = create_app(view, registry(*collectors), regions=regions_view)
    async with (
        serving(app, settings.http) as http_ended,
        serving_remotely(app, settings.http),
        running(regions) as regions_ended,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_report, daemon, regions, manager)
        tasks.start_soon(view.keep_fresh)
        tasks.start_soon(view.snapshot_keeper.keep)
        tasks.start_soon(need_http, http_ended)
        tasks.start_soon(need_regions, regions_ended)
        tasks.start_soon(anyio.to_thread.run_sync, prepare_queries)
        tasks.start_soon(anyio.to_thread.run_sync, prepare, CARRIED)
        manager.ready(_status(daemon, regions))
        await daemon.run()
        manager.stopping("stopping")
        tasks.cancel_scope.cancel()


def journal_of(settings: Settings, counters: Counters, topic: JournalTopic | None = None) -> Journal | None:
    """Starts the daemon's journal; returns None where it is switched off."""
    if not settings.journal.enabled:
        return None
    journal = Journal(folder_in(settings.state.directory), settings.journal, counters, copies=topic)
    journal.start()
    return journal


def topic_of(settings: Settings, counters: Counters) -> JournalTopic | None:
    """Returns the topic that gets the journal's rows, not started; None where there is none."""
    if not settings.journal.topic:
        return None
    timeout_s = settings.brokers.request_timeout_ms / 1000
    return JournalTopic(settings.journal, counters, partial(connect, security=settings.security, timeout_s=timeout_s))


def addresses(daemon: Daemon) -> list[str]:
    """Returns ``host:port`` of the live brokers by the model, where a term has one. Any thread."""
    term, listener = daemon.term, daemon.settings.brokers.inter_broker_listener
    brokers = list(term.controller.cluster.brokers.values()) if term is not None else []
    found = [endpoint for broker in brokers if (endpoint := broker.endpoint(listener)) is not None]
    return [f"[{at.host}]:{at.port}" if ":" in at.host else f"{at.host}:{at.port}" for at in found]


def secret_of(settings: Settings) -> bytes | None:
    """Reads the secret shared with admin endpoints; None where that fails: the daemon logs why and reads it again."""
    try:
        return shared_secret(settings.secret_file)
    except SecretUnusable:
        return None


def _status(daemon: Daemon, regions: RegionsDomain | None) -> str:
    suspended = suspension(daemon)
    line = f"{daemon.mode}: {daemon.why}" if suspended is None else f"suspended: {suspended}"
    if regions is None:
        return line
    mode, why = shown(regions)
    return f"{line}; regions {mode}: {why}"


async def _report(daemon: Daemon, regions: RegionsDomain | None, manager: ServiceManager) -> None:
    """Sends systemd the status line, and the watchdog's signal while the loop turns and an active queue moves."""
    sent = ""
    while True:
        if (line := _status(daemon, regions)) != sent:
            manager.status(line)
            sent = line
        if await _queue_moves(daemon, manager.watchdog_s):
            manager.alive()
        await asyncio.sleep(min(STATUS_S, (manager.watchdog_s or STATUS_S) / 4))


async def _queue_moves(daemon: Daemon, watchdog_s: float | None) -> bool:
    """Returns whether a no-op passed the queue in time, or the queue is waiting for ZooKeeper."""
    term = daemon.term
    if watchdog_s is None or term is None or not term.serving.is_set() or not term.controller.ready.is_set():
        return True
    passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    term.queue.post(Event(EventKind.SETTLED, passed, key=("watchdog", id(passed)), preempt=lambda: _give_up(passed)))
    with anyio.move_on_after(watchdog_s / 2):
        await asyncio.wait({passed})
    return passed.done() or not term.controller.ready.is_set()


def _give_up(passed: asyncio.Future[None]) -> None:
    passed.cancel()
