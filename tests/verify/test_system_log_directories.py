"""Kafka's log directory failure test: a disk of the leader, or of a follower, fails under load, and is replaced.

Permissions do not stop root. So the directory is moved away and a file takes its place: open files go on, but the
next segment cannot be made. A segment is rolled after three seconds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from state_machines.model.types import Leadership
from testing.embedded.kafka import EmbeddedBroker
from tests.kit.deadlines import eventually
from tests.verify.system import System, system

KEPT, LOST = "test_topic_1", "test_topic_2"
DISKS = {
    "log.roll.ms": 3_000,
    "log.flush.interval.messages": 5,
    "replica.high.watermark.checkpoint.interval.ms": 60_000,
}


def home(broker: EmbeddedBroker, topic: str) -> Path:
    """Returns the log directory with the topic's only partition."""
    [log] = broker.folder.glob(f"data-[12]/{topic}-0")
    return log.parent


def away(disk: Path) -> Path:
    return disk.with_name(f"{disk.name}-away")


def fail(disk: Path) -> None:
    disk.rename(away(disk))
    disk.touch()


def mend(disk: Path) -> None:
    disk.unlink()
    away(disk).rename(disk)


async def left(s: System, broker: int) -> bool:
    """Returns whether the broker neither leads the partition nor is in sync."""
    leader, isr = await s.isr(LOST)
    return leader not in {broker, -1} and broker not in isr


async def known_offline(s: System, broker: int) -> bool:
    [item] = await (await s.active()).partitions(topic=LOST)
    return bool(item["offlineReplicas"] == [broker])


@pytest.mark.kafka(
    "kafkatest.log_dir_failure_test",
    "LogDirFailureTest.testProduceErrorFromFailureOn*",
    "LogDirFailureTest.testIOExceptionDuring*",
)
@pytest.mark.seed("S4-29", "S4-81", "S4-77")
@pytest.mark.parametrize("bounce", [False, True], ids=["running", "bounced"])
@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_a_failed_disk_of_one_broker_costs_no_record(
    role: str, bounce: bool, request: pytest.FixtureRequest
) -> None:
    """Replicas on the broker's other disk stay available, at the end with this broker alone."""
    async with system(request.node.name, properties=DISKS) as s:
        await s.create(KEPT, {0: (1, 2, 3)}, min_insync_replicas=1)
        await s.create(LOST, {0: (2, 3, 1)}, min_insync_replicas=2)
        leader, _ = await s.isr(LOST)
        broker = s.w.cluster.brokers[leader if role == "leader" else 1]
        disk = home(broker, LOST)
        assert disk != home(broker, KEPT)
        async with s.loaded({LOST: 1}) as stage:
            with s.times.taken(f"failure of the {role}'s disk to the ISR without it"):
                fail(disk)
                if bounce:
                    await broker.stop()
                    await broker.boot()
                await eventually(lambda: left(s, broker.id), 60.0)
            assert broker.running
            assert broker.id in await s.w.cluster.registered()
            await eventually(lambda: known_offline(s, broker.id), 30.0)
            await stage.flows()
        await alone(s, broker)
        mend(disk)
        await broker.stop()
        for other in s.w.cluster.brokers:
            await s.w.cluster.revive(other)
        async with s.loaded({LOST: 1, KEPT: 1}) as stage:
            await s.proven(stage)


async def alone(s: System, broker: EmbeddedBroker) -> None:
    """Stops the other brokers; clients write and read the partition on the good disk."""
    for other in s.w.cluster.brokers.values():
        if other is not broker:
            await other.stop()
    async with s.loaded({KEPT: 1}):
        assert await s.isr(KEPT) == (broker.id, {broker.id})
        _, state = (await s.w.states())[LOST, 0]
        assert isinstance(state, Leadership)
        assert state.leader == -1
        assert broker.id not in state.isr
