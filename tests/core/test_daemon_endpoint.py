"""A daemon and the admin endpoint that starts beside it: brokers list both from a term's first request on."""

from __future__ import annotations

import logging

import pytest

from brokers.security.attested import Seals
from controller.daemon.queue_admission import ENDPOINT_S_MAX
from controller.role.mode import Mode
from metadata_store.nodes.endpoint_znode import AdminEndpoint, announce
from testing.memory import MemoryZooKeeper
from tests.core.controller_parts import DAEMON, SECRET, UPDATE_METADATA
from tests.core.controller_world import World, world
from tests.core.daemon_world import DaemonRun, daemon, epoch, now_s, ruling
from tests.core.virtual_time import in_virtual_time
from tests.polling import eventually

AT = AdminEndpoint("CLIENT", "regent1", 9096)
WAITS = "once the admin endpoint beside it has started"
IN_VAIN = "has not announced itself within 5 s"


async def announced(w: World, controller_id: int = DAEMON) -> MemoryZooKeeper:
    zk = MemoryZooKeeper(w.server)
    await zk.connect(1.0)
    assert await announce(zk, controller_id, Seals(SECRET, "").announced(controller_id, zk.session_id, AT)) is None
    return zk


def listed(w: World, controller_id: int = DAEMON) -> list[list[str]]:
    """The daemon's listeners in each list that broker 2 was sent."""
    told = w.wires.heard(2, UPDATE_METADATA)
    found = [entry for request in told for entry in request.live_brokers if entry.id_ == controller_id]
    return [sorted(e.listener for e in entry.endpoints) for entry in found]


async def queues(d: DaemonRun) -> None:
    await eventually(lambda: d.daemon.role is not None and d.daemon.role.position_path is not None)


@in_virtual_time
async def test_it_takes_office_once_its_endpoint_is_there_and_lists_it_from_the_first_request_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world() as w, daemon(w, endpoint_beside=True) as d:
        await ruling(w)
        await d.says(WAITS)
        assert d.daemon.mode is Mode.STANDBY
        assert epoch(w) == 0
        await announced(w)
        await d.serving()
        assert IN_VAIN not in caplog.text
        await eventually(lambda: bool(listed(w)))
        assert {tuple(names) for names in listed(w)} == {("CLIENT", "INTERNAL")}


@in_virtual_time
async def test_an_endpoint_that_does_not_come_keeps_the_role_unclaimed_for_a_few_seconds_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with world() as w, daemon(w, endpoint_beside=True) as d:
        await ruling(w)
        await d.says(WAITS)
        waits_s = now_s()
        await eventually(lambda: IN_VAIN in caplog.text)
        assert now_s() - waits_s < ENDPOINT_S_MAX + 1.0
        await d.serving()
        w.server.expire(d.session)
        await eventually(lambda: epoch(w) == 2)
        await d.serving()
        assert caplog.text.count(WAITS) == 1, "it does not wait in vain again"


@pytest.mark.parametrize(("beside", "listed"), [(False, True), (True, False)])
@in_virtual_time
async def test_without_an_endpoint_that_is_to_be_listed_nothing_waits(
    beside: bool, listed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with world() as w, daemon(w, endpoint_beside=beside, listed=listed) as d:
        await ruling(w)
        await d.serving()
        assert WAITS not in caplog.text


@in_virtual_time
async def test_a_daemon_that_waits_for_its_endpoint_is_passed_by_another() -> None:
    async with world() as w, daemon(w, endpoint_beside=True) as first:
        await ruling(w)
        await first.says(WAITS)
        async with daemon(w, DAEMON + 1) as second:
            await second.serving()
            await announced(w)
            await queues(first)
            await first.says("another daemon is before us in the queue")


@in_virtual_time
async def test_a_daemon_that_waits_for_its_endpoint_stops_when_it_is_asked_to() -> None:
    async with world() as w, daemon(w, endpoint_beside=True) as d:
        await ruling(w)
        await d.says(WAITS)
        await d.stop(1.0)
        assert epoch(w) == 0


@in_virtual_time
async def test_a_connection_that_is_away_meanwhile_is_waited_for() -> None:
    async with world() as w, daemon(w, endpoint_beside=True) as d:
        await ruling(w)
        await d.says(WAITS)
        w.server.suspend(d.session)
        await announced(w)
        w.server.resume(d.session)
        term = await d.serving()
        assert str(term.controller.endpoint) == str(AT)
