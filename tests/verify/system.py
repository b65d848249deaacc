"""The stage of Kafka's own system tests: real brokers, two daemons, an admin endpoint, Kafka's tools, and load.

Times are stated, never asserted: printed, and kept in ``build/system-times.json`` by test and step.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from cli.demo.process import RegentProcess
from state_machines.model.types import Assignment
from testing.embedded.load import Load, Reader
from testing.embedded.tools import Finished, Tools
from testing.znodes import read_topic
from tests.kit.cluster.endpoint import EndpointProcess, endpoint
from tests.kit.cluster.scene import Scene
from tests.kit.cluster.world import ClusterWorld, world

RESULTS: Final = Path("build", "system-times.json")
RATE_PER_S: Final = 300
REQUEST_S_MAX: Final = 120.0
"""Longest wait for one acknowledgement: longer than any outage of these tests, so nothing is given up."""
RECORD_BYTES: Final = 65_536
PATIENT: Final = {"zookeeper.session_timeout_ms": 9_000, "controller.loop_stall_ms_max": 4_400}
"""Up to six brokers start on a few cores that others use too."""

Placement = Mapping[int, Sequence[int]]
"""Replicas by partition."""


@dataclass
class Times:
    """Keeps seconds, or other figures, by step."""

    test: str
    found: dict[str, float | str] = field(default_factory=dict)

    def note(self, step: str, figure: float | str) -> None:
        """Prints a figure and writes the file anew; a repeated step gets a number."""
        number = sum(known.split(" #")[0] == step for known in self.found)
        self.found[f"{step} #{number + 1}" if number else step] = figure
        print(f"{self.test}: {step}: {f'{figure:.2f} s' if isinstance(figure, float) else figure}", flush=True)
        held = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({**held, self.test: self.found}, indent=1, sort_keys=True) + "\n")

    @contextmanager
    def taken(self, step: str) -> Iterator[None]:
        """Notes how long the block took, if it ended well."""
        began = time.monotonic()
        yield
        self.note(step, round(time.monotonic() - began, 2))


@dataclass
class System:
    """A cluster that two daemons look after, with the admin endpoint as the bootstrap server of tools.

    ``settings`` are those of both daemons.
    """

    w: ClusterWorld
    times: Times
    daemons: list[RegentProcess]
    settings: Mapping[str, object]
    at: EndpointProcess
    tools: Tools

    async def active(self) -> RegentProcess:
        """Waits until exactly one daemon is active."""
        return await self.w.active_of(self.daemons)

    async def tool(self, name: str, *arguments: str) -> Finished:
        """Runs a tool that must succeed."""
        done = await self.tools.run(name, *arguments)
        assert done.code == 0, done
        return done

    async def create(self, topic: str, placement: Placement, **configs: object) -> None:
        """Creates a topic by ``kafka-topics`` and waits until every replica is in sync."""
        assignment = ",".join(":".join(map(str, placement[p])) for p in sorted(placement))
        pairs = [f"{key.replace('_', '.')}={value}" for key, value in configs.items()]
        options = [text for pair in pairs for text in ("--config", pair)]
        await self.tool("kafka-topics", "--create", "--topic", topic, "--replica-assignment", assignment, *options)
        await self.w.healed()

    async def placed(self, topic: str) -> dict[int, Assignment]:
        """Reads the assignments in the topic znode."""
        return (await read_topic(self.w.zk, topic)).partitions

    async def isr(self, topic: str, partition: int = 0) -> tuple[int, set[int]]:
        """Reads leader and ISR."""
        _, state = (await self.w.states())[topic, partition]
        assert state is not None
        return state.leader, set(state.isr)

    async def fill(self, topic: str, partitions: Sequence[int], mb: float) -> None:
        """Writes so many megabytes of records to each partition, with acks=all."""
        records = int(mb * 1_000_000 / RECORD_BYTES)
        async with AIOKafkaProducer(
            bootstrap_servers=self.w.cluster.bootstrap, acks="all", max_request_size=2 * RECORD_BYTES
        ) as producer:
            for _ in range(records):
                sent = [await producer.send(topic, bytes(RECORD_BYTES), partition=p) for p in partitions]
                for future in sent:
                    await future

    @asynccontextmanager
    async def loaded(self, topics: Mapping[str, int], rate_per_s: int = RATE_PER_S) -> AsyncIterator[Scene]:
        """The topics are written (acks=all, idempotent) and read from their beginning all the time.

        At the end nothing that was acknowledged may be lost, and nothing may be there twice.
        """
        bootstrap = self.w.cluster.bootstrap
        async with AsyncExitStack() as stack:
            load = Load(bootstrap, topics, rate_per_s=rate_per_s, idempotent=True, request_s_max=REQUEST_S_MAX)
            await stack.enter_async_context(load)
            reader = await stack.enter_async_context(Reader(bootstrap, load))
            made = Scene(self.w, await self.active(), load, reader)
            await made.flows()
            load.take_stall()  # what it took to begin
            yield made
            await made.flows()
            await load.stop()
            verdict = await reader.verdict()
            self.times.note("longest wait of a record", round(load.take_stall().seconds, 2))
            self.times.note("records", str(verdict))
            assert (verdict.lost, verdict.duplicated) == ([], []), verdict
            assert verdict.failed == 0, load.ledger.errors

    async def proven(self, stage: Scene) -> None:
        """Waits as :meth:`Scene.proven`, with the daemon that is active now."""
        stage.daemon = await self.active()
        await stage.proven()


@asynccontextmanager
async def system(test: str, brokers: int = 3, **options: Any) -> AsyncIterator[System]:
    """Boots a cluster, an active daemon and its standby; ``options`` go to every broker."""
    async with world(brokers, **options) as w:
        settings = {**PATIENT, "admin.secret_file": str(w.cluster.folder / "admin-secret")}
        first, second = w.daemon(flags=("--takeover",), settings=settings), w.daemon(settings=settings)
        await first.boot()
        await second.boot("standby")
        async with endpoint(first) as at, endpoint(second):
            tools = Tools(at.address, w.cluster.folder, timeout_s=90.0)
            yield System(w, Times(test), [first, second], settings, at, tools)
