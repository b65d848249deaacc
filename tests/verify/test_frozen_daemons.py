"""A daemon is frozen (SIGSTOP) and wakes when another one holds the role."""

from __future__ import annotations

import re
import sys
import uuid
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from cli.demo.process import RegentProcess
from controller.process.watchdogs import STALLED_EXIT
from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.codecs.cluster import encode_broker
from metadata_store.port import ANY_VERSION
from state_machines.model.types import Broker, Endpoint
from testing.embedded.kafka import CONTROLLER_SOCKET_TIMEOUT_MS, EmbeddedBroker
from testing.znodes import create_topic
from tests.kit.cluster import bare_daemon
from tests.kit.cluster.scene import Scene, agreed, leaders, scene
from tests.kit.deadlines import eventually

BARE = (sys.executable, str(Path(bare_daemon.__file__)))
SESSION_S = 6
ISR_WAIT_S_MAX = CONTROLLER_SOCKET_TIMEOUT_MS / 1_000 + 1
ISR_LINE = (
    r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) .*"
    r"\[Partition (\S+) broker=\d+\] (Shrinking ISR|Expanding ISR|ISR updated)"
)


async def holds(stage: Scene, daemon: RegentProcess) -> bool:
    return await stage.w.controller() == daemon.id and await daemon.is_in("active")


@pytest.mark.seed("S4-77", "S4-86")
@pytest.mark.parametrize("on_absence", ["brokers", "hold"])
async def test_a_daemon_that_wakes_after_its_session_writes_nothing_and_ends(on_absence: str) -> None:
    async with scene() as stage:
        settings = stage.w.hold() | {"controller.on_absence": on_absence}
        await stage.restart_with(settings)
        second = await stage.standby(settings)
        epoch = await stage.active()
        stage.daemon.pause()
        await eventually(lambda: holds(stage, second), 30.0)
        taken = await stage.w.epoch()
        assert taken > epoch
        await stage.flows()
        await stage.w.healed()
        before, said = await stage.w.states(), len(stage.daemon.log_text())
        stage.daemon.resume()
        assert await stage.daemon.ended(20.0)
        assert stage.daemon.exit_code == STALLED_EXIT
        last_words = stage.daemon.log_text()[said:]
        assert "the event loop stood still" in last_words
        assert "decided" not in last_words
        assert "regent.controller" not in last_words
        assert (await stage.w.epoch(), await stage.w.controller()) == (taken, second.id)
        assert await stage.w.states() == before
        await agreed(second)
        await stage.daemon.boot("standby")
        await second.kill()
        await stage.active()
        await stage.proven()


@pytest.mark.seed("S4-77", "S4-86")
async def test_without_guard_and_lease_a_displaced_daemon_is_fenced_and_no_broker_obeys_it() -> None:
    async with scene(command=BARE) as stage:
        patient = {"zookeeper.session_timeout_ms": 20_000, "controller.loop_stall_ms_max": 9_000}
        zombie, second = stage.daemon, await stage.standby(patient)
        await displaced(stage, zombie, second)
        topic, epoch = f"fenced-{uuid.uuid4().hex[:6]}", await stage.w.epoch()
        second.pause()  # or it would be faster than the zombie, which would find nothing left to write
        await create_topic(stage.w.zk, topic, {0: [1, 2, 3]})
        moved = rf"resigned from epoch {epoch - 1}: another controller was elected: /controller_epoch has no longer"
        await eventually(lambda: zombie.log_has(moved), 8.0)
        [untouched] = await stage.w.store.load_states([(topic, 0)])
        assert untouched is None
        second.resume()
        await eventually(lambda: zombie.is_in("standby"), 20.0)
        assert (await stage.w.epoch(), await stage.w.controller()) == (epoch, second.id)
        await stage.w.healed()
        written = {state.controller_epoch for _, state in (await stage.w.states()).values() if state is not None}
        assert written <= {epoch - 1, epoch}
        await second.stop()
        await stage.active()
        await second.boot("standby")

        await displaced(stage, zombie, second)
        epoch, before = await stage.w.epoch(), await stage.w.states()
        absent = Broker(77, 0, (Endpoint("INTERNAL", "127.0.0.1", 1), Endpoint("CLIENT", "127.0.0.1", 1)))
        registered = await stage.w.zk.create(paths.broker(77), encode_broker(absent, timestamp_ms=0), ephemeral=True)
        await eventually(lambda: zombie.log_has(r"broker [123] answers STALE_CONTROLLER_EPOCH: it has seen"), 20.0)
        await eventually(lambda: zombie.log_has(rf"resigned from epoch {epoch - 1}: another controller"), 20.0)
        refused = rf"from an old controller {zombie.id} with epoch {epoch - 1}"
        assert any(broker.log_has(refused) for broker in stage.w.cluster.brokers.values())
        await stage.w.zk.delete(registered.path, ANY_VERSION)
        await agreed(second)
        assert await stage.w.states() == before
        await stage.flows()


async def displaced(stage: Scene, zombie: RegentProcess, second: RegentProcess) -> None:
    """Freezes ``zombie``, whose session stays alive, until ``second`` holds the role."""
    zombie.pause()
    listed = await stage.w.zk.children(own.LOCKS)
    assert listed is not None
    for name in listed[0]:
        node = await stage.w.zk.get(f"{own.LOCKS}/{name}")
        process = own.decode_process(node.data if node is not None else None)
        if process is not None and process.id == zombie.id:
            await stage.w.zk.delete(f"{own.LOCKS}/{name}", ANY_VERSION)
    await eventually(lambda: holds(stage, second), SESSION_S - 2)
    zombie.resume()
    await eventually(lambda: zombie.is_in("active"), 5.0)


@pytest.mark.seed("S4-77", "S4-80")
@pytest.mark.parametrize("fault", ["freeze", "kill"])
async def test_isr_changes_succeed_within_the_brokers_timeout_after_a_daemon_froze_or_died(fault: str) -> None:
    """The session of the follower outlives the test, so that only its leaders can shrink the ISR."""
    slow_to_die = {"zookeeper.session.timeout.ms": 20_000, "replica.lag.time.max.ms": 2_000}
    async with scene(properties=slow_to_die) as stage:
        second = await stage.standby()
        # Brokers may still hold a connection to the broker that was the controller before: that one stays awake.
        follower = next(b for i, b in stage.w.cluster.brokers.items() if not stage.daemon.log_has(rf"by broker {i}\b"))
        wishes = sum(leader != follower.id for leader in leaders(await stage.w.states()).values())
        if fault == "freeze":
            stage.daemon.pause()
        else:
            await stage.daemon.kill()
        follower.pause()
        await eventually(lambda: _shrunk(stage, follower.id), 40.0)
        assert await stage.w.controller() == second.id
        follower.resume()
        stage.daemon.resume()
        await stage.w.healed()
        await stage.flows()
        waits = [wait for broker in stage.w.cluster.brokers.values() for wait in isr_waits(broker)]
        assert len(waits) >= wishes
        assert max(waits) <= ISR_WAIT_S_MAX, waits
        await agreed(second)


async def _shrunk(stage: Scene, follower: int) -> bool:
    """Returns whether every partition with another leader has dropped the follower from its ISR."""
    states = [state for _, state in (await stage.w.states()).values() if state is not None]
    return all(follower not in state.isr for state in states if state.leader != follower)


def isr_waits(broker: EmbeddedBroker) -> list[float]:
    """Reads the seconds from each request for an ISR change to its response from the broker's log."""
    lines = re.findall(ISR_LINE, broker.log_text(), re.MULTILINE)
    by_partition: dict[str, list[tuple[datetime, str]]] = {}
    for stamp, partition, what in lines:
        by_partition.setdefault(partition, []).append((datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f"), what))
    return [
        (answered - asked).total_seconds()
        for events in by_partition.values()
        for (asked, wish), (answered, done) in pairwise(events)
        if wish != "ISR updated" and done == "ISR updated"
    ]
