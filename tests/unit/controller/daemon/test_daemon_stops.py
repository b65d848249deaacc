"""Stops daemons in every phase, with the role free; a daemon queues once its admin endpoint is announced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from brokers.security.shared_secret import Seals
from controller.daemon.admission import ENDPOINT_S_MAX
from controller.daemon.state import Mode
from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.nodes.endpoint_znode import AdminEndpoint, announce
from testing.memory import MemoryZooKeeper
from tests.kit.deadlines import eventually, in_exact_time
from tests.kit.kafka.daemons import (
    DaemonRun,
    daemon,
    epoch,
    failing,
    holder,
    idle_turns,
    live_sessions,
    now_s,
    regent_has_role,
)
from tests.kit.kafka.parts import DAEMON, SECRET, UPDATE_METADATA
from tests.kit.kafka.world import KafkaWorld, in_world, world


class Hangs(MemoryZooKeeper):
    """Never completes a connection; counts its closes."""

    closes = 0

    async def connect(self, timeout_s: float) -> None:
        await asyncio.sleep(3_600)

    async def close(self) -> None:
        self.closes += 1
        await super().close()


async def before_connected(_: KafkaWorld, d: DaemonRun) -> None:
    await asyncio.sleep(0)


async def in_standby(w: KafkaWorld, d: DaemonRun) -> None:
    await w.give_role_to("brokers")
    await d.reason_contains("is brokers")


async def suspended_in_standby(w: KafkaWorld, d: DaemonRun) -> None:
    await in_standby(w, d)
    w.server.suspend(d.session)
    await d.reason_contains("suspended")


async def serving(w: KafkaWorld, d: DaemonRun) -> None:
    await regent_has_role(w)
    await d.serving()


async def suspended_in_term(w: KafkaWorld, d: DaemonRun) -> None:
    await serving(w, d)
    w.server.suspend(d.session)
    await asyncio.sleep(0.1)


async def in_a_commit(w: KafkaWorld, d: DaemonRun) -> None:
    await serving(w, d)
    d.script.at("t/partitions/0/state", lambda: asyncio.sleep(1.0))
    w.die(1)
    await eventually(lambda: d.daemon.term is not None and d.daemon.term.handling)


def at_write_of(path: str) -> Callable[[KafkaWorld, DaemonRun], Awaitable[None]]:
    """Returns a phase: a write of the start is in progress."""

    async def until(w: KafkaWorld, d: DaemonRun) -> None:
        reached = asyncio.Event()

        async def wait() -> None:
            reached.set()
            await asyncio.sleep(1.0)

        d.script.at(path, wait)
        await regent_has_role(w)
        await asyncio.wait_for(reached.wait(), 10.0)

    return until


async def in_an_error_pause(w: KafkaWorld, d: DaemonRun) -> None:
    with failing(5):
        await regent_has_role(w)
        await d.reason_contains("in a row")


PHASES = {
    "connecting": before_connected,
    "standby": in_standby,
    "suspended standby": suspended_in_standby,
    "queueing": at_write_of(f"{own.LOCKS}/lock-"),
    "claiming": at_write_of(paths.CONTROLLER_EPOCH),
    "taking office": at_write_of(paths.FEATURE),
    "active": serving,
    "suspended": suspended_in_term,
    "committing": in_a_commit,
    "after errors": in_an_error_pause,
}


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("phase", PHASES)
@in_world()
async def test_a_stop_in_any_phase_is_quick_clean_and_frees_the_role(w: KafkaWorld, phase: str, hold: bool) -> None:
    before = asyncio.all_tasks()
    async with daemon(w, hold=hold) as d:
        await PHASES[phase](w, d)
        begun_s = now_s()
        await d.stop(within_s=8.0)
        assert now_s() - begun_s < (0.5 if phase in ("suspended", "standby", "suspended standby") else 6.0)
        assert d.daemon.mode is Mode.STOPPING
        kept = hold and phase in ("active", "suspended", "committing", "taking office", "claiming")
        assert holder(w) == (0 if kept else None)
        assert not (await w.operator.children(own.LOCKS) or ([],))[0], "the queue position is gone"
        assert live_sessions(w).isdisjoint(zk.session_id for zk in d.sessions)
        assert asyncio.all_tasks() == before
        assert w.wires.open == 0


@in_exact_time
async def test_a_stop_while_a_write_hangs_ends_after_the_drain_time_out() -> None:
    async with world() as w, daemon(w) as d:
        await serving(w, d)
        d.script.at("t/partitions/0/state", lambda: asyncio.sleep(3_600.0))
        w.die(1)
        await asyncio.sleep(0.1)
        begun_s = now_s()
        await d.stop()
        assert now_s() - begun_s == pytest.approx(d.daemon.settings.controller.drain_timeout_ms / 1000, abs=0.2)


@in_exact_time
async def test_a_stop_while_zookeeper_does_not_respond_is_quick() -> None:
    async with world() as w, daemon(w) as d:
        d.client = Hangs
        await asyncio.sleep(2.0)
        assert d.daemon.mode is Mode.CONNECTING
        begun_s = now_s()
        await d.stop()
        assert now_s() - begun_s < 3.0
        assert [zk.closes for zk in d.sessions if isinstance(zk, Hangs)] == [1]


@in_exact_time
async def test_another_daemon_serves_at_once_after_a_stop() -> None:
    async with world() as w, daemon(w) as first:
        await regent_has_role(w)
        await first.serving()
        async with daemon(w, DAEMON + 1) as second:
            await second.reason_contains("another daemon is before us")
            begun_s = now_s()
            await first.stop()
            await second.serving()
            assert now_s() - begun_s < 2.0


@in_exact_time
async def test_twenty_terms_leave_nothing_behind() -> None:
    async with world() as w, daemon(w) as d:
        await regent_has_role(w)
        tasks = armed = 0
        for number in range(20):
            term = await d.serving()
            await term.channels.quiesced(5.0)
            await asyncio.sleep(1.0)
            found = len(asyncio.all_tasks()), len(w.server.watches)
            if number >= 2:
                assert found == (tasks, armed)
            tasks, armed = found
            if number % 2:
                w.server.expire(d.session)
            else:
                term.gate.end("a test")
            await term.finished.wait()
        await d.serving()
        assert len(live_sessions(w)) == 5, "three brokers, the operator, the daemon"


ENDPOINT = AdminEndpoint("CLIENT", "regent1", 9096)
WAITING_FOR_ENDPOINT = "once the admin endpoint beside it has started"
ENDPOINT_MISSING = "has not announced itself within 5 s"


async def announced(w: KafkaWorld, controller_id: int = DAEMON) -> MemoryZooKeeper:
    """Announces an admin endpoint from a session of its own; returns that session."""
    zk = MemoryZooKeeper(w.server)
    await zk.connect(1.0)
    assert (
        await announce(zk, controller_id, Seals(SECRET, "").announced(controller_id, zk.session_id, ENDPOINT)) is None
    )
    return zk


def listeners_in_live_lists(w: KafkaWorld, controller_id: int = DAEMON) -> list[list[str]]:
    """Returns the daemon's listeners in each list of live brokers that broker 2 received."""
    live = [entry for request in w.wires.requests(2, UPDATE_METADATA) for entry in request.live_brokers]
    return [sorted(e.listener for e in entry.endpoints) for entry in live if entry.id_ == controller_id]


async def queued(d: DaemonRun) -> None:
    await eventually(lambda: d.daemon.role is not None and d.daemon.role.position_path is not None)


@in_exact_time
async def test_a_daemon_claims_once_its_endpoint_is_announced_and_lists_it_from_the_first_request_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world() as w, daemon(w, endpoint_beside=True) as d:
        await regent_has_role(w)
        await d.reason_contains(WAITING_FOR_ENDPOINT)
        assert d.daemon.mode is Mode.STANDBY
        assert epoch(w) == 0
        await announced(w)
        await d.serving()
        assert ENDPOINT_MISSING not in caplog.text
        await eventually(lambda: bool(listeners_in_live_lists(w)))
        assert {tuple(names) for names in listeners_in_live_lists(w)} == {("CLIENT", "INTERNAL")}


@in_exact_time
async def test_a_missing_endpoint_delays_only_the_first_claim_and_by_five_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with world() as w, daemon(w, endpoint_beside=True) as d:
        await regent_has_role(w)
        await d.reason_contains(WAITING_FOR_ENDPOINT)
        begun_s, turns_per_s = now_s(), idle_turns()
        w.server.reconnect(d.session)
        await asyncio.sleep(4.0)
        assert turns_per_s() < 50  # the wait must not poll
        await eventually(lambda: ENDPOINT_MISSING in caplog.text)
        assert now_s() - begun_s == pytest.approx(ENDPOINT_S_MAX, abs=0.2)
        await d.serving()
        w.server.expire(d.session)
        await eventually(lambda: epoch(w) == 2)
        await d.serving()
        assert caplog.text.count(WAITING_FOR_ENDPOINT) == 1


@pytest.mark.parametrize(("beside", "listed"), [(False, True), (True, False)])
@in_exact_time
async def test_without_a_listed_endpoint_beside_it_a_daemon_claims_at_once(
    beside: bool, listed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with world() as w, daemon(w, endpoint_beside=beside, listed=listed) as d:
        await regent_has_role(w)
        await d.serving()
        assert WAITING_FOR_ENDPOINT not in caplog.text


@in_exact_time
async def test_another_daemon_claims_while_one_waits_for_its_endpoint() -> None:
    async with world() as w, daemon(w, endpoint_beside=True) as first:
        await regent_has_role(w)
        await first.reason_contains(WAITING_FOR_ENDPOINT)
        async with daemon(w, DAEMON + 1) as second:
            await second.serving()
            await announced(w)
            await queued(first)
            await first.reason_contains("another daemon is before us in the queue")


@in_exact_time
async def test_a_daemon_that_waits_for_its_endpoint_stops_at_once() -> None:
    async with world() as w, daemon(w, endpoint_beside=True) as d:
        await regent_has_role(w)
        await d.reason_contains(WAITING_FOR_ENDPOINT)
        await d.stop(1.0)
        assert epoch(w) == 0


@in_exact_time
async def test_an_endpoint_announced_during_a_lost_connection_is_found_after_it() -> None:
    async with world() as w, daemon(w, endpoint_beside=True) as d:
        await regent_has_role(w)
        await d.reason_contains(WAITING_FOR_ENDPOINT)
        w.server.suspend(d.session)
        await announced(w)
        w.server.resume(d.session)
        term = await d.serving()
        assert str(term.parts.endpoint.found) == str(ENDPOINT)
