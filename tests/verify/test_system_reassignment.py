"""Kafka's reassignment and throttling tests, with its own tool at the admin endpoint and acks=all load on the topic."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections.abc import Mapping, Sequence

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import RecordsToDelete

from state_machines.model.types import Assignment
from tests.kit.cluster.endpoint import admin_client
from tests.kit.deadlines import eventually
from tests.verify.system import Placement, System, system

TOPIC = "test_topic"
PARTITIONS = 20
BROKERS = 4
FILLED_MB = 1.0
SLOW_BYTES_PER_S = 25_000
FAST_BYTES_PER_S = 5_000_000
"""At the slow pace a move lasts for longer than two brokers take to bounce, at the fast one it comes to its end."""
SMALL_FETCHES = {"replica.fetch.max.bytes": 65_536, "replica.fetch.response.max.bytes": 65_536}
"""A fetch is throttled once the pace was exceeded: with Kafka's default of 10 MiB the first one would bring it all."""

MOVED_MB = 30.0
THROTTLE_BYTES_PER_S = 4_000_000


async def execute(s: System, placement: Placement, *options: str) -> list[str]:
    """Runs ``kafka-reassign-partitions --execute``; returns the arguments of a ``--verify``."""
    plan = [{"topic": TOPIC, "partition": p, "replicas": list(replicas)} for p, replicas in placement.items()]
    file = s.w.cluster.folder / "reassignment.json"
    file.write_text(json.dumps({"version": 1, "partitions": plan}), encoding="utf-8")
    done = await s.tool("kafka-reassign-partitions", "--reassignment-json-file", str(file), "--execute", *options)
    assert "Successfully started partition reassignment" in done.out, done
    return ["--reassignment-json-file", str(file), "--verify"]


async def verified(s: System, verify: Sequence[str], placement: Placement) -> bool:
    """Returns whether ``kafka-reassign-partitions --verify`` finds every partition complete."""
    done = await s.tool("kafka-reassign-partitions", *verify)
    complete = re.findall(
        rf"^Reassignment of partition {TOPIC}-(\d+) is (?:completed|complete)\.$", done.out, re.MULTILINE
    )
    assert len(complete) == len(placement), done.out
    return True


async def moving(s: System) -> int:
    return sum(assignment.moving for assignment in (await s.placed(TOPIC)).values())


async def all_move(s: System) -> bool:
    return await moving(s) == len(await s.placed(TOPIC))


async def arrived(s: System, placement: Placement) -> None:
    """Waits until the topic znode and the brokers' disks have the placement."""
    assert await s.placed(TOPIC) == {p: Assignment(tuple(replicas)) for p, replicas in placement.items()}
    wanted = {(broker, p) for p, replicas in placement.items() for broker in replicas}
    await eventually(lambda: s.w.hosting(TOPIC) == wanted, 60.0)


async def first_halves_deleted(s: System, partitions: Sequence[int]) -> None:
    """Deletes the first half of each log, as retention does."""
    spots = [TopicPartition(TOPIC, p) for p in partitions]
    async with AIOKafkaConsumer(bootstrap_servers=s.w.cluster.bootstrap) as consumer:
        ends = await consumer.end_offsets(spots)
        async with admin_client(s.w.cluster.bootstrap) as admin:
            await admin.delete_records({spot: RecordsToDelete(before_offset=end // 2) for spot, end in ends.items()})
        starts = await consumer.beginning_offsets(spots)
    assert {spot: end // 2 for spot, end in ends.items()} == dict(starts)
    assert min(starts.values()) > 0


async def bounce_and_kill(s: System) -> None:
    """Restarts every second broker, and kills the active daemon at the first of them."""
    active = await s.active()
    for broker in list(s.w.cluster.brokers)[::2]:
        assert await moving(s), "the brokers bounce while partitions move"
        stopping = asyncio.create_task(s.w.cluster.brokers[broker].stop())
        if active.running:
            await active.kill()
        await stopping
        await s.w.cluster.revive(broker)
    assert await s.active() is not active
    await active.boot("standby")


@pytest.mark.kafka(
    "kafkatest.reassign_partitions_test",
    "ReassignPartitionsCommandTest.testProduceAndConsumeWithReassignmentInProgress",
)
@pytest.mark.seed("S4-50", "S4-51", "S4-54", "S4-57", "S4-59", "S4-60", "S4-64", "S4-69", "S4-77")
@pytest.mark.parametrize("bounce", [False, True], ids=["undisturbed", "bounced"])
@pytest.mark.parametrize("later", [False, True], ids=["from-0", "from-later"])
async def test_twenty_reassigned_partitions_arrive_while_brokers_bounce(
    bounce: bool, later: bool, request: pytest.FixtureRequest
) -> None:
    """With ``min.insync.replicas=3`` the load stops where one replica does not return."""
    seed = int(os.environ.get("REGENT_SEED") or random.SystemRandom().randrange(10**6))
    print(f"REGENT_SEED={seed} repeats this run")
    chance = random.Random(seed)
    before, after = ({p: chance.sample(range(1, BROKERS + 1), 3) for p in range(PARTITIONS)} for _ in range(2))
    async with system(request.node.name, BROKERS, properties=SMALL_FETCHES) as s:
        await s.create(TOPIC, before, min_insync_replicas=3)
        await s.fill(TOPIC, range(PARTITIONS), FILLED_MB)
        if later:
            await first_halves_deleted(s, range(PARTITIONS))
        async with s.loaded({TOPIC: PARTITIONS}) as stage:
            with s.times.taken("the move, with the tool"):
                verify = await execute(s, after, *(["--throttle", str(SLOW_BYTES_PER_S)] if bounce else []))
                if bounce:
                    await bounce_and_kill(s)
                    await execute(s, after, "--additional", "--throttle", str(FAST_BYTES_PER_S))
                await eventually(lambda: verified(s, verify, after), 90.0)
            await arrived(s, after)
            await s.proven(stage)


@pytest.mark.kafka("kafkatest.throttling_test", "ReassignPartitionsCommandTest.testThrottledReassignment")
@pytest.mark.seed("S4-54", "S4-59", "S4-60", "S4-77")
async def test_a_throttle_stays_until_the_reassignment_is_verified(request: pytest.FixtureRequest) -> None:
    """Each new broker receives both partitions, and each leader sends its one twice."""
    before, after = {0: (1, 2), 1: (2, 1)}, {0: (3, 4), 1: (4, 3)}
    async with system(request.node.name, BROKERS) as s:
        await s.create(TOPIC, before)
        await s.fill(TOPIC, [0, 1], MOVED_MB)
        async with s.loaded({TOPIC: 2}) as stage:
            s.times.note("the throttled move, expected", 2 * MOVED_MB * 1e6 / THROTTLE_BYTES_PER_S)
            executing = asyncio.create_task(execute(s, after, "--throttle", str(THROTTLE_BYTES_PER_S)))
            await eventually(lambda: all_move(s), 60.0)
            with s.times.taken("the throttled move"):
                verify = await executing
                assert await moving(s) == 2, "it is over before it could be throttled"
                assert await throttles(s) == THROTTLED
                await eventually(lambda: at_rest(s), 90.0)
            assert await throttles(s) == THROTTLED
            await eventually(lambda: verified(s, verify, after), 30.0)
            await eventually(lambda: unthrottled(s), 30.0)
            await arrived(s, after)
            await s.proven(stage)


THROTTLED: Mapping[str, Mapping[str, str]] = {
    "topic": {
        "leader.replication.throttled.replicas": "0:1,0:2,1:1,1:2",
        "follower.replication.throttled.replicas": "0:3,0:4,1:3,1:4",
    },
    "brokers": {
        "leader.replication.throttled.rate": str(THROTTLE_BYTES_PER_S),
        "follower.replication.throttled.rate": str(THROTTLE_BYTES_PER_S),
    },
}


async def throttles(s: System) -> dict[str, dict[str, str]]:
    """Reads the configuration znodes of the topic and of all brokers, which must be equal."""
    topic = await configs(s, f"/config/topics/{TOPIC}")
    brokers = [await configs(s, f"/config/brokers/{broker}") for broker in s.w.cluster.brokers]
    assert all(found == brokers[0] for found in brokers)
    return {"topic": topic, "brokers": brokers[0]}


async def configs(s: System, path: str) -> dict[str, str]:
    node = await s.w.zk.get(path)
    found: dict[str, str] = json.loads(node.data or b"{}").get("config", {}) if node is not None else {}
    return found


async def at_rest(s: System) -> bool:
    return not await moving(s)


async def unthrottled(s: System) -> bool:
    return await throttles(s) == {"topic": {}, "brokers": {}}
