"""Has plans and rolling restarts know ``min.insync.replicas`` before their first step in a term decides anything.

The status for operators reads it, too, but may not have looked yet when a term begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from brokers.queries import Dial
from controller.kafka.path.controller import Controller
from controller.kafka.path.gate import TermEnded
from controller.kafka.path.min_isr import read_min_isr
from metadata_store.errors import SessionLost
from state_machines.model.facts import MinIsrRead

log = logging.getLogger("regent.procedures")

LOOK_MS: Final = 500
"""Pause of a step while the brokers are queried."""


class MinIsrGuard:
    """Queries the brokers once in a term, beside its queue, where the term does not know the value yet."""

    def __init__(self) -> None:
        self._waiting: dict[int, Callable[[int], None]] = {}
        self._looked = False

    def is_known(self, c: Controller, pid: int, wake: Callable[[int], None]) -> bool:
        """Checks whether a step may decide; else queries the brokers and wakes it. Without a response it goes on."""
        if self._looked or c.cluster.min_isr.default is not None or c.dial is None:
            return True
        if not self._waiting:
            c.spawn(self._look(c, c.dial))
        self._waiting[pid] = wake
        return False

    async def _look(self, c: Controller, dial: Dial) -> None:
        try:
            found = await c.until_read(lambda: read_min_isr(c.store, dial, c.cluster))
        except (TermEnded, SessionLost):
            return
        finally:
            self._looked = True
            waiting, self._waiting = self._waiting, {}
            for pid, wake in waiting.items():
                wake(pid)
        if c.cluster.min_isr.default is None:
            c.enter(MinIsrRead(found))
        if c.cluster.min_isr.default is None:
            log.warning(
                "no broker sends min.insync.replicas: plans and restarts go on without it; let this daemon's user "
                "describe the brokers' configurations"
            )
