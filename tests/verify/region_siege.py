"""Measures the waits of honest servers, and the costs, while a daemon of regions is under attack."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import httpx
import msgspec

from cli.demo.regions_process import RegionsProcess
from regent_agent.connection import Channel, Daemons, RequestRefused, Unreachable
from regent_agent.protocol import Accepted, Register, Registered, Report
from tests.kit.deadlines import eventually
from tests.verify.hostile_peers import ATTACKS, done_by
from tests.verify.siege import ENDS_S_MAX, SAMPLE_S, Waits, going_on
from tests.verify.siege_costs import Delay, Lag, aligned, descriptors, forget_peak, peak_mb, starved_s

LEASE_MS: Final = 4_000
AGENTS: Final = 10
REGIONS: Final = 500
TABLE: Final = "t"
HEAD: Final = (
    "attack", "connections", "MB", "frames", "refused", "longest lag", "corrected", "honest server", "corrected",
    "served", "again", "suspended", "died", "memory", "descriptors",
)  # fmt: skip


class Cost(msgspec.Struct):
    """Holds the costs of one attack; ``counts`` come from :class:`tests.verify.hostile_peers.Peers`."""

    attack: str
    counts: dict[str, int]
    lag: Lag
    server: Delay
    served: int = 0
    again: int = 0
    suspended: int = 0
    died: int = 0
    memory_mb: int = 0
    descriptors: int = 0

    def row(self) -> tuple[str, ...]:
        """Returns the columns of :data:`HEAD`."""
        opened, sent, frames, refused = (
            self.counts.get(key, 0) for key in ("opened", "bytes", "frames", "ended by the other side")
        )
        delays = (f"{delay_s:.2f} s" for one in (self.lag, self.server) for delay_s in (one.raw_s, one.own_s))
        fate = self.served, self.again, self.suspended, self.died, self.memory_mb, self.descriptors
        return (self.attack, *map(str, (opened, sent // 1_000_000, frames, refused)), *delays, *map(str, fate))


def table(costs: list[Cost]) -> str:
    """Returns a table of all attacks."""
    return aligned([HEAD, *(cost.row() for cost in costs)])


class RegionSiege:
    """A daemon of regions, and honest servers beside the attacks."""

    def __init__(self, daemon: RegionsProcess, agents: asyncio.subprocess.Process) -> None:
        self.daemon = daemon
        self._agents = agents
        self.costs: list[Cost] = []

    async def fate(self) -> dict[str, int]:
        """Returns what became of the honest servers so far."""
        assert self._agents.stdin is not None
        assert self._agents.stdout is not None
        self._agents.stdin.write(b"\n")
        found: dict[str, int] = json.loads(await asyncio.wait_for(self._agents.stdout.readline(), ENDS_S_MAX))
        return found

    async def endure(self, attack: str, seconds: float) -> Cost:
        """Runs one attack; prints its effects and its costs."""
        waits = Waits(self._serves)
        cost = Cost(attack, {}, Lag(), waits.delay)
        before = await self.fate()
        await eventually(waits.tried, 60.0)
        forget_peak(self.daemon.pid)
        await self._sample(cost)
        async with going_on(waits.go_on(), self._watch(cost)):
            cost.counts = await self._attack(attack, seconds)
        await self._sample(cost)
        after = await self.fate()
        cost.served, cost.again = waits.served, waits.tried_again
        cost.suspended, cost.died = (after[key] - before[key] for key in ("suspended", "died"))
        cost.memory_mb = peak_mb(self.daemon.pid)
        self.costs.append(cost)
        print("  ".join(cost.row()), flush=True)
        return cost

    async def _attack(self, attack: str, seconds: float) -> dict[str, int]:
        command = [sys.executable, "-m", "tests.verify.hostile_peers", attack, str(self.daemon.port), str(seconds)]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            out, _ = await asyncio.wait_for(process.communicate(), seconds + ENDS_S_MAX)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        assert process.returncode == 0, attack
        found: dict[str, int] = json.loads(out)
        for key in done_by(ATTACKS[attack]):
            assert found.get(key), f"the attack did nothing ({key}): {attack}"
        return found

    async def _serves(self) -> None:
        """Registers as a process of a server, and sends a report, on a connection of its own."""
        channel = Channel(Daemons([("127.0.0.1", self.daemon.port)]))
        try:
            registered = await channel.request(Register("probe", 1, "probe:1"), Registered, ENDS_S_MAX)
            await channel.request(Report("probe", 1, registered.epoch, []), Accepted, ENDS_S_MAX)
        except (Unreachable, RequestRefused) as error:
            raise ConnectionRefusedError(str(error)) from error
        finally:
            channel.close()

    async def _watch(self, cost: Cost) -> None:
        while True:
            with suppress(httpx.HTTPError):
                await self._sample(cost)
            await asyncio.sleep(SAMPLE_S)

    async def _sample(self, cost: Cost) -> None:
        found = await self.daemon.metric("regent_loop_lag_seconds_bucket")
        buckets = {float(re.findall(r'le="([^"]+)"', labels)[0]): count for labels, count in found.items()}
        assert buckets, "no histogram of the loop's lag"
        cost.lag.sample(buckets, starved_s(str(self.daemon.pid)))
        cost.descriptors = max(cost.descriptors, descriptors(self.daemon.pid))


@asynccontextmanager
async def besieged(agents: int = AGENTS, regions: int = REGIONS) -> AsyncIterator[RegionSiege]:
    """Runs a daemon, and honest servers with regions, none of which a balance gives to strangers."""
    with tempfile.TemporaryDirectory(prefix="regent-siege-") as name:
        settings = {"regions.lease_ms": LEASE_MS, "regions.fence": "lease", "regions.balancer_period_ms": 0}
        daemon = RegionsProcess(Path(name), settings)
        await daemon.boot()
        command = [sys.executable, "-m", "tests.verify.honest_agents", str(daemon.port), str(agents)]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        try:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"ready\n"
            await daemon.create(TABLE, uniform=regions)
            made = RegionSiege(daemon, process)

            async def all_open() -> bool:
                return (await made.fate())["regions"] >= regions

            await eventually(all_open, ENDS_S_MAX)
            yield made
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await daemon.kill()
