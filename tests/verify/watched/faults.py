"""Causes real faults on one stage. Inside its block a fault lasts; at the end it is repaired."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from brokers.transport import TcpTransport
from brokers.wire.requests import EMPTY_BODY, Requests, live_list
from brokers.wire.versions import Ibp
from cli.demo.process import RegentProcess
from metadata_store.port import ANY_VERSION
from testing.znodes import create_topic, remove_by_hand
from tests.kit.cluster.shadow_watch import plant
from tests.kit.deadlines import eventually
from tests.verify.watched.file_faults import journal_disk_full, journal_topic_missing, snapshots_not_written
from tests.verify.watched.mending import gone, last_one_dies, other, revived, value
from tests.verify.watched.procedure_faults import (
    moved_off_dead_broker,
    moves_paused,
    plan_paused,
    plan_waits_for_broker,
    plan_waits_for_throttle,
    record_damaged,
)
from tests.verify.watched.prometheus import SCRAPE_S
from tests.verify.watched.stage import Watched

STALL_S: Final = 3.5
"""Above the alert's bound of 2.5 s, below the daemon's own, which would end it."""
CONTESTED_TIMES: Final = 5
FROZEN_S: Final = 45.0
FOREIGN, FOREIGN_EPOCH = 77, 100_000
BROKEN: Final = "/brokers/topics/broken"

Fault = Callable[[Watched], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def quiet(s: Watched) -> AsyncIterator[None]:
    """Restarts a broker cleanly, and creates and deletes a topic: no alert should fire."""
    await s.w.cluster.brokers[2].restart()
    await create_topic(s.w.zk, "passing", {0: (1, 2, 3)})
    await s.w.healed()
    await s.w.zk.create("/admin/delete_topics/passing", b"")
    await gone(s, "passing")
    yield


@asynccontextmanager
async def daemon_killed(s: Watched) -> AsyncIterator[None]:
    """Kills the active daemon; the standby takes over."""
    killed = await s.active()
    await s.daemons[killed].kill()
    await s.active()
    yield
    await s.daemons[killed].boot("standby")


@asynccontextmanager
async def broker_killed(s: Watched) -> AsyncIterator[None]:
    """Kills one of three brokers."""
    await s.w.cluster.brokers[2].kill()
    await s.w.leads_nothing(2)
    yield
    await revived(s, 2)


@asynccontextmanager
async def last_replica_killed(s: Watched) -> AsyncIterator[None]:
    """Kills the broker with the only replica of a topic."""
    await create_topic(s.w.zk, "single", {0: (1,)})
    await s.w.healed()
    await s.w.cluster.brokers[1].kill()
    await value(s, "kafka_controller_kafkacontroller_offlinepartitionscount", 1)
    yield
    await revived(s, 1)
    await s.w.zk.create("/admin/delete_topics/single", b"")
    await gone(s, "single")


@asynccontextmanager
async def two_brokers_killed(s: Watched) -> AsyncIterator[None]:
    """Kills two of three brokers, where two replicas must be in sync: producers with acks=all wait."""
    await asyncio.gather(*(s.w.cluster.brokers[broker].kill() for broker in (1, 2)))
    await value(s, "regent_under_min_isr_partitions", 1)
    await value(s, 'sum(ALERTS{alertname="RegentUnderMinIsr", alertstate="firing"})', 1, 180)
    yield
    await revived(s, 1, 2)


@asynccontextmanager
async def broker_frozen(s: Watched) -> AsyncIterator[None]:
    """Freezes a broker with a long session: it stays registered and reads no request."""
    s.w.cluster.brokers[3].pause()
    await create_topic(s.w.zk, "unheard", {0: (1, 2)})
    await value(s, "max(regent_broker_propagation_age_seconds)", 40, 90)
    yield
    s.w.cluster.brokers[3].resume()
    await s.w.healed(180)
    await s.w.zk.create("/admin/delete_topics/unheard", b"")
    await gone(s, "unheard")


@asynccontextmanager
async def zookeeper_frozen(s: Watched) -> AsyncIterator[None]:
    """Freezes the only ZooKeeper server."""
    s.w.cluster.zookeeper.pause()
    await asyncio.sleep(FROZEN_S)
    yield
    s.w.cluster.zookeeper.resume()
    await s.w.reconnected()
    await s.active()
    await s.w.healed(180)


@asynccontextmanager
async def daemon_frozen(s: Watched) -> AsyncIterator[None]:
    """Freezes the active daemon for a moment, as a machine that swaps does."""
    active = s.daemons[await s.active()]
    active.pause()
    await asyncio.sleep(STALL_S)
    active.resume()
    await s.active()
    yield


@asynccontextmanager
async def replica_in_sync_lost(s: Watched) -> AsyncIterator[None]:
    """Kills the last replica in sync of a topic that permits unclean elections; the other one returns."""
    await create_topic(s.w.zk, "risky", {0: (1, 2)}, None, {"unclean.leader.election.enable": "true"})
    await last_one_dies(s, "risky")
    await value(s, "sum(kafka_controller_controllerstats_uncleanleaderelections_total)", 1)
    await revived(s, 1)
    yield
    await s.w.zk.create("/admin/delete_topics/risky", b"")
    await gone(s, "risky")


@asynccontextmanager
async def topic_scribbled_on(s: Watched) -> AsyncIterator[None]:
    """Writes a malformed topic znode."""
    await s.w.zk.create(BROKEN, b"{")
    await value(s, "max(regent_malformed_znodes)", 1)
    yield
    await s.w.zk.delete(BROKEN, ANY_VERSION)


@asynccontextmanager
async def partitions_refused(s: Watched) -> AsyncIterator[None]:
    """Removes a topic's znodes by hand and creates the topic again: brokers have logs with another topic id."""
    await create_topic(s.w.zk, "again", {0: (1, 2, 3)})
    await eventually(lambda: s.w.hosting("again") == {(1, 0), (2, 0), (3, 0)}, 30)
    await remove_by_hand(s.w.zk, "again")
    await create_topic(s.w.zk, "again", {0: (1, 2, 3)})
    await value(s, "sum(regent_broker_refused_partitions)", 3)
    yield
    await s.w.zk.create("/admin/delete_topics/again", b"")
    await gone(s, "again")


@asynccontextmanager
async def endpoint_frozen(s: Watched) -> AsyncIterator[None]:
    """Freezes the admin endpoint of the active daemon: its announcement ends with its session."""
    active = await s.active()
    s.endpoints[active].pause()
    await value(s, f'1 - regent_admin_endpoint_shown{{instance="{active}"}}', 1)
    yield
    s.endpoints[active].resume()
    await value(s, f'regent_admin_endpoint_shown{{instance="{active}"}}', 1)


@asynccontextmanager
async def older_broker(s: Watched) -> AsyncIterator[None]:
    """Restarts a broker with an older inter.broker.protocol.version than that of the daemon."""
    broker = s.w.cluster.brokers[2]
    config = broker.folder / "server.properties"
    before = await asyncio.to_thread(config.read_text)
    await broker.stop()
    await asyncio.to_thread(config.write_text, before + "\ninter.broker.protocol.version=3.8-IV0\n")
    await revived(s, 2)
    await value(s, "max(regent_ibp_mismatch_brokers)", 1)
    yield
    await broker.stop()
    await asyncio.to_thread(config.write_text, before)
    await revived(s, 2)


@asynccontextmanager
async def role_contested(s: Watched) -> AsyncIterator[None]:
    """Deletes /controller again and again."""
    for _ in range(CONTESTED_TIMES):
        epoch = await s.w.epoch()
        await s.w.zk.delete("/controller", ANY_VERSION)

        async def again(before: int = epoch) -> bool:
            return await s.w.epoch() > before and bool(await s.active())

        await eventually(again, 60)
        await asyncio.sleep(SCRAPE_S)
    yield


@asynccontextmanager
async def foreign_controller(s: Watched) -> AsyncIterator[None]:
    """Sends a request of another controller with a higher epoch to a broker."""
    brokers = (await s.w.store.load_brokers()).brokers
    requests = Requests(Ibp.parse("3.9-IV0"), FOREIGN, FOREIGN_EPOCH)
    frame = requests.update_metadata(1, brokers[2].epoch, EMPTY_BODY, live_list(brokers.values()))
    connection = await TcpTransport().connect("127.0.0.1", s.w.cluster.brokers[2].internal_port, lambda: None)
    await connection.exchange(frame)
    connection.close()
    await create_topic(s.w.zk, "elsewhere", {0: (1, 3)})
    await value(s, "max(regent_outranking_brokers)", 1)
    yield
    await s.w.cluster.brokers[2].restart()
    await value(s, "1 - max(regent_outranking_brokers)", 1)
    await s.w.zk.create("/admin/delete_topics/elsewhere", b"")
    await gone(s, "elsewhere")


@asynccontextmanager
async def twin_started(s: Watched) -> AsyncIterator[None]:
    """Starts a standby with the id of the active daemon."""
    active = await s.active()
    place = other(s, active)
    former = s.daemons[place]
    await s.replace(place, s.daemon(place, controller_id=s.daemons[active].id), "blocked")
    yield
    await s.replace(place, former, "standby")
    await s.at(place)


@asynccontextmanager
async def only_a_shadow_left(s: Watched) -> AsyncIterator[None]:
    """Kills the active daemon while a shadow runs in place of the standby: a broker takes the role."""
    active = await s.active()
    place = other(s, active)
    former = s.daemons[place]
    await s.replace(place, _shadow(s, place), "shadow")
    await s.daemons[active].kill()
    await s.w.broker_controls()
    yield
    await s.replace(place, former, None)
    await s.at(place)
    await s.daemons[active].boot(None)
    await s.active()


@asynccontextmanager
async def leadership_written_by_hand(s: Watched) -> AsyncIterator[None]:
    """Does the same, and writes a leader that the shadow would not have elected."""
    async with only_a_shadow_left(s):
        await create_topic(s.w.zk, "disputed", {0: (1, 2)})
        await s.w.healed()
        await plant(s.w, "disputed", 0, leader=2, isr=(1, 2), epochs=1)
        await value(s, "max(regent_shadow_differences_total)", 1, 120)
        yield


def _shadow(s: Watched, place: str) -> RegentProcess:
    return s.daemon(place, flags=("--shadow",), controller_id=1_000_100 + len(s.w.daemons))


FAULTS: Final[tuple[Fault, ...]] = (
    quiet,
    broker_frozen,
    broker_killed,
    last_replica_killed,
    two_brokers_killed,
    replica_in_sync_lost,
    daemon_killed,
    daemon_frozen,
    zookeeper_frozen,
    topic_scribbled_on,
    partitions_refused,
    endpoint_frozen,
    older_broker,
    role_contested,
    foreign_controller,
    twin_started,
    journal_disk_full,
    journal_topic_missing,
    snapshots_not_written,
    only_a_shadow_left,
    leadership_written_by_hand,
    moves_paused,
    plan_paused,
    record_damaged,
    moved_off_dead_broker,
    plan_waits_for_broker,
    plan_waits_for_throttle,
)
