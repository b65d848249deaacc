"""Measures the waits of brokers and clients, and the costs, while a daemon and an admin endpoint are under attack."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import httpx

from brokers.client import BrokerClient
from brokers.transport import TcpTransport, Transport
from brokers.wire.errors import Error
from brokers.wire.primitives import NO_TAGS
from brokers.wire.versions import Api
from tests.kit.cluster.endpoint import EndpointProcess
from tests.kit.cluster.scene import Scene
from tests.kit.deadlines import eventually
from tests.verify.hostile_peers import ATTACKS, done_by
from tests.verify.siege_costs import Cost, Delay, descriptors, forget_peak, peak_mb, starved_s
from tests.verify.system import Times

ATTACK_S: Final = 6.0
SAMPLE_S: Final = 0.2
ENDS_S_MAX: Final = 120.0
BROKER_S_MAX: Final = 10.0
"""Longest wait of a broker's call, but for its wait for a processor: a third of what a broker waits for an answer."""
CALL_S_MAX: Final = 5.0
"""How long one connection of a probe is tried; then it makes another, as brokers do."""


@dataclass
class Waits:
    """Makes calls all the time, each on a new connection, and measures the longest wait."""

    call: Callable[[], Awaitable[None]]
    served: int = 0
    tried_again: int = 0
    delay: Delay = field(default_factory=Delay)

    async def go_on(self) -> None:
        """Calls until cancelled, on a thread that does nothing else: while it waits for a processor, so does a call."""
        over = threading.Event()
        with ThreadPoolExecutor(1) as thread:
            calling = asyncio.get_running_loop().run_in_executor(thread, lambda: asyncio.run(self._call_on(over)))
            try:
                await asyncio.shield(calling)
            finally:
                over.set()
                await calling

    async def _call_on(self, over: threading.Event) -> None:
        """Calls until the end; the wait of a call under way then counts, but the call not as served."""
        while not over.is_set():
            began_s, starved_before_s = time.monotonic(), starved_s("thread-self")
            while not (served := await self.tried()) and not over.is_set():
                self.tried_again += 1
                await asyncio.sleep(0.05)  # as long as a broker waits before it looks for its controller again
            self.served += served and not over.is_set()
            self.delay.add(time.monotonic() - began_s, starved_s("thread-self") - starved_before_s)
            await asyncio.sleep(SAMPLE_S)

    async def tried(self) -> bool:
        """Makes one connection; returns whether the call was served."""
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
    loop: asyncio.AbstractEventLoop
    broker_restarts: int = 0
    costs: list[Cost] = field(default_factory=list)

    async def endure(self, attack: str, port: int, *, tls: bool = False) -> None:
        """Runs one attack; prints its effects and its costs."""
        brokers, clients = Waits(self._broker_asks), Waits(self._client_asks)
        cost = Cost(attack, "endpoint" if port == self.at.port else "controller listener", broker=brokers.delay)
        self.stage.load.take_stall()
        for pid in self._pids():
            forget_peak(pid)
        for probe in (brokers, clients):
            await eventually(probe.tried, 60.0)
        await self._sample(cost)
        async with going_on(brokers.go_on(), clients.go_on(), self._watch(cost)):
            cost.counts = await self._attack(attack, port, tls=tls)
        await self._sample(cost)
        cost.served, cost.again = brokers.served, brokers.tried_again
        daemon, endpoint = (peak_mb(pid) for pid in self._pids())
        cost.memory_mb = daemon, endpoint
        self.costs.append(cost)
        stall_s = self.stage.load.take_stall().seconds
        self.times.note(
            f"{cost.at}: {attack}",
            f"{json.dumps(cost.counts)}; a broker's call waited {cost.broker.raw_s:.2f} s at most, without the wait "
            f"for a processor {cost.broker.own_s:.2f} s ({cost.served} served, {cost.again} tried again), a client's "
            f"{clients.delay.raw_s:.2f} s ({clients.served} served), a record {stall_s:.2f} s; the loop was late by at "
            f"most {cost.lag.raw_s:g} s, without the wait for a processor {cost.lag.own_s:.2f} s; {daemon} MB and "
            f"{endpoint} MB",
        )
        assert brokers.served, f"no broker's call was served during: {attack}"
        assert clients.served, f"no client's call was served during: {attack}"
        assert cost.broker.own_s <= BROKER_S_MAX, attack
        for key in done_by(ATTACKS[attack]):
            assert cost.counts.get(key), f"the attack did nothing ({key}): {attack}"

    def _pids(self) -> tuple[int, int]:
        return self.stage.daemon.pid, self.at.pid

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
        """Requests a block of producer ids as broker 1."""
        body = (1).to_bytes(4, "big") + self.broker_epoch.to_bytes(8, "big") + NO_TAGS
        head = Api.ALLOCATE_PRODUCER_IDS.to_bytes(2, "big") + bytes(2) + b"\0\0\0\x05" + b"\xff\xff" + NO_TAGS
        connection = await self.transport.connect("127.0.0.1", self.stage.daemon.port, lambda: None)
        try:
            answer = await connection.exchange([(len(head) + len(body)).to_bytes(4, "big"), head, body])
        finally:
            connection.close()
        if int.from_bytes(answer[9:11], "big") == Error.STALE_BROKER_EPOCH:  # it lost its session, and has a new one
            asked = asyncio.run_coroutine_threadsafe(self.stage.w.store.load_brokers(), self.loop)
            self.broker_epoch = (await asyncio.wrap_future(asked)).brokers[1].epoch
            self.broker_restarts += 1
            raise ConnectionRefusedError("stale broker epoch")
        assert answer[9:11] == b"\0\0", answer

    async def _client_asks(self) -> None:
        async with await BrokerClient.connect("127.0.0.1", self.at.port, CALL_S_MAX, self.client) as client:
            await client.metadata([])

    # -- what it costs

    async def _watch(self, cost: Cost) -> None:
        while True:
            with suppress(httpx.HTTPError):
                await self._sample(cost)
            await asyncio.sleep(SAMPLE_S)

    async def _sample(self, cost: Cost) -> None:
        """Samples the loop's lag, the lease and open descriptors."""
        found = await self.stage.daemon.metric("regent_loop_lag_seconds_bucket")
        assert found, "no histogram of the loop's lag"
        daemon, endpoint = self._pids()
        buckets = {float(re.findall(r'le="([^"]+)"', labels)[0]): count for labels, count in found.items()}
        cost.lag.sample(buckets, starved_s(str(daemon)))
        cost.lease_part = min(cost.lease_part, await self.stage.metric("regent_lease_remaining_ratio"))
        highest = zip(cost.descriptors, (descriptors(daemon), descriptors(endpoint)), strict=True)
        of_daemon, of_endpoint = (max(pair) for pair in highest)
        cost.descriptors = of_daemon, of_endpoint


@asynccontextmanager
async def going_on(*works: Awaitable[None]) -> AsyncIterator[None]:
    """Runs coroutines until the block ends."""
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


def plain() -> Transport:
    """Returns a transport without TLS and SASL."""
    assert os.name == "posix"
    return TcpTransport()
