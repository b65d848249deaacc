"""Stops daemons in every phase: quickly, cleanly, with the role free; ended terms leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from controller.role import own_znodes as own
from controller.role.mode import Mode
from metadata_store import paths
from testing.memory import MemoryZooKeeper
from tests.kit.controller_parts import DAEMON
from tests.kit.controller_world import World, in_world, world
from tests.kit.daemon_world import DaemonRun, daemon, failing, holder, live_sessions, now_s, regent_has_role
from tests.kit.polling import eventually
from tests.kit.virtual_time import in_exact_time


class Hangs(MemoryZooKeeper):
    """Never completes a connection; counts its closes."""

    closes = 0

    async def connect(self, timeout_s: float) -> None:
        await asyncio.sleep(3_600)

    async def close(self) -> None:
        self.closes += 1
        await super().close()


async def before_connected(_: World, d: DaemonRun) -> None:
    await asyncio.sleep(0)


async def in_standby(w: World, d: DaemonRun) -> None:
    await w.give_role_to("brokers")
    await d.reason_contains("is brokers")


async def suspended_in_standby(w: World, d: DaemonRun) -> None:
    await in_standby(w, d)
    w.server.suspend(d.session)
    await d.reason_contains("suspended")


async def serving(w: World, d: DaemonRun) -> None:
    await regent_has_role(w)
    await d.serving()


async def suspended_in_term(w: World, d: DaemonRun) -> None:
    await serving(w, d)
    w.server.suspend(d.session)
    await asyncio.sleep(0.1)


async def in_a_commit(w: World, d: DaemonRun) -> None:
    await serving(w, d)
    d.script.at("t/partitions/0/state", lambda: asyncio.sleep(1.0))
    w.die(1)
    await eventually(lambda: d.daemon.term is not None and d.daemon.term.handling)


def at_write_of(path: str) -> Callable[[World, DaemonRun], Awaitable[None]]:
    """Returns a phase: a write of the start is in progress."""

    async def until(w: World, d: DaemonRun) -> None:
        reached = asyncio.Event()

        async def wait() -> None:
            reached.set()
            await asyncio.sleep(1.0)

        d.script.at(path, wait)
        await regent_has_role(w)
        await asyncio.wait_for(reached.wait(), 10.0)

    return until


async def in_an_error_pause(w: World, d: DaemonRun) -> None:
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
async def test_a_stop_in_any_phase_is_quick_clean_and_frees_the_role(w: World, phase: str, hold: bool) -> None:
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
