"""Daemons beside each other, and brokers between them: never two terms with an open gate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from controller.modes import Mode
from tests.core.controller_parts import DAEMON
from tests.core.controller_world import World, world
from tests.core.daemon_world import DaemonRun, daemon, epoch, holder, now_s, ruling
from tests.core.virtual_time import in_virtual_time
from tests.polling import eventually


async def never_two(daemons: list[DaemonRun], until: Callable[[], bool]) -> None:
    """Watches the gates of all daemons, at every look, until something happens."""
    deadline_s = now_s() + 600.0
    while not until():
        epochs = [found for d in daemons if (found := d.epoch_open) is not None]
        assert len(epochs) == len(set(epochs)), "two daemons may write in one epoch"
        assert len(epochs) <= 1, "two daemons may write"
        assert now_s() < deadline_s
        await asyncio.sleep(0.01)


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_a_standby_takes_over_when_the_session_ends_and_never_before_the_other_has_stopped() -> None:
    async with world() as w, daemon(w) as first:
        await ruling(w)
        reign = await first.in_office()
        async with daemon(w, DAEMON + 1) as second:
            await second.says("another daemon is before us in the queue")
            cut = first.session
            w.server.suspend(cut)
            w.die(1)
            cut_s = now_s()
            await never_two([first, second], lambda: now_s() - cut_s > 5.9)
            assert not reign.term.open()
            assert reign.term.ended, "its lease ran out"
            w.server.expire(cut)
            await never_two([first, second], lambda: second.daemon.mode is Mode.ACTIVE)
            await eventually(lambda: w.led()["t", 0] == (2, (2, 3)))
            assert now_s() - cut_s < 8.0
            assert second.daemon.counters.interim_terms == 0
            await first.says("another daemon is before us in the queue")
            await second.stop()
            await never_two([first], lambda: first.daemon.mode is Mode.ACTIVE)
            assert epoch(w) == 3


@in_virtual_time
async def test_a_brokers_term_between_two_daemons_is_ended_and_counted() -> None:
    async with world() as w:
        await ruling(w)
        async with daemon(w) as first:
            await first.in_office()
        await w.seize(2)
        async with daemon(w, DAEMON + 1) as second:
            await second.in_office()
            assert second.daemon.counters.interim_terms == 1
            assert epoch(w) == 3
            assert holder(w) == second.session


def serves(d: DaemonRun, w: World) -> bool:
    """Whether it is in office: before that a lost connection ends a term."""
    return d.daemon.mode is Mode.ACTIVE and d.epoch_open == epoch(w)


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_three_daemons_and_a_lot_of_bad_luck() -> None:
    """Sessions end, connections break for shorter and longer than a lease: one term at a time, epochs only grow."""
    async with world() as w:
        await ruling(w)
        async with daemon(w) as a, daemon(w, DAEMON + 1) as b, daemon(w, DAEMON + 2) as c:
            daemons, loop = [a, b, c], asyncio.get_running_loop()
            for step in range(24):
                await never_two(daemons, lambda: any(serves(d, w) for d in daemons))
                active = next(d for d in daemons if serves(d, w))
                before, unlucky = epoch(w), active.session
                match step % 4:
                    case 0:
                        w.server.expire(unlucky)
                    case 1:
                        w.server.blip(unlucky)
                    case 2:
                        w.server.suspend(unlucky)
                        loop.call_later(1.0, w.server.resume, unlucky)
                    case 3:
                        w.server.suspend(unlucky)
                        loop.call_later(6.0, w.server.expire, unlucky)
                if step % 4 in (0, 3):
                    await never_two(daemons, lambda before=before: epoch(w) > before)  # type: ignore[misc]
                else:
                    await never_two(daemons, lambda d=active: d.epoch_open is not None)  # type: ignore[misc]
                    assert epoch(w) == before, "a connection that comes back within the lease costs no term"
            assert 12 <= epoch(w) <= 16
            assert all(not d.task.done() for d in daemons)
