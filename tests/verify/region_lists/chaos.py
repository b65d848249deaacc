"""Has processes die and freeze at random moments; regions are moved, split, merged, flushed and copied meanwhile."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from cli.demo.regions_process import KvServer
from examples.kv.server import FENCED, LEFT, NOT_LEFT
from regent_agent.protocol import FLUSH
from tests.verify.region_lists.breakdown import DAEMON, FOREVER, Outage
from tests.verify.region_lists.nodes import REGIONS, TABLE, wall_us
from tests.verify.region_lists.stage import LEASE_MS, OPEN_S_MAX, SIDE, STALL_MS_MAX, START_S_MAX, Stage

LEASE_S: Final = LEASE_MS / 1_000
LEAVE_S_MAX: Final = 120.0
END_S_MAX: Final = 120.0
PAUSE_S_MAX: Final = 4.0
"""Longest pause between two rounds of faults."""
REVIVE_S: Final = 0.2
MOVE_S_MAX: Final = 2.0
SHAPE_S_MAX: Final = 1.5
FLUSH_S_MAX: Final = 20.0
SNAPSHOT_S_MAX: Final = 20.0
SNAPSHOTS: Final = 3
"""Snapshots that are not deleted; some of them may have failed."""
TABLE_S_MAX: Final = 12.0
ENSEMBLE_S_MAX: Final = 12.0
"""Longest pause between two kills of servers of ZooKeeper."""
DOWN_S_MAX: Final = 10.0
WEIGHTS: Final = {
    "kill of a server": 4,
    "freeze of a server beyond its lease": 4,
    "freeze of a server within its lease": 2,
    "new process of a frozen server": 2,
    "planned restart of a server": 2,
    "kill of the daemon": 3,
    "kill of a server and the daemon": 2,
    "freeze of the daemon": 3,
}
"""Faults, and how often each of them is drawn."""


class Chaos:
    """Plays rounds of faults until cancelled. ``counts``: what happened; ``log``: takes a line about each event.

    ``outages``: when processes were frozen or dead; ``began_us``: the beginning of the log's times.
    ``snapshots``: moments of requests, by name.
    """

    def __init__(self, stage: Stage, seed: int, log: Callable[[str], None]) -> None:
        self.counts: Counter[str] = Counter()
        self.outages: list[Outage] = []
        self.snapshots: dict[str, int] = {}
        self._reviving = asyncio.Lock()
        self._daemon_down_us: int | None = None
        """When the outage of the daemon began that is not over."""
        self._stage = stage
        self._seed = seed
        self._chance = random.Random(seed)
        self._log = log
        self.began_us = wall_us()
        self._changes_go_on = asyncio.Event()
        """Not set while all regions are to be open: a slow machine has some under way at each moment otherwise."""
        self._changes_go_on.set()
        self._frozen: list[KvServer] = []
        """Processes that woke up after a new one had their name."""
        self._faults: dict[str, Callable[[KvServer], Awaitable[None]]] = {
            "kill of a server": self._kill,
            "freeze of a server beyond its lease": self._freeze,
            "freeze of a server within its lease": self._freeze_briefly,
            "new process of a frozen server": self._replace,
            "planned restart of a server": self._restart,
            "kill of the daemon": self._kill_daemon,
            "kill of a server and the daemon": self._kill_both,
            "freeze of the daemon": self._freeze_daemon,
        }

    async def expect_ends(self) -> None:
        """Starts what does not run, and waits until all processes have ended whose name a new one has."""
        await self._revive()
        for server in self._frozen:
            assert await server.ended(END_S_MAX), f"{server.name} goes on beside its new process\n{server.log_tail()}"
            assert server.exit_code == FENCED, server.log_tail()

    async def run(self) -> None:
        """Plays faults, moves, splits, merges, flushes, snapshots, and changes of a table side by side."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._rounds())
            if self._stage.zookeepers:
                group.create_task(self._zookeepers())
            group.create_task(self._moves())
            group.create_task(self._shapes())
            group.create_task(self._flushes())
            group.create_task(self._snapshots())
            group.create_task(self._tables())

    async def _rounds(self) -> None:
        deck: list[str] = []
        while True:
            if len(deck) < 2:
                deck = [name for name, weight in WEIGHTS.items() for _ in range(weight)]
                self._chance.shuffle(deck)
            drawn = dict.fromkeys(deck.pop() for _ in range(self._chance.choice([1, 1, 2])))
            victims = self._chance.sample(list(self._stage.servers.values()), len(drawn))
            await asyncio.gather(*(self._fault(name, one) for name, one in zip(drawn, victims, strict=True)))
            await self._revive()
            await asyncio.sleep(self._chance.uniform(0.5, PAUSE_S_MAX))
            if self._chance.random() < 0.5:
                await self._settle()

    async def _fault(self, name: str, server: KvServer) -> None:
        await asyncio.sleep(self._chance.uniform(0.0, 1.5))
        self.counts[name] += 1
        self._tell(f"{name}: {server.name}" if "server" in name else name)
        await self._faults[name](server)

    async def _revive(self) -> None:
        """Starts all processes that do not run; one that ended by itself counts as a death of its own kind."""
        await self._revive_daemon()
        for server in self._stage.servers.values():
            if not server.running and server.exit_code != -9:
                assert server.exit_code in (LEFT, NOT_LEFT, FENCED), server.log_tail()
                self.counts[f"server ended with {server.exit_code}"] += 1
                self._tell(f"{server.name} ended with {server.exit_code}")
        await self._with_daemon(self._stage.start_servers())

    async def _revive_daemon(self) -> None:
        async with self._reviving:
            if not self._stage.daemon.running:
                ended_us = wall_us()
                await self._stage.daemon.boot(START_S_MAX)
                self._daemon_is_up(ended_us)

    def _daemon_is_up(self, down_us: int) -> None:
        """Notes the end of an outage of the daemon. ``down_us``: its beginning where no fault of this run is known."""
        self.outages.append(Outage(DAEMON, self._daemon_down_us or down_us, wall_us()))
        self._daemon_down_us = None

    async def _with_daemon(self, starting: Coroutine[Any, Any, object]) -> None:
        """Waits for servers that start, and keeps the daemon up meanwhile: they register with it."""
        starts = asyncio.create_task(starting)
        try:
            while not starts.done():
                await self._revive_daemon()
                await asyncio.wait([starts], timeout=REVIVE_S)
            starts.result()
        finally:
            starts.cancel()
            await asyncio.wait([starts])

    async def _settle(self) -> None:
        """Waits until all regions are open, keeps all processes up meanwhile, and begins no change."""
        ends_s = time.monotonic() + OPEN_S_MAX
        self._changes_go_on.clear()
        while not await self._stage.daemon.are_open(TABLE):
            assert time.monotonic() < ends_s, f"not open within {OPEN_S_MAX:g} s: {await self._stage.not_open()}"
            await self._revive()
            await asyncio.sleep(REVIVE_S)
        self._changes_go_on.set()

    async def _kill(self, server: KvServer) -> None:
        self.outages.append(Outage(server.name, wall_us(), FOREVER))
        await server.kill()
        await asyncio.sleep(self._chance.choice([0.0, self._chance.uniform(0.0, LEASE_S * 1.5)]))

    async def _freeze(self, server: KvServer) -> None:
        """Freezes a server; often it wakes up in the moments in which others fence it and open its regions."""
        leases = self._chance.choice([self._chance.uniform(1.0, 1.3), self._chance.uniform(1.3, 2.5)])
        await self._freeze_for(server, leases * LEASE_S)
        await server.ended(self._chance.uniform(1.0, 3.0))

    async def _freeze_briefly(self, server: KvServer) -> None:
        await self._freeze_for(server, self._chance.uniform(0.1, 0.6) * LEASE_S)

    async def _replace(self, server: KvServer) -> None:
        """Starts a process with the name of one that is frozen, which then must end by itself."""
        with self._frozen_while(server):
            await self._with_daemon(self._stage.replace(server).boot(START_S_MAX))
            await asyncio.sleep(self._chance.uniform(0.0, 2.0) * LEASE_S)
        self._frozen.append(server)

    async def _freeze_for(self, process: KvServer, seconds: float) -> None:
        with self._frozen_while(process):
            await asyncio.sleep(seconds)

    @contextmanager
    def _frozen_while(self, process: KvServer) -> Iterator[None]:
        """Freezes a server inside the block."""
        began_us = wall_us()
        process.pause()
        try:
            yield
        finally:
            process.resume()
            self.outages.append(Outage(process.name, began_us, wall_us()))

    async def _restart(self, server: KvServer) -> None:
        if server.running:
            await server.stop(LEAVE_S_MAX)
            self.outages.append(Outage(server.name, wall_us(), FOREVER))

    async def _kill_daemon(self, _: KvServer) -> None:
        self._daemon_down_us = wall_us()
        await self._stage.daemon.kill()
        await asyncio.sleep(self._chance.choice([0.0, self._chance.uniform(0.0, LEASE_S * 1.5)]))
        await self._revive_daemon()  # another fault of the round may take a minute, as a server that leaves does

    async def _kill_both(self, server: KvServer) -> None:
        """Kills a server and the daemon at once: nobody knows of the one until the other is back."""
        await asyncio.gather(self._kill(server), self._kill_daemon(server))

    async def _freeze_daemon(self, _: KvServer) -> None:
        daemon = self._stage.daemon
        began_us = self._daemon_down_us = wall_us()
        daemon.pause()
        try:
            await asyncio.sleep(self._chance.choice([0.3, 1.0, STALL_MS_MAX / 1_000 + self._chance.uniform(0.5, 5.0)]))
        finally:
            daemon.resume()
        if await daemon.ended(1.0):
            self.counts["daemon ended after a freeze"] += 1
            await self._revive_daemon()
        else:
            self._daemon_is_up(began_us)

    async def _zookeepers(self) -> None:
        """Kills the servers of the ensemble in turn, and starts each again: a majority lives at each moment."""
        chance = random.Random(f"{self._seed} zookeepers")
        for number in count():
            await asyncio.sleep(chance.uniform(1.0, ENSEMBLE_S_MAX))
            server = self._stage.zookeepers[number % len(self._stage.zookeepers)]
            mode = (await server.query("srvr")).partition("Mode: ")[2].split("\n")[0] or "server"
            self.counts[f"kill of ZooKeeper's {mode}"] += 1
            self._tell(f"kill of {server.name}, the {mode}")
            await server.kill()
            await asyncio.sleep(chance.uniform(0.0, DOWN_S_MAX))
            await self._stage.start_zookeepers()
            self._tell(f"{server.name} is back")

    async def _moves(self) -> None:
        """Moves regions one after the other; the daemon may refuse, or be down."""
        chance = random.Random(f"{self._seed} moves")
        while True:
            await asyncio.sleep(chance.uniform(0.1, MOVE_S_MAX))
            if regions := await self._stage.daemon.listed(TABLE):
                region, to = chance.choice(regions)["id"], chance.choice(list(self._stage.servers))
                await self._change("moves", f"/v1/regions/{region}/move", {"server": to})

    async def _shapes(self) -> None:
        """Splits regions and merges neighbours, so that there are between half and twice as many as at first."""
        chance = random.Random(f"{self._seed} shapes")
        while True:
            await asyncio.sleep(chance.uniform(0.1, SHAPE_S_MAX))
            regions = await self._stage.daemon.listed(TABLE)
            first = chance.randrange(max(1, len(regions) - 1))
            if len(regions) < REGIONS // 2 or (len(regions) < 2 * REGIONS and chance.random() < 0.5):
                if regions:
                    await self._change("splits", f"/v1/regions/{regions[first]['id']}/split", {})
            else:
                some = [one["id"] for one in regions[first : first + chance.choice([2, 2, 3])]]
                await self._change("merges", "/v1/regions/merge", {"regions": some})

    async def _flushes(self) -> None:
        """Has the table flushed now and then."""
        chance = random.Random(f"{self._seed} flushes")
        while True:
            await asyncio.sleep(chance.uniform(1.0, FLUSH_S_MAX))
            await self._change("flushes", f"/v1/regions/tables/{TABLE}/work", {"work": FLUSH})

    async def _snapshots(self) -> None:
        """Makes snapshots of the table, and deletes older ones: each keeps files of all regions."""
        chance = random.Random(f"{self._seed} snapshots")
        for number in count():
            await asyncio.sleep(chance.uniform(1.0, SNAPSHOT_S_MAX))
            name, began_us = f"s{number}", wall_us()
            if await self._change("snapshots", "/v1/regions/snapshots", {"name": name, "table": TABLE}):
                self.snapshots[name] = began_us
            for old in list(self.snapshots)[:-SNAPSHOTS]:
                if await self._stage.act(f"/v1/regions/snapshots/{old}/delete", {}):
                    del self.snapshots[old]

    async def _change(self, what: str, path: str, body: dict[str, object]) -> bool:
        await self._changes_go_on.wait()
        begun = await self._stage.act(path, body)
        self.counts[what if begun else f"{what} refused, or without a response"] += 1
        return begun is not None

    async def _tables(self) -> None:
        """Disables and enables the second table in turn."""
        chance = random.Random(f"{self._seed} tables")
        act = "disable"
        while True:
            await asyncio.sleep(chance.uniform(1.0, TABLE_S_MAX))
            if await self._stage.act(f"/v1/regions/tables/{SIDE}/{act}", {}):
                self.counts[f"{act}s of a table"] += 1
                act = "enable" if act == "disable" else "disable"

    def _tell(self, text: str) -> None:
        self._log(f"{(wall_us() - self.began_us) / 1e6:7.1f} s  {text}")
