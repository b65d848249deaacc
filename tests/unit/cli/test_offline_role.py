"""Runs take-over and hand-back as commands on ZooKeeper, with and without a daemon in the queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cli import offline
from controller.http.models import Operation, OperationRequest
from controller.operator.view import View
from testing.memory import MemoryZooKeeper
from tests.kit.role_kit import DAEMON, DIGEST, Kafka, kafka


@asynccontextmanager
async def commanded(folder: Path, monkeypatch: pytest.MonkeyPatch, *, hold: bool = False) -> AsyncIterator[Kafka]:
    """Boots a cluster that the commands reach."""
    async with kafka(folder, hold=hold) as cluster:
        credentials = DIGEST if hold else None
        monkeypatch.setattr(offline, "connection", lambda _: MemoryZooKeeper(cluster.server, credentials=credentials))
        monkeypatch.setattr(offline, "dial_for", lambda _: cluster.dial)
        monkeypatch.setattr(offline, "server_version", cluster.release_of)
        yield cluster


async def takeover(cluster: Kafka, *, wait_s: float | None = None, dry_run: bool = False, **given: bool) -> Operation:
    request = OperationRequest(dry_run=dry_run, reason="a test")
    return await offline.takeover(cluster.settings, request, wait_s=wait_s, progress=lambda _: None, **given)


async def handback(cluster: Kafka) -> Operation:
    return await offline.handback(cluster.settings, OperationRequest(), wait_s=5.0, progress=lambda _: None)


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_take_over_without_a_daemon_is_refused_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    async with commanded(tmp_path, monkeypatch) as cluster:
        before = cluster.snapshot()
        refused = await takeover(cluster, wait_s=5.0, dry_run=dry_run)
        assert (refused.state, refused.message) == ("refused", "no daemon is alive that could take the role")
        assert "regent run" in refused.remedy
        assert "--without-daemon" in refused.remedy
        assert cluster.snapshot() == before


async def test_a_take_over_without_a_daemon_names_its_effect_and_can_be_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with commanded(tmp_path, monkeypatch) as cluster:
        holder = await cluster.controller()
        done = await takeover(cluster, wait_s=5.0, without_daemon=True)
        assert done.state == "done"
        assert "the next one that starts takes the role, even from a broker" in done.message
        assert "'regent handback --offline' undoes this" in done.message
        again = await takeover(cluster)
        assert (again.state, "/regent/role is regent already" in again.message) == ("refused", True)
        assert "handback --offline" in again.remedy
        assert (await handback(cluster)).state == "done"
        async with cluster.daemon():
            assert await cluster.controller() == holder


async def test_a_take_over_from_an_active_daemon_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with commanded(tmp_path, monkeypatch, hold=True) as cluster:
        async with cluster.daemon() as daemon:
            begun = await takeover(cluster)
            assert begun.state == "running"
            await cluster.serving(daemon)
            again = await takeover(cluster)
            assert (again.state, again.message) == ("done", f"daemon {DAEMON} holds the role already: nothing to do")
        assert await cluster.controller() == DAEMON, "held while it is dead"
        assert (await takeover(cluster)).state == "refused", "the daemon of the record is dead"


async def test_a_repeated_hand_back_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with commanded(tmp_path, monkeypatch, hold=True) as cluster:
        async with cluster.daemon() as daemon:
            await takeover(cluster)
            await cluster.serving(daemon)
        assert "/regent/role is brokers" in (await handback(cluster)).steps
        before = cluster.snapshot()
        broker = await cluster.controller()
        again = await handback(cluster)
        assert (again.state, again.message) == ("done", f"broker {broker} holds the role already: nothing to do")
        async with cluster.daemon() as standby:
            again = await View(standby, cluster.dial, cluster.release_of).handback(OperationRequest(), "uid 0")
            assert (again.state, again.message) == ("done", f"broker {broker} holds the role already: nothing to do")
        assert cluster.snapshot()["/regent/role"] == before["/regent/role"]


async def test_a_repeated_hand_back_lifts_a_lock_that_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one was interrupted after the flag: a role that brokers cannot keep is not handed back."""
    async with commanded(tmp_path, monkeypatch, hold=True) as cluster:
        async with cluster.daemon() as daemon:
            await takeover(cluster)
            await cluster.serving(daemon)
        await cluster.role().set_flag("brokers", "interrupted after this", "uid 0")
        assert await cluster.controller() == DAEMON
        assert (await handback(cluster)).state == "done"
        assert await cluster.controller() in cluster.brokers
