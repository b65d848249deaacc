"""Runs the process of a daemon: the daemon, SIGHUP, the admin endpoint beside it."""

from __future__ import annotations

import anyio

from cli.endpoint_child import keep_endpoint
from cli.session import Session
from configs.settings import Settings
from controller.process.reload import reload_on_hangup
from controller.process.systemd import ServiceManager


async def live(settings: Settings, session: Session, *, shadow: bool, takeover: bool) -> int:
    """Runs until the daemon ends, with the admin endpoint beside it if the settings say so; returns the exit code."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reload_on_hangup, settings, session.read_settings, ServiceManager())
        if beside := settings.admin.beside_daemon and settings.has_kafka and not shadow:
            tasks.start_soon(keep_endpoint, session.config)
        awaits = beside or (settings.admin.awaited and not shadow)
        code = await _run(settings, shadow=shadow, takeover=takeover, endpoint_beside=awaits)
        tasks.cancel_scope.cancel()
    return code


async def _run(settings: Settings, *, shadow: bool, takeover: bool, endpoint_beside: bool) -> int:
    from controller.main import run

    return await run(settings, shadow=shadow, takeover=takeover, endpoint_beside=endpoint_beside)
