"""Runs ``regent run``: the process around the domains of a daemon, with logs, the loop's guard, HTTP and systemd."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import anyio

from brokers.security.access import access_of
from brokers.security.authentication import SecurityUnusable
from configs.advice import advice
from configs.settings import Settings
from controller.domain import Domain, Part, create_app, running
from controller.http.server import SocketTaken, serving
from controller.http.tcp import serving_remotely
from controller.metrics import ProcessMetrics, registry
from controller.process.logs import logging_to
from controller.process.watchdogs import ServiceManager, StallGuard
from controller.process.wording import name_of
from controller.regions.operator.view import View as RegionsView
from controller.regions.process import domain_of, regions_secrets_of
from controller.role.lease import Lease

log = logging.getLogger("regent.daemon")

STATUS_S: Final = 1.0
SWITCH_S: Final = 0.000_2
"""Longest hold of the interpreter against other threads: Python's default is 5 ms.

With it kazoo's thread makes a failover a fifth slower, and the journal's doubles the longest lag of many assignments.
"""
COLLECT_AFTER: Final = (20_000, 20, 50)
"""Objects, and collections of the younger generation, after which garbage is collected: Python's are 700, 10 and 10.

With these a daemon that has 100,000 procedures under way spends an eighth of its time on collections that find nothing.
"""
NewLease = Callable[[float, float], Lease]


async def run(
    settings: Settings,
    *,
    shadow: bool = False,
    takeover: bool = False,
    endpoint_beside: bool = False,
    guarded: bool = True,
    new_lease: NewLease = Lease.of_session,
) -> int:
    """Runs a daemon until SIGTERM or SIGINT; returns the exit code.

    ``endpoint_beside``: an admin endpoint starts with it. ``guarded`` and ``new_lease`` are for tests.
    """
    tune()
    guard = StallGuard(settings.controller.loop_stall_ms_max / 1000)
    with logging_to(settings.log) as lines:
        _log_start(settings)
        metrics = ProcessMetrics(settings.controller.id, lambda: lines.dropped)
        try:
            parts = _parts(
                settings,
                guard if guarded else None,
                shadow=shadow,
                takeover=takeover,
                endpoint_beside=endpoint_beside,
                new_lease=new_lease,
            )
        except SecurityUnusable as error:
            return failed(error)
        guard.on_lag = metrics.loop_lag.record
        guard.last_words = partial(lines.log_last, log)
        if guarded:
            guard.start()
        try:
            await _serve(settings, parts, metrics, guard if guarded else None)
        except Exception as error:
            return failed(error)
        finally:
            guard.stop()
        log.info("regent has stopped")
    return parts[0].domain.exit_code


def tune() -> None:
    """Sets how the interpreter shares its time among threads, and how often it collects garbage."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*COLLECT_AFTER)


def _log_start(settings: Settings) -> None:
    """Logs which daemon starts, and what its settings leave open."""
    log.info("regent starts as daemon %s, pid %d", name_of(settings), os.getpid())
    for sentence in advice(settings):
        log.warning("%s", sentence)
    if not settings.has_kafka:
        log.info("no section [listener] is given: this daemon assigns regions, and is no controller of Kafka")


def _parts(
    settings: Settings,
    guard: StallGuard | None,
    *,
    shadow: bool,
    takeover: bool,
    endpoint_beside: bool,
    new_lease: NewLease,
) -> list[Part]:
    """Makes the domains that the settings describe; raises ``SecurityUnusable``. A shadow has no regions."""
    access = access_of(settings.security, only_brokers=settings.listener.only_brokers)
    secrets = regions_secrets_of(settings)
    parts: list[Part] = []
    if settings.has_kafka:
        # A daemon for regions alone starts without this code, a third faster.
        from controller.daemon.domain import KafkaDomain
        from controller.operator.view import View

        kafka = KafkaDomain(
            settings,
            access,
            guard,
            shadow=shadow,
            takeover=takeover,
            endpoint_beside=endpoint_beside,
            new_lease=new_lease,
        )
        parts.append(Part(kafka, View(kafka.daemon)))
    if not settings.has_kafka or (settings.regions.enabled and not shadow):
        regions = domain_of(settings, access.tls, secrets)
        parts.append(Part(regions, RegionsView(regions, settings)))
    return parts


async def _serve(settings: Settings, parts: Sequence[Part], metrics: ProcessMetrics, guard: StallGuard | None) -> None:
    """Runs the domains, with HTTP and the systemd status beside them, until the first domain is over.

    A signal stops the first domain. The other one serves on meanwhile.
    """
    first, views, manager = parts[0].domain, [part.view for part in parts], ServiceManager()
    app = create_app(views, registry(metrics, *(view.collector() for view in views)))
    async with (
        serving(app, settings.http) as http_ended,
        serving_remotely(app, settings.http),
        running(*(part.domain for part in parts)) as ended,
        anyio.create_task_group() as tasks,
    ):
        if guard is not None:
            tasks.start_soon(guard.tick)
        tasks.start_soon(_stop_on_signal, first)
        for task in ended:
            tasks.start_soon(_need_domain, task)
        for view in views:
            tasks.start_soon(view.keep)
        tasks.start_soon(_need_http, http_ended)
        tasks.start_soon(_report, parts, manager)
        manager.ready(status_line(parts))
        await first.over.wait()
        manager.stopping("stopping")
        tasks.cancel_scope.cancel()


async def _stop_on_signal(first: Domain) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        async for number in received:
            log.info("%s received", signal.Signals(number).name)
            first.stop()


async def _need_domain(ended: asyncio.Future[None]) -> None:
    """Ends the process with the error of a domain that ends by itself, for instance where it cannot listen."""
    await asyncio.wait({ended})
    ended.result()


async def _need_http(ended: asyncio.Event) -> None:
    """Ends the process with its HTTP server: no operator could query or stop such a daemon."""
    await ended.wait()
    raise RuntimeError("the HTTP server on the unix socket ended by itself")


def status_line(parts: Sequence[Part]) -> str:
    """Returns what systemd shows of the daemon."""
    return "; ".join(part.view.status_line() for part in parts)


async def _report(parts: Sequence[Part], manager: ServiceManager) -> None:
    """Sends systemd the status line, and the watchdog's signal while the loop turns and every domain moves."""
    sent, watchdog_s = "", manager.watchdog_s
    while True:
        if (line := status_line(parts)) != sent:
            manager.status(line)
            sent = line
        if watchdog_s is None or all([await part.domain.moves(watchdog_s / 2) for part in parts]):
            manager.alive()
        await asyncio.sleep(min(STATUS_S, (watchdog_s or STATUS_S) / 4))


def failed(error: BaseException) -> int:
    """Logs one critical line with the innermost reason; an error whose text has a remedy gets no traceback."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    expected = isinstance(error, OSError | SocketTaken)
    why = str(error) or type(error).__name__
    log.critical("regent ends: %s", why, exc_info=None if expected else error)
    return 1
