"""Runs clusters for the lines, under Kafka or under regent."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from brokers.client import BrokerClient, ClusterMetadata
from testing.embedded.tools import Finished, Tools
from testing.znodes import read_topic
from tests.kit.cluster.endpoint import endpoint
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually
from tests.verify.stock_tools.lines import GROUPS
from tests.verify.stock_tools.lines_moves import FILES
from tests.verify.stock_tools.normal import normal
from tests.verify.stock_tools.one_jvm import OneJvm, ToolsInOneJvm, has_compiler, one_jvm
from tests.verify.stock_tools.steps import WAIT_S_MAX, Act, Does, Line

GROUP: Final = "readers"
PARTITIONS: Final = 2
"""Of a topic that is created without their number."""
SETTLED_S_MAX: Final = 60.0
LINE_S_MAX: Final = 120.0
"""How long a tool may take: its own time-out is 60 s."""
BROKER_OPTIONS: Final[dict[str, Any]] = {
    "properties": {
        "auto.create.topics.enable": "false",
        "auto.leader.rebalance.enable": "false",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
        "replica.fetch.max.bytes": 65_536,
        "replica.fetch.response.max.bytes": 65_536,
    }
}
"""Elections happen when they are requested; a throttled copy fetches little at a time; ACLs can be kept."""
SETTINGS: Final = {
    "controller.auto_leader_rebalance_enable": False,
    "controller.num_partitions": PARTITIONS,
    "controller.default_replication_factor": 3,
    "controller.super_users": "User:ANONYMOUS",
    "zookeeper.session_timeout_ms": 20_000,
    "controller.loop_stall_ms_max": 8_000,
}
"""The daemon's, as the brokers have them; with patience, because here nothing is a fault of a slow machine."""
INTERNAL: Final = ("__consumer_offsets", "__transaction_state")
"""Else brokers create them when a client requests them, and place them at random."""
AS_INTERNAL: Final = ("--replica-assignment", "1:2:3,2:3:1,3:1:2", "--config", "cleanup.policy=compact")
CHANGING: Final = re.compile(r"kafka-topics --(create|alter|delete)|kafka-leader-election|--(execute|cancel)")
"""Lines after which all brokers must show the same before the next one: it may turn to any of them."""


class Result(NamedTuple):
    """Holds the output of a line, normalised and original; ``seconds`` is the length of its last run."""

    code: int
    out: tuple[str, ...]
    err: tuple[str, ...]
    raw: Finished
    seconds: float = 0.0


class Site:
    """Plays lines at a running cluster; ``names`` replace its addresses in comparisons.

    ``jvm``: in which the tools run; None: each is started as its script does it.
    """

    def __init__(self, name: str, w: ClusterWorld, bootstrap: str, names: dict[str, str], jvm: OneJvm | None) -> None:
        self.name = name
        self._w = w
        self._brokers = ",".join(w.cluster.bootstrap)
        self._files = Path(w.cluster.folder / "files")
        self._files.mkdir(exist_ok=True)
        for file, text in FILES.items():
            (self._files / file).write_text(text, encoding="utf-8")
        self._names = names | {
            f"--bootstrap-server {bootstrap}": "--bootstrap-server BOOTSTRAP",
            str(w.cluster.folder): "FOLDER",
            w.cluster.connect: "ZOOKEEPER",
            **{f"127.0.0.1:{b.client_port}": f"BROKER-{b.id}" for b in w.cluster.brokers.values()},
            **{f"127.0.0.1:{b.internal_port}": f"INTERNAL-{b.id}" for b in w.cluster.brokers.values()},
        }
        self._tools = (
            Tools(bootstrap, self._files, LINE_S_MAX)
            if jvm is None
            else ToolsInOneJvm(jvm, bootstrap, self._files, LINE_S_MAX)
        )

    async def play(self, done: Callable[[str, Line, Result], None]) -> None:
        """Plays all steps in their order; calls ``done`` after each line."""
        for group in GROUPS:
            for step in group.steps:
                if isinstance(step, Act):
                    await self._act(step)
                else:
                    done(self.name, step, await self._line(step))
                    if CHANGING.search(step.text):
                        await eventually(self._agreed, SETTLED_S_MAX)

    async def prepare(self) -> None:
        """Creates Kafka's own topics, which both clusters have before the first line."""
        for topic in INTERNAL:
            made = await self._tools.run("kafka-topics", "--create", "--topic", topic, *AS_INTERNAL)
            assert made.code == 0, made
        await eventually(self._agreed, SETTLED_S_MAX)

    async def _line(self, line: Line) -> Result:
        now = asyncio.get_running_loop().time
        deadline_s, begun_s = now() + WAIT_S_MAX, now()
        seen = await self._run(line)
        while line.until and not re.search(line.until, seen.out) and now() < deadline_s:
            begun_s = now()
            seen = await self._run(line)
        out, err = normal(seen.out, self._names, line), normal(seen.err, self._names, line)
        return Result(seen.code, out, err, seen, now() - begun_s)

    async def _run(self, line: Line) -> Finished:
        return await self._tools.run(line.tool, *line.arguments(str(self._files)))

    async def _act(self, act: Act) -> None:
        match act.does:
            case Does.WRITES:
                await self._write(act)
            case Does.CONSUMES:
                await self._consume(act.of)
            case Does.STOPS:
                await self._w.cluster.brokers[int(act.of)].stop()
                await eventually(lambda: self._known(int(act.of), alive=False), SETTLED_S_MAX)
            case Does.STARTS:
                await self._w.cluster.brokers[int(act.of)].boot()
                await eventually(lambda: self._known(int(act.of), alive=True), SETTLED_S_MAX)
        await eventually(self._agreed, SETTLED_S_MAX)

    async def _known(self, broker: int, *, alive: bool) -> bool:
        """Returns whether the metadata of every running broker has a broker, or has it not."""
        return all((broker in {node.id for node in seen.nodes}) is alive for seen in await self._seen())

    async def _agreed(self) -> bool:
        """Returns whether the metadata of every running broker is the same."""
        first, *others = [seen.topics for seen in await self._seen()]
        return all(other == first for other in others)

    async def _seen(self) -> list[ClusterMetadata]:
        found = []
        for broker in self._w.cluster.brokers.values():
            if broker.running:
                async with await BrokerClient.connect("127.0.0.1", broker.client_port) as asking:
                    found.append(await asking.metadata())
        return found

    async def _write(self, act: Act) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self._brokers, acks="all") as producer:
            for partition in await producer.partitions_for(act.of):
                for _ in range(act.number):
                    await producer.send_and_wait(act.of, bytes(act.size), partition=partition)

    async def _consume(self, topic: str) -> None:
        """Commits all partitions without joining, so that the group is empty afterwards."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self._brokers, group_id=GROUP, enable_auto_commit=False)
        await consumer.start()
        try:
            found = await read_topic(self._w.zk, topic)
            partitions = [TopicPartition(topic, number) for number in found.partitions]
            consumer.assign(partitions)
            await consumer.commit(await consumer.end_offsets(partitions))
        finally:
            await consumer.stop()


@asynccontextmanager
async def _jvm(w: ClusterWorld, *, separately: bool) -> AsyncIterator[OneJvm | None]:
    if separately or not has_compiler():
        yield None
        return
    folder = w.cluster.folder / "tools"
    folder.mkdir()
    async with one_jvm(folder) as jvm:
        yield jvm


@asynccontextmanager
async def under_kafka(*, separately: bool) -> AsyncIterator[list[Site]]:
    """Boots three brokers, one of which is the controller. ``separately``: no tools share a JVM, as without a JDK."""
    async with world(3, partitions=PARTITIONS, **BROKER_OPTIONS) as w:
        await w.broker_controls()
        async with _jvm(w, separately=separately) as jvm:
            site = Site("kafka", w, ",".join(w.cluster.bootstrap), {}, jvm)
            await site.prepare()
            yield [site]


@asynccontextmanager
async def under_regent(*, separately: bool) -> AsyncIterator[list[Site]]:
    """Boots the same brokers with a daemon and its admin endpoint; tools run at the endpoint and at the brokers."""
    async with world(3, partitions=PARTITIONS, **BROKER_OPTIONS) as w:
        daemon = w.daemon(flags=["--takeover"], settings=SETTINGS)
        await daemon.boot()
        async with endpoint(daemon) as at, _jvm(w, separately=separately) as jvm:
            names = {at.address: "ENDPOINT", str(daemon.id): "DAEMON"}
            sites = [
                Site("endpoint", w, at.address, names, jvm),
                Site("brokers", w, ",".join(w.cluster.bootstrap), names, jvm),
            ]
            await eventually(lambda: sites[0]._known(daemon.id, alive=True), SETTLED_S_MAX)
            await sites[0].prepare()
            yield sites
