"""Readiness and freshness of the operators' view: silent heartbeats, a lost connection, failing reads."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from unittest import mock

import pytest

from controller.http.documents import NotActive
from controller.kafka.metrics.values import ShownMode as GaugeMode
from controller.operator.present import CONFIGS_S
from controller.operator.view import View
from controller.process.clock import boottime_s
from controller.role.lease import Lease
from state_machines.model.min_isr import MinIsr
from tests.kit.deadlines import eventually
from tests.kit.kafka.role import DAEMON
from tests.kit.view_kit import governed


async def test_silent_heartbeats_suspend_a_daemon_in_every_mode(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, active, view):
        second = cluster.settings.controller.model_copy(update={"id": DAEMON + 1})
        async with cluster.daemon(controller=second) as standby:
            waiting = View(standby, cluster.dial, cluster.release_of)
            await eventually(lambda: waiting.readiness().ok)
            for daemon, seen in ((active, view), (standby, waiting)):
                assert daemon.lease is not None
                with mock.patch.object(daemon.lease, "silent_s", return_value=26.0):
                    ready, status = seen.readiness(), seen.whole.status()
                    assert (ready.ok, status.mode, seen.gauges().mode) == (False, "suspended", GaugeMode.SUSPENDED)
                    assert (ready.mode, seen.liveness().mode) == ("suspended", "suspended")
                    assert "has answered no heartbeat for 26 s, although the connection is up" in status.why


def test_silence_counts_from_the_sending_of_the_last_acknowledged_heartbeat() -> None:
    now = [100.0]
    lease = Lease(18.0, clock=lambda: now[0])
    now[0] = 103.0
    assert lease.silent_s() == 3.0
    lease.answered(102.0)
    now[0] = 110.0
    assert lease.silent_s() == 8.0


async def test_an_active_daemon_whose_lease_ran_out_is_not_ready(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, daemon, view):
        assert daemon.lease is not None
        with mock.patch.object(daemon.lease, "valid", return_value=False):
            ready = view.readiness()
        assert (ready.ok, ready.mode, ready.why.startswith("the lease ran out")) == (False, "active", True)
        assert view.readiness().ok


async def test_a_lost_connection_suspends_a_daemon_until_it_is_back(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, daemon, view):
        assert daemon.zk is not None
        cluster.server.suspend(daemon.zk.session_id)
        await eventually(lambda: not view.readiness().ok)
        assert view.readiness().why.startswith("the connection to ZooKeeper server memory:2181 is lost: no heartbeat")
        assert (view.whole.status().mode, view.gauges().mode) == ("suspended", GaugeMode.SUSPENDED)
        assert view.whole.stale() == view.readiness().why
        assert view.status_line() == f"suspended: {view.readiness().why}", "as systemd shows it"
        await view.refresh()
        assert view.whole.status().holder == DAEMON, "the last values stay"
        cluster.server.resume(daemon.zk.session_id)
        await eventually(lambda: view.readiness().ok)
        assert view.whole.stale() is None
        assert view.status_line().startswith("active: controller at epoch")


async def test_the_age_of_the_heartbeat_grows_without_a_session(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, daemon, view):
        await eventually(lambda: daemon.counters.heartbeats.count > 0)
        assert view.gauges().heartbeat_age_s < 60
        assert 0 < view.gauges().lease_remaining_part <= 1
        daemon.heartbeat_s -= 100
        assert 100 < view.gauges().heartbeat_age_s < 160
    daemon.heartbeat_s -= 1_000
    found = view.gauges()
    assert (found.heartbeat_age_s > 1_000, found.lease_remaining_part) == (True, 0.0), "there is no session any more"


async def test_min_isr_is_read_again_after_a_while_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with governed(tmp_path) as (_, _, view):
        reads = 0

        async def read(*_: object) -> MinIsr:
            nonlocal reads
            reads += 1
            return MinIsr(reads, {})

        monkeypatch.setattr("controller.operator.present.read_min_isr", read)
        for _ in range(3):
            await view.refresh()
        assert reads == 0, "the term has its values"
        now_s = asyncio.get_running_loop().time()
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s + CONFIGS_S)
        for _ in range(3):
            await view.refresh()
        monkeypatch.undo()
        assert (reads, view.status_reader.min_isr) == (1, MinIsr(1, {}))


async def test_a_failing_view_is_logged_once_and_keeps_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with governed(tmp_path) as (cluster, daemon, view):

        async def broken(_role: object) -> None:
            raise ValueError("an unexpected znode")

        monkeypatch.setattr("controller.operator.present.look", broken)
        for _ in range(3):
            await view.refresh()
        assert view.whole.status().role_flag == "regent", "the last value stays"
        assert [r.name for r in caplog.records if r.levelname == "ERROR"] == ["regent.view"]
        assert daemon.term is not None
        daemon.term.cluster.min_isr = known = MinIsr(2, {"orders": 1})
        fresh = View(daemon, cluster.dial, cluster.release_of)
        await fresh.refresh()
        assert fresh.whole.status().mode == "active", "also where the first read fails"
        assert daemon.term.cluster.min_isr == known, "nothing was read in its place"


async def test_a_term_that_stands_still_says_why_and_until_when_and_refuses_requests(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, daemon, view):
        assert daemon.zk is not None
        assert daemon.lease is not None
        assert daemon.term is not None
        term, epoch = daemon.term, daemon.term.claim.epoch
        cluster.server.suspend(daemon.zk.session_id)
        await eventually(lambda: not view.readiness().ok)
        assert re.search(
            r"; calls wait for the \d+ s that are left of the lease, and are refused", view.whole.status().why
        )
        assert view.procedures.locks() == []
        with mock.patch.object(daemon.lease, "_deadline", boottime_s() - 7.0):
            term._claim_monitor._watch_lease()  # its timer is seconds away
            ready, status, gauges = view.readiness(), view.whole.status(), view.gauges()
            assert (ready.ok, status.mode, gauges.mode) == (False, "suspended", GaugeMode.SUSPENDED)
            assert "; since the lease ran out 7 s ago nothing is written or sent, and calls are refused; " in status.why
            assert status.why.endswith(
                f"epoch {epoch} goes on once ZooKeeper answers, unless session or claim are lost by then"
            )
            assert status.health is not None
            assert status.health[0].startswith("the controller is suspended, and the rows below may be old: the conn")
            assert 7.0 <= gauges.standstill_s < 9.0
            with pytest.raises(NotActive, match=r"this daemon is suspended: .* once ZooKeeper answers"):
                await view.pauses.resume()
            with pytest.raises(NotActive, match="is suspended"):
                await view.procedures.abort(1)
            assert view.procedures.locks() == [], "what is in memory is shown"
        cluster.server.resume(daemon.zk.session_id)
        await eventually(lambda: view.readiness().ok)
        assert (daemon.term, view.gauges().standstill_s, view.whole.status().health) == (term, 0.0, [])
        assert (await view.pauses.resume()).paused is False
