"""The journal's rows in a topic of the daemon's own brokers: what it has equals the files, and the rest is a hole.

The controller never depends on its own cluster: all brokers die, the topic is missing, and the role goes on.
"""

from __future__ import annotations

import json

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from cli.demo.process import RegentProcess
from controller.journal.segments import segments_in
from metadata_store import paths
from testing.znodes import create_topic
from tests.kit.cluster.scene import succeeds
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually

TOPIC = "journal"
PARTITIONS = 30
MORE = 600
"""Topics whose rows do not fit in what waits for the topic."""
BYTES_MAX = 131_072
SETTINGS = {"journal.topic": TOPIC, "journal.topic_bytes_max": BYTES_MAX, "brokers.request_timeout_ms": 5_000}


def in_files(daemon: RegentProcess) -> dict[bytes, bytes]:
    """Returns the lines of the files by the key of their records."""
    lines = b"".join(path.read_bytes() for path in segments_in(daemon.journal)).splitlines()
    rows = [(json.loads(line), line) for line in lines]
    return {b"%010d-%012d" % (row["ctl_epoch"], row["seq"]): line for row, line in rows}


async def in_topic(w: ClusterWorld) -> list[tuple[bytes, bytes]]:
    """Reads the topic from its begin to its end."""
    consumer = AIOKafkaConsumer(bootstrap_servers=w.cluster.bootstrap, auto_offset_reset="earliest")
    partition = TopicPartition(TOPIC, 0)
    found: list[tuple[bytes, bytes]] = []
    async with consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            batch = await consumer.getmany(partition, timeout_ms=500)
            found += [(record.key, record.value) for records in batch.values() for record in records]
    return found


async def attention(daemon: RegentProcess) -> str:
    return await succeeds(daemon, "status")


async def metric(daemon: RegentProcess, name: str) -> float:
    return (await daemon.metric(f"regent_journal_topic_{name}"))[""]


async def caught_up(daemon: RegentProcess) -> None:
    """Waits until the topic has acknowledged all rows that do not miss in it."""

    async def so() -> bool:
        written = (await daemon.metric("regent_journal_rows_total"))[""]
        sent, lost = await metric(daemon, "rows_total"), await metric(daemon, "rows_lost_total")
        assert (sent + lost, await metric(daemon, "failing")) == (written, 0), (written, sent, lost)
        return written > 0

    await eventually(so, 60.0)


@pytest.mark.timeout(600)
async def test_the_topic_has_what_the_files_have_whatever_its_brokers_do() -> None:
    async with world(3, partitions=PARTITIONS) as w:
        daemon = w.daemon(flags=("--takeover",), settings=SETTINGS)
        await daemon.boot()

        async def missed() -> bool:
            shown = await attention(daemon)
            assert "topic journal does not exist: kafka-topics.sh --bootstrap-server" in " ".join(shown.split()), shown
            return True

        await eventually(missed, 40.0)
        assert await w.zk.exists(paths.topic(TOPIC)) is None, "the daemon had the brokers create the topic"
        await create_topic(w.zk, TOPIC, {0: (1, 2, 3)})
        await w.healed()
        await caught_up(daemon)
        await create_topic(w.zk, "orders", dict.fromkeys(range(PARTITIONS), (1, 2, 3)))
        await w.healed()
        await caught_up(daemon)
        states = await w.states()
        leader = states[TOPIC, 0][1]
        assert leader is not None
        await w.cluster.brokers[leader.leader].kill()
        await w.leads_nothing(leader.leader)
        await caught_up(daemon)
        await w.cluster.revive(leader.leader)
        await w.healed()
        await caught_up(daemon)
        assert await metric(daemon, "rows_lost_total") == 0
        assert len(await in_topic(w)) > PARTITIONS
        assert dict(await in_topic(w)) == in_files(daemon)

        for broker in w.cluster.brokers.values():
            await broker.kill()
        for number in range(MORE):
            await create_topic(w.zk, f"late-{number}", {0: (1,)})

        async def alone() -> bool:
            status = await daemon.status()
            assert status is not None
            assert status["mode"] == "active"
            assert await metric(daemon, "rows_lost_total") > 0
            return await metric(daemon, "failing") == 1

        await eventually(alone, 90.0)
        assert await metric(daemon, "bytes_waiting") <= BYTES_MAX
        for number in w.cluster.brokers:
            await w.cluster.revive(number)
        await w.healed()
        await caught_up(daemon)
        lost = await metric(daemon, "rows_lost_total")
        found, files = dict(await in_topic(w)), in_files(daemon)
        assert found.items() <= files.items()
        assert len(files) - len(found) == lost
        assert list(found) == sorted(found), "rows are out of order"
        assert min(files.keys() - found.keys()) < max(found), "no later row shows the hole"
        await daemon.stop()
        assert dict(await in_topic(w)).items() > found.items(), "the last rows were not sent"
