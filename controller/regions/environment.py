"""Holds what the steps of region procedures work with: model, dispatcher, settings, clocks, and those to run again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from configs.regions_section import RegionsSettings
from controller.regions.bus import Bus
from controller.regions.dispatcher import Dispatcher, Key, Results
from controller.regions.endings import Causes, Endings, GivenUp, Left
from controller.regions.fencing import Fencing, LeaseAndFence, is_late
from controller.regions.journal.journal import RegionsJournal
from controller.regions.loads import RegionLoads
from controller.regions.planner import Planner
from controller.regions.routes import RouteLog
from controller.regions.server_lists import Claimants, Contradictions
from regent_agent.protocol import INHERIT
from state_machines.regions import marks
from state_machines.regions.balancing.simple import Simple
from state_machines.regions.balancing.stochastic import Stochastic
from state_machines.regions.entities import Region, Server
from state_machines.regions.marks import LostParts
from state_machines.regions.model import Regions
from state_machines.regions.placement import Cooldown, Placement
from state_machines.regions.states import ServerState
from state_machines.regions.transit import PAUSE_MS_MAX

WOKEN_TOGETHER: Final = 1_000
"""Procedures that one turn of the loop wakes."""
KEYS: Final = RegionsSettings.model_fields
"""Keys of the section ``[regions]``, which declares the defaults."""
KEY_BYTES_MAX: Final = 192 * 1024
"""Bytes of the keys of regions that one step writes: a request to ZooKeeper has a bound."""
SEEDS: Final = 1 << 32
"""Numbers that balancers may begin to draw from."""
_NO_SERVERS: Final[Mapping[Server, int]] = {}


class Waking:
    """Runs procedures that move regions again, in portions: a table, or a server, may have a hundred thousand of them.

    ``wanted`` is called where there are some.
    """

    def __init__(self) -> None:
        self.wanted: Callable[[], None] = lambda: None
        self._of: dict[int, Mapping[int, Region]] = {}
        self._pids: deque[int] = deque()

    def __bool__(self) -> bool:
        return bool(self._of or self._pids)

    def add(self, regions: Mapping[int, Region]) -> None:
        """Has the procedures of all these regions run; those of the same mapping run once where it comes again."""
        self._of[id(regions)] = regions
        self.wanted()

    def add_pids(self, pids: Sequence[int]) -> None:
        """Has these procedures run, in this order."""
        self._pids.extend(pids)
        if pids:
            self.wanted()

    def take(self) -> list[int]:
        """Removes and returns some pids."""
        if not self._pids and self._of:
            regions = self._of.pop(next(iter(self._of)))
            self._pids.extend([one.pid for one in regions.values() if one.pid])
        return [self._pids.popleft() for _ in range(min(WOKEN_TOGETHER, len(self._pids)))]


class Options(msgspec.Struct, frozen=True):
    """Settings of the domain, with the defaults of their section.

    ``transit_check_ms``: interval between two looks at regions that are in transition for ``transit_warning_ms``.
    """

    lease_ms: int = KEYS["lease_ms"].default
    fence: str = KEYS["fence"].default
    fence_command: tuple[str, ...] = ()
    fence_timeout_ms: int = KEYS["fence_timeout_ms"].default
    startup_wait_ms: int = KEYS["startup_wait_ms"].default
    servers_min: int = KEYS["servers_min"].default
    open_attempts_max: int = KEYS["open_attempts_max"].default
    transit_max: int = KEYS["transit_max"].default
    transit_warning_ms: int = KEYS["transit_warning_ms"].default
    move_cooldown_ms: int = KEYS["move_cooldown_ms"].default
    split_size_bytes: int = KEYS["split_size_bytes"].default
    split_requests_per_s: int = KEYS["split_requests_per_s"].default
    merge_size_bytes: int = KEYS["merge_size_bytes"].default
    split_rest_ms: int = KEYS["split_rest_ms"].default
    split_regions_max: int = KEYS["split_regions_max"].default
    reshapes_max: int = KEYS["reshapes_max"].default
    reshapes_per_minute_max: int = KEYS["reshapes_per_minute_max"].default
    reopen_per_server: int = KEYS["reopen_per_server"].default
    split: str = KEYS["split"].default
    balancer: str = KEYS["balancer"].default
    balancer_timeout_ms: int = KEYS["balancer_timeout_ms"].default
    balancer_by_table: bool = KEYS["balancer_by_table"].default
    balancer_period_ms: int = KEYS["balancer_period_ms"].default
    balancer_joins_ms: int = KEYS["balancer_joins_ms"].default
    balancer_slop_percent: int = KEYS["balancer_slop_percent"].default
    balancer_moves_together: int = KEYS["balancer_moves_together"].default
    balancer_spread_ms: int = KEYS["balancer_spread_ms"].default
    node_timeout_ms: int = KEYS["node_timeout_ms"].default
    transit_check_ms: int = 60_000
    not_running_ms_max: int = 60_000
    not_running_pause_ms: int = 100

    @classmethod
    def of(cls, wanted: RegionsSettings) -> Options:
        """Takes what a section has."""
        found = {name: getattr(wanted, name) for name in cls.__struct_fields__ if name in KEYS}
        return cls(**found | {"fence_command": wanted.fence_command or ()})


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
        self.rows_max = rows_max
        self.number: Callable[[int], Awaitable[int]] = _no_number
        self.reserve: Callable[[int], Awaitable[int]] = _no_number
        self.is_given: Callable[[int], bool] = lambda _: False
        """Checks whether a number was given out, see ``Engine.is_given``."""
        self.submitted: Callable[[str, bytes, str], bool] = lambda kind, data, nonce: False
        """Submits a procedure of the daemon's own, once for a nonce; returns whether it is stored by now."""
        self.journal = journal
        self.results = Results()
        self.bus = Bus(model, dispatcher, self.results, self._reserve)
        self.routes = RouteLog()
        self.loads = RegionLoads(model, clock)
        self.unplaced: set[int] = set()
        self.endings = Endings()
        self.waking = Waking()
        self.left: deque[Left] = deque()
        """Regions that no procedure moves, and that are to be picked up."""
        self._expected: dict[int, Mapping[Server, int]] = {}
        self.claimants = Claimants()
        self.contradictions = Contradictions()
        self.unanswered_words: dict[int, Server] = {}
        """Regions that their server has called independent, while that is being stored."""
        self.causes = Causes()
        self.crashing: set[Key] = set()
        self.expiring: set[Key] = set()
        """Processes that operators have expired, and whose crash is not stored yet."""
        self.log_parts: dict[Key, tuple[str, ...]] = {}
        self.parents_ms: dict[int, int] = {}
        """When regions were split or merged, or the term began: of those that are remembered, on the loop's clock."""
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
        self.copied_number = 0
        """The number above which a restored store goes on, 0 for another one. Regions that it lost had ids up to it."""
        self.former_number = 0
        """The highest number of the store as the term begins. Any up to it may have been a token, of a copy or not."""
        self.outdated: set[int] = set()
        """Pids of opens that such a store has on their way: the region may have gone elsewhere since."""
        self.former = LeaseAndFence(options.lease_ms, options.fence)
        """The lease and fence of servers that have not polled since they registered at this daemon."""
        self.cooldown = Cooldown(options.move_cooldown_ms)
        self.planner = self._planner(lambda: draw(SEEDS))
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
            self.left_out[key] = marks.added(self.left_out.get(key, LostParts()), lost)

    def _wake(self, pid: int) -> None:
        """Runs a procedure by the engine, which comes later than this."""
        self.wake(pid)

    def _planner(self, seed: Callable[[], int]) -> Planner:
        """Makes the planner with the balancer of the settings."""
        options, slop = self.options, self.options.balancer_slop_percent / 100
        simple = Simple(options.balancer_by_table, slop=slop)
        return Planner(
            *(self.model, self.loads, self.claimants, self.cooldown, self.now_ms, seed),
            Stochastic() if options.balancer == "stochastic" else simple,
            options.balancer_timeout_ms,
            slop,
        )

    async def _reserve(self, count: int) -> int:
        """Reserves numbers by the engine, which comes later than this."""
        return await self.reserve(count)

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

    def lacking(self, feature: str) -> list[Server]:
        """Returns the processes that serve, and have not said that they have a feature."""
        return [
            one
            for one in self.model.servers.values()
            if one.state is ServerState.ONLINE and not (one.here and feature in one.features)
        ]

    def unregistered(self) -> list[Server]:
        """Returns the servers that have not registered at this daemon: what they can do is not known yet."""
        servers = self.model.servers.values()
        return [one for one in servers if one.state is ServerState.ONLINE and not one.here]

    def able(self, region: Region) -> list[Server]:
        """Returns the servers that a region may be placed on now; one with sources needs a server that knows them."""
        servers = self.servers()
        if region.id not in self.model.sources:
            return servers
        return [one for one in servers if INHERIT in one.features]

    def inheriting(self) -> Server | None:
        """Returns a server that regions with sources may be placed on now; None where there is none."""
        return next((one for one in self.servers() if INHERIT in one.features), None)

    def prompt(self, servers: Sequence[Server]) -> Sequence[Server]:
        """Returns the servers that polled within half a lease: another one may be frozen. All, where all are late."""
        return [one for one in servers if not self.is_late(one)] or servers

    def is_late(self, server: Server) -> bool:
        """Checks whether a server has not polled for half a lease; one that is well polls twice in that time."""
        return is_late(server, self.clock(), self.options.lease_ms)

    def wake_soon(self, pid: int) -> None:
        """Runs a procedure that is about to wait, once it waits."""
        asyncio.get_running_loop().call_soon(self.wake, pid)

    def wake_unplaced(self) -> None:
        """Runs the procedures that wait for a server."""
        waiting, self.unplaced = self.unplaced, set()
        self.waking.add_pids(sorted(waiting))

    def wake_held(self) -> None:
        """Runs the procedures that wait until no server can have their region, if one may have become free."""
        self.waking.add_pids(self.claimants.take_held())
