"""Decides which processes count as crashed because they are silent.

Where more than half of them are silent at once, the daemon's own network has failed rather than all of them. So each
one gets one lease more, once until it polls again: its regions stay where they are if the network comes back by then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from controller.process.wording import counted
from controller.regions.dispatcher import Key
from controller.regions.environment import RegionsEnv
from state_machines.regions.model import Server
from state_machines.regions.states import ServerState

log = logging.getLogger("regent.regions")

WITNESSES_MIN: Final = 2
"""Members whose silence says something about the daemon: of one alone it says as much about that one."""


class Doubt(NamedTuple):
    """A time in which silence is taken for a fault of the daemon. ``left_s``: until the first one counts as crashed."""

    silent: int
    members: int
    left_s: float


class Silence:
    """Judges the leases of processes. ``is_busy``: checks whether a process waits for a response of the daemon."""

    def __init__(self, env: RegionsEnv, is_busy: Callable[[Key], bool]) -> None:
        self._env, self._is_busy = env, is_busy
        self._spared_s: dict[Key, float] = {}
        """Until when silence does not count, by process; it stays until the process polls."""

    def over(self) -> list[tuple[Server, bool]]:
        """Returns the processes that count as crashed by now, and whether each of them had one lease more."""
        env, now_s = self._env, self._env.clock()
        members = [one for one in env.model.servers.values() if one.state is ServerState.ONLINE]
        silent = [one for one in members if env.is_late(one)]
        self._forget_others(silent)
        ended = [one for one in silent if one.deadline_s <= now_s and not self._is_busy(one.key)]
        most = 2 * len(silent) > len(members) >= WITNESSES_MIN
        if most and any(one.key not in self._spared_s for one in ended):
            self._spare(silent, len(members))
        rest = [one for one in env.model.servers.values() if one.state is not ServerState.ONLINE]
        found = [(one, False) for one in rest if one.deadline_s <= now_s]
        return found + [(one, one.key in self._spared_s) for one in ended if self._spared_s.get(one.key, 0.0) <= now_s]

    @property
    def doubt(self) -> Doubt | None:
        """Returns the doubt of this daemon in its own network, None without one."""
        now_s, servers = self._env.clock(), self._env.model.servers
        waits = [until_s for key, until_s in self._spared_s.items() if until_s > now_s and key in servers]
        if not waits:
            return None
        members = sum(one.state is ServerState.ONLINE for one in servers.values())
        return Doubt(len(waits), members, min(waits) - now_s)

    def _spare(self, silent: list[Server], members: int) -> None:
        lease_s = self._env.options.lease_ms / 1000
        first = not self._spared_s
        for one in silent:
            self._spared_s.setdefault(one.key, max(one.deadline_s, self._env.clock()) + lease_s)
        if first:
            log.warning(
                "%d of %s do not poll, which points to the network of this daemon: they count as crashed after one "
                "lease more, %d ms; look whether this machine is reached from theirs",
                *(len(silent), counted(members, "server"), self._env.options.lease_ms),
            )

    def _forget_others(self, silent: list[Server]) -> None:
        """Forgets processes that poll again, or are members no more."""
        if not self._spared_s:
            return
        still = {one.key for one in silent}
        back = [key for key in self._spared_s if key not in still]
        for key in back:
            del self._spared_s[key]
        if back and not self._spared_s:
            log.info("no server is silent any more that had one lease more: those that polled keep their regions")
