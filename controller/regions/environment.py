"""What the steps of region procedures work with, and the results of servers on their way to them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from controller.regions.causes import Causes
from controller.regions.contradictions import Contradictions
from controller.regions.dispatcher import Dispatcher, Key
from controller.regions.endings import Endings, Left
from controller.regions.fencing import Fencing
from controller.regions.given_up import GivenUp
from controller.regions.journal.journal import RegionsJournal
from controller.regions.regime import Regime
from controller.regions.routes import RouteLog
from controller.regions.unheard import Unheard
from controller.regions.waking import Waking
from regent_agent.protocol import Result
from state_machines.regions import lost_parts
from state_machines.regions.lost_parts import LostParts
from state_machines.regions.model import Regions, Server
from state_machines.regions.placement import Cooldown, Placement
from state_machines.regions.transit import PAUSE_MS_MAX


class Options(msgspec.Struct, frozen=True):
    """Settings of the domain; see the section ``[regions]``.

    ``transit_check_ms``: interval between two looks at regions that are in transition for ``transit_warning_ms``.
    """

    lease_ms: int = 10_000
    fence: str = "lease"
    fence_command: tuple[str, ...] = ()
    fence_timeout_ms: int = 30_000
    startup_wait_ms: int = 60_000
    servers_min: int = 1
    open_attempts_max: int = 0
    transit_max: int = 20_000
    transit_warning_ms: int = 60_000
    transit_check_ms: int = 60_000
    not_running_ms_max: int = 60_000
    not_running_pause_ms: int = 100
    move_cooldown_ms: int = 0


KEY_BYTES_MAX: Final = 192 * 1024
"""Bytes of the keys of regions that one step writes: a request to ZooKeeper has a bound."""


class _Batch:
    """Results of one report that are not durable yet."""

    __slots__ = ("done", "left")

    def __init__(self, left: int) -> None:
        self.left = left
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Results:
    """Holds results of servers until the steps that wait for them have used them, durably."""

    def __init__(self) -> None:
        self._came: dict[int, Result] = {}
        self._batches: dict[int, list[_Batch]] = {}

    def add(self, results: list[Result]) -> Awaitable[None] | None:
        """Keeps results; returns what ends once all are durable."""
        batch = _Batch(len(results))
        for one in results:
            self._came[one.pid] = one
            self._batches.setdefault(one.pid, []).append(batch)
        return batch.done if results else None

    def get(self, pid: int) -> Result | None:
        """Returns the result of an operation; it stays until :meth:`used`."""
        return self._came.get(pid)

    def used(self, pid: int) -> None:
        """Notes that the result of an operation is durable, or of no use: the server may forget it."""
        self._came.pop(pid, None)
        for batch in self._batches.pop(pid, ()):
            batch.left -= 1
            if not batch.left and not batch.done.done():
                batch.done.set_result(None)

    def close(self) -> None:
        """Ends all waits: reports without a response are repeated, to the next daemon."""
        for batches in self._batches.values():
            for batch in batches:
                batch.done.cancel()
        self._batches.clear()


_NO_SERVERS: Final[Mapping[Server, int]] = {}


async def _no_number(_: int) -> int:
    raise RuntimeError("the engine is not there yet")


class RegionsEnv:
    """What steps work with: the model, the dispatcher, results, clocks and settings of one term of the domain.

    ``wall_ms``: the wall clock; ``loop_ms``: the loop's. ``reserve``: returns the first of new numbers, durably.
    ``rows_max``: regions that one step may write. ``number``: returns a number above another one and all pids before.
    ``wake``: runs a procedure that waits. ``unplaced``: pids that wait for a server to come.
    """

    def __init__(
        self,
        model: Regions,
        dispatcher: Dispatcher,
        placement: Placement,
        draw: Callable[[int], int],
        options: Options,
        wall_ms: Callable[[], int],
        clock: Callable[[], float],
        reserve: Callable[[int], Awaitable[int]],
        rows_max: int,
        journal: RegionsJournal,
    ) -> None:
        self.model = model
        self.dispatcher = dispatcher
        self.placement = placement
        self.draw = draw
        self.options = options
        self.wall_ms = wall_ms
        self.latest_ms = wall_ms
        """Returns the later one of the times that the domain and the machine's wall clock have."""
        self.shown_ms: Callable[[int], int] = lambda time_ms: time_ms
        """Returns a stored time as the machine's wall clock will show it."""
        self.clock = clock
        self.reserve = reserve
        self.rows_max = rows_max
        self.number: Callable[[int], Awaitable[int]] = _no_number
        self.journal = journal
        self.results = Results()
        self.routes = RouteLog()
        self.unplaced: set[int] = set()
        self.endings = Endings()
        self.waking = Waking()
        self.left: deque[Left] = deque()
        """Regions that no procedure moves, and that are to be picked up."""
        self._expected: dict[int, Mapping[Server, int]] = {}
        self.unheard = Unheard()
        self.contradictions = Contradictions()
        self.causes = Causes()
        self.crashing: set[Key] = set()
        self.expiring: set[Key] = set()
        """Processes that operators have expired, and whose crash is not stored yet."""
        self.log_parts: dict[Key, tuple[str, ...]] = {}
        self.left_out: dict[Key, LostParts] = {}
        """Parts of logs that operators have left out, by the process that crashed."""
        self.draining: dict[int, Key] = {}
        """Drains that go on, and the processes that they are about."""
        self.drains_asked: set[Key] = set()
        """Processes whose drain an operator has requested, and is not stored yet."""
        self.given_up = GivenUp()
        self.torn = False
        """Whether a procedure may have done what no row says: its record is of no use, or an operator has ended it.

        A part that was ended leaves no record; the records of its parents, which end later, say so.
        """
        self.places = False
        self.restored = self.restored_places = False
        """Whether the store was restored from a copy, and whether a lease has passed since the term began."""
        self.restored_ends_s = 0.0
        """End of that lease, by ``clock``."""
        self.former_number = 0
        """The highest number of the store as the term begins. Any up to it may have been a token, of a copy or not."""
        self.outdated: set[int] = set()
        """Pids of opens that such a store has on their way: the region may have gone elsewhere since."""
        self.former = Regime(options.lease_ms, options.fence)
        """The regime of servers that have not polled since they registered at this daemon."""
        self.cooldown = Cooldown(options.move_cooldown_ms)
        self.wake: Callable[[int], None] = lambda _: None
        self.fencing = Fencing(options.fence_command, options.fence_timeout_ms, self._wake)

    def fit(self, keys: Iterable[tuple[bytes, bytes]], taken_bytes: int = 0) -> list[tuple[bytes, bytes]]:
        """Returns the first of the key ranges, as many as one step may write: at least one where there are any.

        ``taken_bytes``: of what it writes beside them.
        """
        found: list[tuple[bytes, bytes]] = []
        size = taken_bytes
        for start, end in islice(keys, self.rows_max):
            size += len(start) + len(end)
            if found and size > KEY_BYTES_MAX:
                break
            found.append((start, end))
        return found

    def keep_lost(self, key: Key, lost: LostParts) -> None:
        """Keeps which parts of the log of a process operators have left out, until the process is gone."""
        if lost.left_out:
            self.left_out[key] = lost_parts.added(self.left_out.get(key, LostParts()), lost)

    def _wake(self, pid: int) -> None:
        """Runs a procedure by the engine, which comes later than this."""
        self.wake(pid)

    def expect(self, pid: int, servers: Mapping[Server, int]) -> None:
        """Notes that a step has chosen servers for regions, which is entered later; a repeated step chooses anew."""
        self.expected(pid)
        self._expected[pid] = servers
        for server, count in servers.items():
            server.expected += count

    def expected(self, pid: int) -> None:
        """Notes that the choice of a step is entered, or of no use any more."""
        for server, count in self._expected.pop(pid, _NO_SERVERS).items():
            server.expected -= count

    def now_ms(self) -> int:
        """Returns the loop's time in milliseconds."""
        return int(self.clock() * 1000)

    def left_ms(self, until_ms: int) -> int:
        """Returns the time until the wall clock shows a time; none where that is farther than any pause is long.

        The clock was set back then: a pause would last until it has caught up.
        """
        left_ms = until_ms - self.wall_ms()
        return left_ms if 0 < left_ms <= PAUSE_MS_MAX else 0

    def servers(self) -> list[Server]:
        """Returns the servers that regions may be placed on now; none while too few have come since the start."""
        return list(self.model.online()) if self.places else []

    def prompt(self, servers: Sequence[Server]) -> Sequence[Server]:
        """Returns the servers that polled within half a lease: another one may be frozen. All, where all are late."""
        return [one for one in servers if not self.is_late(one)] or servers

    def is_late(self, server: Server) -> bool:
        """Checks whether a server has not polled for half a lease; one that is well polls twice in that time."""
        return server.deadline_s - self.clock() < self.options.lease_ms / 2000

    def wake_soon(self, pid: int) -> None:
        """Runs a procedure that is about to wait, once it waits."""
        asyncio.get_running_loop().call_soon(self.wake, pid)

    def wake_unplaced(self) -> None:
        """Runs the procedures that wait for a server."""
        waiting, self.unplaced = self.unplaced, set()
        self.waking.add_pids(sorted(waiting))

    def wake_held(self) -> None:
        """Runs the procedures that wait until no server can have their region, if one may have become free."""
        self.waking.add_pids(self.unheard.take_held())
