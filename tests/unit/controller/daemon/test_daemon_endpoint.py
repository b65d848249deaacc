"""Tests that a daemon queues once its admin endpoint is announced.

A term's first request then lists both listeners.
"""

from __future__ import annotations

import asyncio
import logging

import pytest

from brokers.security.attested import Seals
from controller.daemon.queue_admission import ENDPOINT_S_MAX
from controller.role.mode import Mode
from metadata_store.nodes.endpoint_znode import AdminEndpoint, announce
from testing.memory import MemoryZooKeeper
from tests.kit.controller_parts import DAEMON, SECRET, UPDATE_METADATA
from tests.kit.controller_world import World, world
from tests.kit.daemon_world import DaemonRun, daemon, epoch, idle_turns, now_s, regent_has_role
from tests.kit.polling import eventually
from tests.kit.virtual_time import in_exact_time

ENDPOINT = AdminEndpoint("CLIENT", "regent1", 9096)
WAITING_FOR_ENDPOINT = "once the admin endpoint beside it has started"
ENDPOINT_MISSING = "has not announced itself within 5 s"


async def announced(w: World, controller_id: int = DAEMON) -> MemoryZooKeeper:
    """Announces an admin endpoint from a session of its own; returns that session."""
    zk = MemoryZooKeeper(w.server)
    await zk.connect(1.0)
    assert (
        await announce(zk, controller_id, Seals(SECRET, "").announced(controller_id, zk.session_id, ENDPOINT)) is None
    )
    return zk


def listeners_in_live_lists(w: World, controller_id: int = DAEMON) -> list[list[str]]:
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
        assert str(term.controller.endpoint.found) == str(ENDPOINT)
