"""Reads the settings again at SIGHUP: applies those that can change without a restart, and logs the others."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable

import anyio
import anyio.to_thread

from configs.problems import ConfigError
from configs.settings import Settings, differences
from controller.process.logs import set_levels
from controller.process.systemd import ServiceManager

log = logging.getLogger("regent.settings")


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
