"""Runs the process of a daemon: the daemon, SIGHUP, the admin endpoint beside it."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable

import anyio
import anyio.to_thread

from cli.endpoint_child import keep_endpoint
from cli.session import Session
from configs.problems import ConfigError
from configs.settings import Settings, differences
from controller.process.logs import set_levels
from controller.process.watchdogs import ServiceManager

log = logging.getLogger("regent.settings")


async def run_daemon(settings: Settings, session: Session, *, shadow: bool, takeover: bool) -> int:
    """Runs until the daemon ends, with the admin endpoint beside it if the settings say so; returns the exit code."""
    from controller.main import run  # no other command needs the daemon's code

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reload_on_hangup, settings, session.read_settings, ServiceManager())
        if beside := settings.admin.beside_daemon and settings.has_kafka and not shadow:
            tasks.start_soon(keep_endpoint, session.config)
        awaits = beside or (settings.admin.awaited and not shadow)
        code = await run(settings, shadow=shadow, takeover=takeover, endpoint_beside=awaits)
        tasks.cancel_scope.cancel()
    return code


async def reload_on_hangup(settings: Settings, load: Callable[[], Settings], manager: ServiceManager) -> None:
    """Serves SIGHUP until cancelled. ``load`` reads all settings again and raises ``ConfigError`` for wrong ones."""
    with anyio.open_signal_receiver(signal.SIGHUP) as hangups:
        async for _ in hangups:
            manager.reloading()
            try:
                settings = reloaded(settings, await anyio.to_thread.run_sync(load))
            except ConfigError as error:
                log.error("nothing was reloaded, because the settings are wrong:\n%s", error)
            finally:
                manager.reloaded()


def reloaded(before: Settings, after: Settings) -> Settings:
    """Applies the settings that may change in a running daemon; returns those in force from now on."""
    found = differences(before, after)
    for change in found:
        if change.live:
            log.info("%s is %s from now on (it was %s)", change.name, change.after, change.before)
        else:
            log.warning("%s stays %s until a restart (the new value is %s)", change.name, change.before, change.after)
    if not found:
        log.info("the settings were read again; nothing differs")
    log_settings = before.log.model_copy(
        update={"level": after.log.level, "state_change_level": after.log.state_change_level}
    )
    set_levels(log_settings)
    return before.model_copy(update={"log": log_settings})
