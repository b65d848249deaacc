"""A daemon and an admin endpoint under attack: what brokers and clients notice, and what it costs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from brokers.client import BrokerClient
from brokers.embedded.process import ChildProcess
from brokers.transport import TcpTransport, Transport
from brokers.wire.errors import Error
from brokers.wire.primitives import NO_TAGS
from brokers.wire.versions import Api
from tests.cluster.endpoint import EndpointProcess
from tests.cluster.scene import Scene
from tests.polling import eventually
from tests.verify.system import Times

ATTACK_S: Final = 6.0
SAMPLE_S: Final = 0.2
ENDS_S_MAX: Final = 120.0
CALL_S_MAX: Final = 5.0
"""How long one connection of a probe is tried; then it makes another, as brokers do."""
MIB: Final = 1_048_576


@dataclass
class Waits:
    """Calls that somebody makes all the time, each on a new connection, and how long the longest waited."""

    call: Callable[[], Awaitable[None]]
    served: int = 0
    tried_again: int = 0
    longest_s: float = 0.0
    longest_own_s: float = 0.0
    """Without the time in which this process waited for a CPU."""

    async def go_on(self) -> None:
        """Until cancelled; a call under way at the end counts with what it has waited."""
        while True:
            began_s, starved_s = time.monotonic(), _waited_for_cpu_s("self")
            try:
                while not await self.tried():
                    self.tried_again += 1
                    await asyncio.sleep(0.05)  # as long as a broker waits before it looks for its controller again
                self.served += 1
            finally:
                waited_s = time.monotonic() - began_s
                self.longest_s = max(self.longest_s, waited_s)
                self.longest_own_s = max(self.longest_own_s, waited_s - _waited_for_cpu_s("self") + starved_s)
            await asyncio.sleep(SAMPLE_S)

    async def tried(self) -> bool:
        """Whether one connection was served."""
        try:
            async with asyncio.timeout(CALL_S_MAX):
                await self.call()
        except (OSError, TimeoutError):
            return False
        return True


@dataclass
class Siege:
    """``transport``: as brokers connect to the controller listener; ``client``: as clients connect to the endpoint."""

    stage: Scene
    at: EndpointProcess
    times: Times
    transport: Transport
    client: Transport
    broker_epoch: int
    lag_s_max: float = 0.0
    own_lag_s_max: float = 0.0
    """Without the time in which the daemon's loop waited for a CPU."""
    broker_wait_s_max: float = 0.0
    broker_restarts: int = 0
    lease_part_min: float = 1.0
    memory_mb_max: int = 0

    async def endure(self, attack: str, port: int, *, tls: bool = False) -> None:
        """One attack from its beginning to its end; prints what it did and what it cost."""
        brokers, clients = Waits(self._broker_asks), Waits(self._client_asks)
        self.stage.load.take_stall()
        before, starved_s = await self._lags(), _waited_for_cpu_s(self.stage.daemon.pid)
        for process in (self.stage.daemon, self.at):
            _forget_peak(process)
        for probe in (brokers, clients):
            await eventually(probe.tried, 60.0)
        async with _going_on(brokers.go_on(), clients.go_on(), self._watch_lease()):
            counts = await self._attack(attack, port, tls=tls)
        lag_s = highest(before, await self._lags())
        starved_s = _waited_for_cpu_s(self.stage.daemon.pid) - starved_s
        memory = [_peak_mb(process) for process in (self.stage.daemon, self.at)]
        stall_s = self.stage.load.take_stall().seconds
        self.lag_s_max = max(self.lag_s_max, lag_s)
        self.own_lag_s_max = max(self.own_lag_s_max, lag_s - starved_s)
        self.broker_wait_s_max = max(self.broker_wait_s_max, brokers.longest_own_s)
        self.memory_mb_max = max(self.memory_mb_max, *memory)
        where = "endpoint" if port == self.at.port else "controller listener"
        self.times.note(
            f"{where}: {attack}",
            f"{json.dumps(counts)}; a broker's call waited {brokers.longest_s:.2f} s at most "
            f"({brokers.longest_own_s:.2f} s of it not for this test's own turn; {brokers.served} served, "
            f"{brokers.tried_again} tried again), a client's {clients.longest_s:.2f} s ({clients.served} served), a "
            f"record {stall_s:.2f} s; the loop was late by at most {lag_s:g} s (it waited {starved_s:.2f} s "
            f"for a CPU in all); {memory[0]} MB and {memory[1]} MB",
        )
        assert brokers.served, f"no broker's call was served during: {attack}"

    async def _attack(self, attack: str, port: int, *, tls: bool) -> dict[str, int]:
        command = [sys.executable, "-m", "tests.verify.hostile_peers", attack, str(port), str(ATTACK_S)]
        process = await asyncio.create_subprocess_exec(
            *command, *(["--tls"] if tls else []), stdout=asyncio.subprocess.PIPE
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(), ATTACK_S + ENDS_S_MAX)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        assert process.returncode == 0, attack
        found: dict[str, int] = json.loads(out)
        return found

    # -- those that want to be served

    async def _broker_asks(self) -> None:
        """A block of producer ids, as broker 1."""
        body = (1).to_bytes(4, "big") + self.broker_epoch.to_bytes(8, "big") + NO_TAGS
        head = Api.ALLOCATE_PRODUCER_IDS.to_bytes(2, "big") + bytes(2) + b"\0\0\0\x05" + b"\xff\xff" + NO_TAGS
        connection = await self.transport.connect("127.0.0.1", self.stage.daemon.port, lambda: None)
        try:
            answer = await connection.exchange([(len(head) + len(body)).to_bytes(4, "big"), head, body])
        finally:
            connection.close()
        if int.from_bytes(answer[9:11], "big") == Error.STALE_BROKER_EPOCH:  # it lost its session, and has a new one
            self.broker_epoch = (await self.stage.w.store.load_brokers()).brokers[1].epoch
            self.broker_restarts += 1
            raise ConnectionRefusedError("stale broker epoch")
        assert answer[9:11] == b"\0\0", answer

    async def _client_asks(self) -> None:
        async with await BrokerClient.connect("127.0.0.1", self.at.port, CALL_S_MAX, self.client) as client:
            await client.metadata([])

    # -- what it costs

    async def _watch_lease(self) -> None:
        while True:
            with suppress(httpx.HTTPError):
                self.lease_part_min = min(self.lease_part_min, await self.stage.metric("regent_lease_remaining_ratio"))
            await asyncio.sleep(SAMPLE_S)

    async def _lags(self) -> dict[float, float]:
        """How many turns of the loop were late by at most so many seconds."""
        async with self.stage.daemon._client() as client:
            text = (await client.get("/metrics")).text
        found = re.findall(r'^regent_loop_lag_seconds_bucket\{.*?le="([^"]+)".*?\} (\S+)$', text, re.MULTILINE)
        assert found, "no histogram of the loop's lag"
        return {float(bound): float(count) for bound, count in found}


def highest(before: dict[float, float], after: dict[float, float]) -> float:
    """Bound of the highest bucket that something came into."""
    found, reached, last = 0.0, 0.0, after[max(after)] - before[max(before)]
    for bound in sorted(after):
        if reached < last:
            found = bound
        reached = after[bound] - before[bound]
    return found


@asynccontextmanager
async def _going_on(*works: Awaitable[None]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _forget_peak(process: ChildProcess) -> None:
    """The highest memory is counted from now on."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5", encoding="ascii")


def _waited_for_cpu_s(pid: int | str) -> float:
    """How long the main thread of a process, its loop, was ready and did not run."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9


def _peak_mb(process: ChildProcess) -> int:
    [kib] = re.findall(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    return int(kib) * 1_024 // MIB


def plain() -> Transport:
    """TCP alone."""
    assert os.name == "posix"
    return TcpTransport()
