"""Knows the leases and fences under which servers serve, and whose lease ran out; runs the command that fences.

A crashed process is fenced by its lease, by another server that fences its log, or by the operator's command. Lease and
fence are stored, because servers outlive the daemon that told them: a daemon with other settings than the one before
must not believe a server dead while that serves on under its former lease. Until each server has registered and polled,
the longer lease counts, and both fences.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from controller.process.commands import Output, kill_group, start
from controller.process.wording import counted
from controller.regions.dispatcher import Key
from metadata_store.catalog.rows import MarkRow, PutMark
from state_machines.regions.entities import Server
from state_machines.regions.model import Regions
from state_machines.regions.states import ServerState

log = logging.getLogger("regent.regions")

LEASE: Final = "lease"
LOG: Final = "log"
COMMAND: Final = "command"
FENCES: Final = (LEASE, LOG, COMMAND)
BOTH: Final = "both"
"""Lease and log, in catalogs of daemons that had no other fence."""
MARK_KIND: Final = "regime"
MARK_SUBJECT: Final = "domain"
RUNS_MAX: Final = 16
"""Commands that run at a time."""
WITNESSES_MIN: Final = 2
"""Members whose silence says something about the daemon: of one alone it says as much about that one."""


class LeaseAndFence(NamedTuple):
    """A lease in milliseconds, and a fence: one of FENCES, or several with a plus between them."""

    lease_ms: int
    fence: str

    def united(self, other: LeaseAndFence) -> LeaseAndFence:
        """Returns what is safe for servers of either."""
        either = fences_in(self.fence) | fences_in(other.fence)
        return LeaseAndFence(max(self.lease_ms, other.lease_ms), "+".join(one for one in FENCES if one in either))

    @property
    def row(self) -> PutMark:
        """Returns the write that stores it."""
        return PutMark(MarkRow(MARK_KIND, MARK_SUBJECT, self.fence, self.lease_ms))


def fences_in(text: str) -> frozenset[str]:
    """Returns the fences that a stored text names; raises ValueError where this daemon lacks one of them."""
    found = frozenset((LEASE, LOG) if text == BOTH else text.split("+"))
    if unknown := found.difference(FENCES):
        raise ValueError(f"fence {min(unknown)!r} is not known to this daemon: start a newer one")
    return found


def lease_and_fence_in(marks: Iterable[MarkRow]) -> LeaseAndFence | None:
    """Finds the stored lease and fence among the marks of a catalog; None in a new one."""
    return next((LeaseAndFence(one.until_ms, one.value) for one in marks if one.kind == MARK_KIND), None)


class NotFenced(Exception):
    """The command did not fence a process; the text has the cause."""


async def run_command(command: Sequence[str], timeout_s: float) -> None:
    """Runs a command; raises :class:`NotFenced` unless it exits with 0 in time, OSError where it cannot be run.

    Where it does not, or the caller is cancelled, its whole process group is killed.
    """
    with Output() as said:
        process = await start(*command, stdin=asyncio.subprocess.DEVNULL, stdout=said.end, stderr=said.end)
        try:
            async with asyncio.timeout(timeout_s):
                code = await process.wait()
        except TimeoutError:
            raise NotFenced(f"it ran for longer than {timeout_s:g} s, and was killed{said.text()}") from None
        finally:
            if process.returncode is None:
                await kill_group(process)
        if code:
            raise NotFenced(f"it ended with {code}{said.text()}")


class Fencing:
    """Runs the command beside the engine, once at a time for each process and for a bounded time, without a shell.

    A daemon that dies meanwhile leaves it running, and the next one runs it again: it must be idempotent. ``wake``:
    runs the procedure that waits for its end.
    """

    def __init__(self, command: tuple[str, ...], timeout_ms: int, wake: Callable[[int], None]) -> None:
        self._command, self._timeout_s = command, timeout_ms / 1000
        self._wake = wake
        self._free = asyncio.Semaphore(RUNS_MAX)
        self._runs: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._waiting: dict[tuple[str, int], int] = {}
        """The procedures that waited last: an operator may have ended the one that began a run."""

    def has_fenced(self, server: Server, pid: int) -> bool:
        """Returns whether the command has fenced a process; begins a run where there is none.

        Raises :class:`NotFenced` once for each run that failed: the next call begins another one.
        """
        run = self._runs.get(server.key)
        if run is None:
            run = self._runs[server.key] = asyncio.create_task(self._run(server), name=f"fence of {server}")
            run.add_done_callback(lambda _: self._ended(server.key))
        if not run.done():
            self._waiting[server.key] = pid
            return False
        if run.exception() is not None:
            del self._runs[server.key]
        run.result()
        return True

    def forget(self, key: tuple[str, int]) -> None:
        """Forgets that a process is fenced, once that is durable."""
        self._runs.pop(key, None)

    def _ended(self, key: tuple[str, int]) -> None:
        if (pid := self._waiting.pop(key, None)) is not None:
            self._wake(pid)

    async def stop(self) -> None:
        """Kills the commands that run."""
        for run in self._runs.values():
            run.cancel()
        await asyncio.gather(*self._runs.values(), return_exceptions=True)

    async def _run(self, server: Server) -> None:
        async with self._free:
            try:
                if not self._command:
                    raise NotFenced("this daemon has no regions.fence_command")
                words = (*self._command, server.name, str(server.incarnation), server.address)
                log.info("server %s: the fence command begins, for %g s at most", server, self._timeout_s)
                await run_command(words, self._timeout_s)
            except (NotFenced, OSError) as failed:
                log.warning(
                    "server %s is not fenced by the command, so its regions wait: %s; the command runs again soon: "
                    "have it exit with 0 once this process can write nothing, or correct regions.fence_command",
                    *(server, failed),
                )
                raise NotFenced(str(failed)) from failed


class Doubt(NamedTuple):
    """A time in which silence is taken for a fault of the daemon. ``left_s``: until the first one counts as crashed."""

    silent: int
    members: int
    left_s: float


def is_late(server: Server, now_s: float, lease_ms: int) -> bool:
    """Checks whether a server has not polled for half a lease; one that is well polls twice in that time."""
    return server.deadline_s - now_s < lease_ms / 2000


class Silence:
    """Judges which processes count as crashed because they are silent.

    Where more than half of them are silent at once, the daemon's own network has failed rather than all of them. So
    each one gets one lease more, once until it polls again: its regions stay where they are if the network comes back
    by then.
    ``is_busy``: checks whether a process waits for a response of the daemon.
    """

    def __init__(self, model: Regions, lease_ms: int, is_busy: Callable[[Key], bool]) -> None:
        self._model, self._lease_ms, self._is_busy = model, lease_ms, is_busy
        self._spared_s: dict[Key, float] = {}
        """Until when silence does not count, by process; it stays until the process polls."""
        self.absent: set[Key] = set()
        """Processes whose ephemeral znode has ended since their last poll."""

    def over(self, now_s: float) -> list[tuple[Server, bool]]:
        """Returns the processes that count as crashed by now, and whether each of them had one lease more."""
        servers = self._model.servers.values()
        members = [one for one in servers if one.state is ServerState.ONLINE]
        silent = [one for one in members if is_late(one, now_s, self._lease_ms)]
        self._forget_others(silent)
        ended = [one for one in silent if one.deadline_s <= now_s and not self._is_busy(one.key)]
        most = 2 * len(silent) > len(members) >= WITNESSES_MIN
        if most and any(one.key not in self._spared_s for one in ended):
            self._spare(silent, len(members), now_s)
        found = [(one, False) for one in servers if one.state is not ServerState.ONLINE and one.deadline_s <= now_s]
        return found + [(one, one.key in self._spared_s) for one in ended if self._spared_s.get(one.key, 0.0) <= now_s]

    def gone(self, now_s: float) -> list[Server]:
        """Returns the processes that count as crashed by now because their znode has ended, and they do not poll.

        None where no other one polls: the network between them and this side may have failed, and leases decide then.
        """
        servers = self._model.servers
        self.absent.intersection_update(servers)
        silent = [servers[key] for key in sorted(self.absent) if is_late(servers[key], now_s, self._lease_ms)]
        if not silent or not any(
            one.state is ServerState.ONLINE and not is_late(one, now_s, self._lease_ms) for one in servers.values()
        ):
            return []
        return [one for one in silent if one.state is ServerState.ONLINE and not self._is_busy(one.key)]

    def doubt(self, now_s: float) -> Doubt | None:
        """Returns the doubt of this daemon in its own network, None without one."""
        servers = self._model.servers
        waits = [until_s for key, until_s in self._spared_s.items() if until_s > now_s and key in servers]
        if not waits:
            return None
        members = sum(one.state is ServerState.ONLINE for one in servers.values())
        return Doubt(len(waits), members, min(waits) - now_s)

    def _spare(self, silent: list[Server], members: int, now_s: float) -> None:
        first = not self._spared_s
        for one in silent:
            self._spared_s.setdefault(one.key, max(one.deadline_s, now_s) + self._lease_ms / 1000)
        if first:
            log.warning(
                "%d of %s do not poll, which points to the network of this daemon: they count as crashed after one "
                "lease more, %d ms; look whether this machine is reached from theirs",
                *(len(silent), counted(members, "server"), self._lease_ms),
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
