"""Kafka's replication tests: the leader, or the controller, is stopped or killed again and again under load."""

from __future__ import annotations

import pytest

from state_machines.model.types import Leadership
from tests.kit.cluster.scene import everything_read
from tests.kit.deadlines import eventually
from tests.verify.system import System, system

TOPIC = "test_topic"
PARTITIONS = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
BOUNCES = 3


async def leader_goes(s: System, how: str) -> int:
    """Stops or kills the leader of partition 0; returns its id once every partition has another leader."""
    leader, _ = await s.isr(TOPIC)
    broker = s.w.cluster.brokers[leader]
    with s.times.taken(f"{how} end of a leader to the next one"):
        if how == "clean":
            stopped = await broker.shut_down()
            assert stopped.first_try, broker.log_tail()
        else:
            await broker.kill()
        await s.w.leads_nothing(leader)
    return leader


@pytest.mark.kafka("kafkatest.replication_test")
@pytest.mark.seed("S4-44", "S4-45", "S4-46", "S4-47", "S4-48", "S4-72", "S4-73", "S4-74", "S4-77")
@pytest.mark.parametrize("how", ["clean", "hard"])
async def test_no_record_is_lost_when_leaders_bounce_and_one_stays_down(
    how: str, request: pytest.FixtureRequest
) -> None:
    async with system(request.node.name) as s:
        await s.create(TOPIC, PARTITIONS)
        async with s.loaded({TOPIC: len(PARTITIONS)}) as stage:
            for _ in range(BOUNCES):
                gone = await leader_goes(s, how)
                await stage.flows()
                await s.w.cluster.revive(gone)
                await eventually(lambda b=gone: in_sync(s, b), 60.0)  # type: ignore[misc]
            gone = await leader_goes(s, how)
            await stage.flows()
            await everything_read(stage.load, stage.reader)
            await s.w.cluster.revive(gone)
            await s.proven(stage)


async def in_sync(s: System, broker: int) -> bool:
    """Returns whether the broker is in every ISR, so that another one may go."""
    states = [state for (topic, _), (_, state) in (await s.w.states()).items() if topic == TOPIC]
    return all(isinstance(state, Leadership) and broker in state.isr for state in states)


@pytest.mark.kafka("kafkatest.replication_test")
@pytest.mark.seed("S4-65", "S4-66", "S4-67", "S4-68", "S4-77")
@pytest.mark.parametrize("how", ["clean", "hard"])
async def test_no_record_is_lost_when_controllers_bounce_and_one_stays_down(
    how: str, request: pytest.FixtureRequest
) -> None:
    """A broker goes together with the active daemon, so that a controller is needed at once."""
    async with system(request.node.name) as s:
        await s.create(TOPIC, PARTITIONS)
        async with s.loaded({TOPIC: len(PARTITIONS)}) as stage:
            for number in range(BOUNCES):
                epoch, active = await s.w.epoch(), await s.active()
                broker = s.w.cluster.brokers[number % 3 + 1]
                with s.times.taken(f"{how} end of the controller and of a broker to new leaders"):
                    if how == "clean":
                        await active.stop()
                        await broker.stop()
                    else:
                        await active.kill()
                        await broker.kill()
                    assert await s.active() is not active
                    await s.w.leads_nothing(broker.id)
                assert await s.w.epoch() > epoch
                await s.w.cluster.revive(broker.id)
                await active.boot("standby")
                await stage.flows()
                await s.w.healed()
            gone = await s.active()
            await (gone.stop() if how == "clean" else gone.kill())
            assert await s.active() is not gone
            await s.proven(stage)


@pytest.mark.kafka("kafkatest.replication_replica_failure_test")
@pytest.mark.seed("S4-77")
async def test_a_follower_that_no_longer_fetches_leaves_the_isr(request: pytest.FixtureRequest) -> None:
    """The follower stays registered, so its leader requests both changes of the ISR."""
    silent = {"zookeeper.session.timeout.ms": 20_000, "replica.lag.time.max.ms": 4_000}
    async with system(request.node.name, properties=silent) as s:
        await s.create(TOPIC, {0: (1, 2, 3)}, min_insync_replicas=2)
        async with s.loaded({TOPIC: 1}) as stage:
            frozen = s.w.cluster.brokers[3]
            assert await s.isr(TOPIC) == (1, {1, 2, 3})
            frozen.pause()
            with s.times.taken("end of a follower's fetches to the ISR without it"):
                await eventually(lambda: is_so(s, {1, 2}), 20.0)
            assert 3 in await s.w.cluster.registered()
            await stage.flows()
            await everything_read(stage.load, stage.reader)
            frozen.resume()
            with s.times.taken("first fetch of the follower to the ISR with it"):
                await eventually(lambda: is_so(s, {1, 2, 3}), 60.0)
            await s.proven(stage)


async def is_so(s: System, isr: set[int]) -> bool:
    return await s.isr(TOPIC) == (1, isr)
