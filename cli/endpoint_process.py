"""Runs the process of the admin endpoint: logs, systemd, signals."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable

import anyio
from anyio.abc import TaskStatus

from admin import endpoint
from admin.ports import Address
from cli.endpoint_child import die_with_parent
from cli.exit_codes import Exit
from cli.freed_memory import return_freed_memory
from configs.settings import Settings
from controller.process.logs import logging_to
from controller.process.watchdogs import ServiceManager
from controller.process.zookeeper import connections

log = logging.getLogger("regent.admin")


async def serve(settings: Settings) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code."""
    die_with_parent()
    return_freed_memory()
    manager = ServiceManager()

    def ready(address: Address) -> None:
        manager.ready(f"clients are shown {address.host}:{address.port}")

    with logging_to(settings.log, process="admin-endpoint"):
        log.info("the admin endpoint starts, pid %d", os.getpid())
        code = Exit.DONE
        async with anyio.create_task_group() as tasks:
            await tasks.start(_stop_on_signal, tasks.cancel_scope, manager)
            code = await _failed(settings, ready)
            tasks.cancel_scope.cancel()
        log.info("the admin endpoint has stopped")
    return code


async def _failed(settings: Settings, ready: Callable[[Address], None]) -> Exit:
    """Serves until cancelled; returns only after a failure."""
    try:
        await endpoint.run(settings, connections(settings), ready)
    except OSError as error:  # its text names the remedy
        log.critical("the admin endpoint ends: %s", error)
    except Exception:
        log.critical("the admin endpoint ends", exc_info=True)
    return Exit.FAILED


async def _stop_on_signal(
    running: anyio.CancelScope, manager: ServiceManager, *, task_status: TaskStatus[None]
) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        task_status.started()
        async for number in received:
            log.info("%s received", signal.Signals(number).name)
            manager.stopping("stopping")
            running.cancel()
