"""Shares what begins and ends the process of any daemon: its first lines, its last one, its need of HTTP."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from typing import Final

from configs.advice import advice
from configs.settings import Settings
from controller.http.unix_socket import SocketTaken
from controller.process.naming import name_of

log = logging.getLogger("regent.daemon")

SWITCH_S: Final = 0.000_2
"""Longest hold of the interpreter against other threads: Python's default is 5 ms.

With it kazoo's thread makes a failover a fifth slower, and the journal's doubles the longest lag of many assignments.
"""
COLLECT_AFTER: Final = (20_000, 20, 50)
"""Objects, and collections of the younger generation, after which garbage is collected: Python's are 700, 10 and 10.

With these a daemon that has 100,000 procedures under way spends an eighth of its time on collections that find nothing.
"""


def tune() -> None:
    """Sets how the interpreter shares its time among threads, and how often it collects garbage."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*COLLECT_AFTER)


def log_start(settings: Settings) -> None:
    """Logs which daemon starts, and what its settings leave open."""
    log.info("regent starts as daemon %s, pid %d", name_of(settings), os.getpid())
    for sentence in advice(settings):
        log.warning("%s", sentence)


async def need_http(http_ended: asyncio.Event) -> None:
    """Ends the process with its HTTP server: no operator could query or stop such a daemon."""
    await http_ended.wait()
    raise RuntimeError("the HTTP server on the unix socket ended by itself")


async def need_regions(ended: asyncio.Future[None]) -> None:
    """Ends the process with its domain of regions, which ends by itself where it cannot listen."""
    await asyncio.wait({ended})
    ended.result()
    raise RuntimeError("the regions' domain ended by itself")


def failed(error: BaseException) -> int:
    """Logs one critical line with the innermost reason; an error whose text has a remedy gets no traceback."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    expected = isinstance(error, OSError | SocketTaken)
    why = str(error) or type(error).__name__
    log.critical("regent ends: %s", why, exc_info=None if expected else error)
    return 1
