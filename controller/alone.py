"""Runs ``regent run`` without a Kafka cluster: the regions' domain with logs, the loop's guard, HTTP and systemd."""

from __future__ import annotations

import asyncio
import logging
import signal
from functools import partial
from typing import Final

import anyio

from brokers.security.access import access_of
from brokers.security.users import SecurityUnusable
from configs.settings import Settings
from controller.app import create_regions_app
from controller.http.server import serving
from controller.http.tcp import serving_remotely
from controller.life import failed, log_start, need_http, need_regions, tune
from controller.metrics.exposition import About, AloneCollector, registry
from controller.process.logs import logging_to
from controller.process.stall_guard import StallGuard
from controller.process.systemd import ServiceManager
from controller.regions.domain import RegionsDomain, shown
from controller.regions.metrics.exposition import RegionsCollector
from controller.regions.operator.view import View
from controller.regions.process import domain_of, regions_secrets_of, running

log = logging.getLogger("regent.daemon")

STATUS_S: Final = 1.0


async def run_alone(settings: Settings) -> int:
    """Runs the domain until SIGTERM or SIGINT; returns the exit code."""
    tune()
    guard = StallGuard(settings.controller.loop_stall_ms_max / 1000)
    with logging_to(settings.log) as lines:
        log_start(settings)
        log.info("no section [listener] is given: this daemon assigns regions, and is no controller of Kafka")
        try:
            tls, secrets = access_of(settings.security).tls, regions_secrets_of(settings)
        except SecurityUnusable as error:
            return failed(error)
        about = AloneCollector(About.of(settings), lambda: lines.dropped)
        domain = domain_of(settings, tls, secrets)
        guard.on_lag = about.loop_lag.record
        guard.last_words = partial(lines.log_last, log)
        guard.start()
        try:
            await _serve(settings, domain, about, guard)
        except Exception as error:
            return failed(error)
        finally:
            guard.stop()
        log.info("regent has stopped")
    return 0


async def _serve(settings: Settings, domain: RegionsDomain, about: AloneCollector, guard: StallGuard) -> None:
    """Runs the domain until a signal comes, and beside it HTTP and the systemd status."""
    view, manager, stopping = View(domain, settings), ServiceManager(), asyncio.Event()
    app = create_regions_app(view, view, registry(about, RegionsCollector(domain.counters, view)))
    async with (
        serving(app, settings.http) as http_ended,
        serving_remotely(app, settings.http),
        running(domain) as ended,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(guard.tick)
        tasks.start_soon(_stop_on_signal, stopping)
        tasks.start_soon(_report, domain, manager)
        tasks.start_soon(need_http, http_ended)
        tasks.start_soon(need_regions, ended)
        manager.ready(_status(domain))
        await stopping.wait()
        manager.stopping("stopping")
        tasks.cancel_scope.cancel()


async def _stop_on_signal(stopping: asyncio.Event) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        async for number in received:
            log.info("%s received", signal.Signals(number).name)
            stopping.set()


def _status(domain: RegionsDomain) -> str:
    mode, why = shown(domain)
    return f"regions {mode}: {why}"


async def _report(domain: RegionsDomain, manager: ServiceManager) -> None:
    """Sends systemd the status line, and the watchdog's signal while the loop turns."""
    sent = ""
    while True:
        if (line := _status(domain)) != sent:
            manager.status(line)
            sent = line
        manager.alive()
        await asyncio.sleep(min(STATUS_S, (manager.watchdog_s or STATUS_S) / 4))
