"""The daemon around its terms: sessions, standby, errors, stops; alone and with others."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any
from unittest import mock

import pytest

from controller import own_znodes as own
from controller.daemon import STEADY_TERM_S, Mode
from controller.office import Claim, Office
from metadata_store import paths
from metadata_store.acl import OPEN, READ, Acl
from metadata_store.memory import MemoryZooKeeper
from tests.core.controller_world import DAEMON, DaemonRun, World, daemon, world
from tests.core.virtual_time import VirtualTimeLoop, in_virtual_time
from tests.core.wire_kit import read_response, write_request
from tests.polling import eventually


def now_s() -> float:
    return asyncio.get_running_loop().time()


def holder(w: World) -> int | None:
    """Session that ``/controller`` belongs to; 0 where it is persistent, None where there is none."""
    node = w.node(paths.CONTROLLER)
    return None if node is None else node.stat.ephemeral_owner


def epoch(w: World) -> int:
    node = w.node(paths.CONTROLLER_EPOCH)
    return int(node.data or b"0") if node is not None else 0


async def ruling(w: World) -> None:
    """A topic, and the role is regent's."""
    await w.topic("t", (1, 2, 3), leaders=True)
    await w.give_role_to("regent")


# -- alone


@pytest.mark.seed("S4-75")
@in_virtual_time
async def test_it_claims_serves_and_answers_brokers_over_its_socket() -> None:
    async with world() as w, daemon(w) as d:
        await ruling(w)
        await d.in_office()
        w.die(1)
        await eventually(lambda: w.led()["t", 0] == (2, (2, 3)))
        reader, writer = await asyncio.open_connection("127.0.0.1", d.daemon.listener.port)
        frame = write_request(67, 0, 5, broker_id=2, broker_epoch=w.broker_epoch(2))
        writer.write(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(await reader.readexactly(4), "big")
        correlation, block = read_response(67, 0, await reader.readexactly(size))
        assert (correlation, block.error_code, block.producer_id_start, block.producer_id_len) == (5, 0, 0, 1_000)
        w.server.expire(d.session)
        assert await reader.read() == b"", "with the role its connections end"
        writer.close()


@in_virtual_time
async def test_a_flag_that_says_brokers_is_waited_for_at_no_cost() -> None:
    async with world() as w, daemon(w) as d:
        await w.give_role_to("brokers")
        await d.says("says brokers: 'regent takeover' gives the role to regent")
        assert d.daemon.mode is Mode.STANDBY
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        turns, since_s = loop.turns, now_s()
        await asyncio.sleep(60.0)
        assert now_s() - since_s >= 60.0
        assert loop.turns - turns < 60 * 50
        assert holder(w) is None
        set_s = now_s()
        await w.give_role_to("regent")
        await d.in_office()
        assert now_s() - set_s < 1.0, "the watch wakes it, not the poll"


@in_virtual_time
async def test_a_lost_session_is_replaced_and_the_role_claimed_again() -> None:
    async with world() as w, daemon(w) as d:
        await ruling(w)
        first = await d.in_office()
        for number in range(2, 5):
            w.server.expire(d.session)
            assert first.term.ended
            await eventually(lambda number=number: epoch(w) == number)
            first = await d.in_office()
            assert holder(w) == d.session
        assert d.daemon.counters.resignations["the ZooKeeper session is lost"] == 3
        assert d.daemon.counters.interim_terms == 0


@in_virtual_time
async def test_no_zookeeper_is_waited_for_second_by_second() -> None:
    async with world() as w:
        w.server.down = True
        async with daemon(w) as d:
            await d.says("no ZooKeeper session")
            tried = len(d.sessions)
            await asyncio.sleep(10.0)
            assert 9 <= len(d.sessions) - tried <= 11
            await ruling(w)
            w.server.down = False
            await d.in_office()


@in_virtual_time
async def test_a_suspended_standby_waits_and_goes_on() -> None:
    async with world() as w, daemon(w) as d:
        await w.give_role_to("brokers")
        await d.says("says brokers")
        w.server.suspend(d.session)
        await d.says("suspended")
        await w.give_role_to("regent")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        turns = loop.turns
        await asyncio.sleep(10.0)
        assert loop.turns - turns < 10 * 50
        assert len(d.sessions) == 1
        w.server.resume(d.session)
        resumed_s = now_s()
        await d.in_office()
        assert now_s() - resumed_s < 1.0
        assert epoch(w) == 1, "one claim, made when a lease allows to use it"


@pytest.mark.seed("S4-86")
@pytest.mark.parametrize("fault", ["suspend", "lose_replies", "lose_requests", "expire"])
@in_virtual_time
async def test_whatever_write_of_its_start_a_fault_hits_it_comes_into_office(fault: str) -> None:
    """From the first znode of the queue to the last write of taking office; never with an epoch twice."""
    number = writes = 0
    while number <= writes:
        number += 1
        async with world() as w:
            await ruling(w)
            w.die(1)
            async with daemon(w) as d:
                epochs: list[bytes | None] = []
                seen = 0

                class AtWrite:
                    async def before(self, ops: Any) -> None:
                        nonlocal seen
                        seen += 1
                        epochs.extend(op.data for op in ops if op.path == paths.CONTROLLER_EPOCH and hasattr(op, "data"))
                        if seen == number:
                            session = d.session
                            getattr(w.server, fault)(session)
                            if fault == "suspend":
                                asyncio.get_running_loop().call_later(1.0, w.server.resume, session)

                    async def after(self, ops: Any) -> None: ...

                d.script.before, d.script.after = AtWrite().before, AtWrite().after  # type: ignore[method-assign]
                await eventually(lambda: w.led()["t", 0] == (2, (2, 3)), within_s=5.0)
                await d.in_office()
                writes = max(writes, seen)
                assert not d.task.done()
                claims = [int(data) for data in epochs if data is not None]
                assert claims == sorted(claims)
                assert len(await d.daemon.office.queue()) == 1  # type: ignore[union-attr]
    assert writes >= 8


@in_virtual_time
async def test_a_place_that_somebody_removed_is_taken_again() -> None:
    async with world() as w, daemon(w) as d:
        await w.give_role_to("brokers")
        await d.says("says brokers")
        assert d.daemon.office is not None
        assert d.daemon.office.lock_path is not None
        await w.operator.delete(d.daemon.office.lock_path, -1)
        await eventually(lambda: len(d.sessions) == 2)
        await w.give_role_to("regent")
        await d.in_office()


# -- what stands in the way is said, and waited for


async def newer_format(w: World) -> None:
    await w.operator.create(own.ROOT, b"")
    await w.operator.create(own.FORMAT, b'{"version":2}')


async def older_format(w: World) -> None:
    await w.operator.set(own.FORMAT, b'{"version":1}', -1)


async def no_permission(w: World) -> None:
    await w.operator.create(own.ROOT, b"", acl=[Acl(READ | 16, "world", "anyone")])


async def permission(w: World) -> None:
    await w.operator.set_acls(own.ROOT, OPEN, -1)


async def locked_epoch(w: World) -> None:
    await w.operator.create(paths.CONTROLLER_EPOCH, b"5", acl=[Acl(READ | 16, "world", "anyone")])


async def open_epoch(w: World) -> None:
    await w.operator.set_acls(paths.CONTROLLER_EPOCH, OPEN, -1)


async def broken_epoch(w: World) -> None:
    await w.operator.create(paths.CONTROLLER_EPOCH, b"nonsense")


async def mended_epoch(w: World) -> None:
    await w.operator.set(paths.CONTROLLER_EPOCH, b"5", -1)


async def kraft(w: World) -> None:
    await w.operator.create(
        paths.MIGRATION,
        b'{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":1,"kraft_metadata_offset":0,'
        b'"kraft_metadata_epoch":0}',
    )


async def no_kraft(w: World) -> None:
    await w.operator.delete(paths.MIGRATION, -1)


Step = Callable[[World], Awaitable[None]]
IN_THE_WAY: dict[str, tuple[Step, str, Step]] = {
    "a newer format": (newer_format, "upgrade this daemon", older_format),
    "no permission": (no_permission, "check the ACL of /regent", permission),
    "a locked epoch": (locked_epoch, "set zookeeper.digest to the credentials that locked it", open_epoch),
    "a broken epoch": (broken_epoch, "/controller_epoch cannot be understood", mended_epoch),
    "a migration to KRaft": (kraft, "names KRaft controller 3000", no_kraft),
}


@pytest.mark.parametrize("what", IN_THE_WAY)
@in_virtual_time
async def test_what_stands_in_the_way_is_named_and_waited_for(what: str) -> None:
    bring, says, remove = IN_THE_WAY[what]
    async with world() as w:
        await bring(w)
        if what not in ("a newer format", "no permission"):
            await ruling(w)
        async with daemon(w) as d:
            await d.says(says)
            assert d.daemon.mode is Mode.BLOCKED
            await asyncio.sleep(30.0)
            assert not d.task.done()
            assert holder(w) is None
            await remove(w)
            if what in ("a newer format", "no permission"):
                await ruling(w)
            await d.in_office()


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_brokers_that_saw_a_higher_epoch_stop_it_until_an_operator_has_looked() -> None:
    async with world() as w, daemon(w) as d:
        await ruling(w)
        w.wires.errors[2] = 11
        await d.says("brokers have seen a higher controller epoch")
        claimed = epoch(w)
        await asyncio.sleep(300.0)
        assert epoch(w) == claimed, "it does not count up until it is obeyed"
        assert d.daemon.mode is Mode.BLOCKED
        w.server.blip(d.session)
        await asyncio.sleep(10.0)
        assert epoch(w) == claimed
        w.wires.errors.clear()
        await w.operator.set(paths.CONTROLLER_EPOCH, b"500", -1)
        await d.in_office()
        assert epoch(w) == 501


# -- errors


def failing(times: int) -> Any:
    """The first ``times`` failovers end in an error."""
    from state_machines.failover import failover

    left = times

    def decide(draft: Any) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise ValueError("a bug")
        failover(draft)

    return mock.patch("controller.handlers.failover.failover", decide)


@in_virtual_time
async def test_the_first_error_is_retried_at_once_further_ones_after_growing_pauses_with_the_role_free() -> None:
    async with world() as w:
        await ruling(w)
        claims: list[float] = []
        really = Office.claim

        async def claim(office: Office) -> Claim:
            claims.append(now_s())
            return await really(office)

        with failing(7), mock.patch.object(Office, "claim", claim):
            async with daemon(w) as d:
                for number in range(2, 8):
                    await d.says(f"error {number} in a row")
                    assert holder(w) is None, "another daemon, or a broker, may have it"
                    assert "ValueError: a bug" in d.daemon.why
                await d.in_office()
        assert [round(after - before) for before, after in pairwise(claims)] == [0, 4, 8, 16, 30, 30, 30]
        assert d.daemon.counters.resignations["error"] == 7


@in_virtual_time
async def test_an_error_after_a_steady_term_is_a_first_one_again_but_one_after_a_short_term_is_not() -> None:
    async with world() as w, daemon(w) as d:
        await ruling(w)
        bug = mock.patch("controller.handlers.broker_change.compare", side_effect=ValueError("a bug"))
        for steady in (True, True, False):
            reign = await d.in_office()
            if steady:
                await asyncio.sleep(STEADY_TERM_S + 1)
            failed_s = now_s()
            with bug:
                reign.queue.signal("broker_change")
                await eventually(lambda reign=reign: reign.finished.is_set())
            await d.in_office()
            assert (now_s() - failed_s < 1.0) is steady


@in_virtual_time
async def test_while_one_daemon_fails_the_next_one_in_the_queue_serves() -> None:
    async with world() as w:
        await ruling(w)
        with failing(2):
            async with daemon(w) as first:
                await first.says("error 2 in a row")
                async with daemon(w, DAEMON + 1) as second:
                    await second.in_office()
                    await asyncio.sleep(60.0)
                    assert first.daemon.mode is Mode.STANDBY
                    assert "another daemon is before us" in first.daemon.why
                    assert second.daemon.mode is Mode.ACTIVE


# -- two daemons


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


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_three_daemons_and_a_lot_of_bad_luck() -> None:
    """Sessions end, connections break for shorter and longer than a lease: one term at a time, epochs only grow."""
    async with world() as w:
        await ruling(w)
        async with daemon(w) as a, daemon(w, DAEMON + 1) as b, daemon(w, DAEMON + 2) as c:
            daemons, loop = [a, b, c], asyncio.get_running_loop()
            for step in range(24):
                await never_two(daemons, lambda: any(d.epoch_open == epoch(w) for d in daemons))
                active = next(d for d in daemons if d.epoch_open is not None)
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


# -- stops


class Hangs(MemoryZooKeeper):
    """A ZooKeeper that does not answer a connection."""

    async def connect(self, timeout_s: float) -> None:
        await asyncio.sleep(3_600)


async def before_connected(_: World, d: DaemonRun) -> None:
    await asyncio.sleep(0)


async def in_standby(w: World, d: DaemonRun) -> None:
    await w.give_role_to("brokers")
    await d.says("says brokers")


async def suspended_in_standby(w: World, d: DaemonRun) -> None:
    await in_standby(w, d)
    w.server.suspend(d.session)
    await d.says("suspended")


async def in_office(w: World, d: DaemonRun) -> None:
    await ruling(w)
    await d.in_office()


async def suspended_in_office(w: World, d: DaemonRun) -> None:
    await in_office(w, d)
    w.server.suspend(d.session)
    await asyncio.sleep(0.1)


async def in_a_commit(w: World, d: DaemonRun) -> None:
    await in_office(w, d)
    d.script.at("t/partitions/0/state", lambda: asyncio.sleep(1.0))
    w.die(1)
    await eventually(lambda: d.daemon.reign is not None and d.daemon.reign.handling)


def at_write_of(path: str) -> Callable[[World, DaemonRun], Awaitable[None]]:
    """While this write of its start is under way."""

    async def until(w: World, d: DaemonRun) -> None:
        reached = asyncio.Event()

        async def wait() -> None:
            reached.set()
            await asyncio.sleep(1.0)

        d.script.at(path, wait)
        await ruling(w)
        await asyncio.wait_for(reached.wait(), 10.0)

    return until


async def in_an_error_pause(w: World, d: DaemonRun) -> None:
    with failing(5):
        await ruling(w)
        await d.says("in a row")


PHASES = {
    "connecting": before_connected,
    "standby": in_standby,
    "suspended standby": suspended_in_standby,
    "queueing": at_write_of(f"{own.LOCKS}/lock-"),
    "claiming": at_write_of(paths.CONTROLLER_EPOCH),
    "taking office": at_write_of(paths.FEATURE),
    "active": in_office,
    "suspended": suspended_in_office,
    "committing": in_a_commit,
    "after errors": in_an_error_pause,
}


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("phase", PHASES)
@in_virtual_time
async def test_a_stop_in_any_phase_is_quick_clean_and_frees_the_role(phase: str, hold: bool) -> None:
    async with world() as w:
        before = asyncio.all_tasks()
        async with daemon(w, hold=hold) as d:
            await PHASES[phase](w, d)
            asked_s = now_s()
            await d.stop(within_s=8.0)
            assert now_s() - asked_s < 6.0
            assert d.daemon.mode is Mode.STOPPING
            kept = hold and phase in ("active", "suspended", "committing", "taking office", "claiming")
            assert holder(w) == (0 if kept else None)
            locks = w.server.tree._nodes.get(own.LOCKS)
            assert locks is None or not locks.children, "its place is free"
            assert all(zk.session_id not in w.server._sessions for zk in d.sessions)
            assert asyncio.all_tasks() == before
            assert w.wires.open == 0


@in_virtual_time
async def test_a_stop_while_zookeeper_does_not_answer_at_all() -> None:
    async with world() as w, daemon(w) as d:
        d.daemon._connect = lambda: Hangs(w.server)
        w.server.down = True
        await d.says("tried again every second") if d.sessions else None
        await asyncio.sleep(2.0)
        asked_s = now_s()
        await d.stop()
        assert now_s() - asked_s < 3.0


@in_virtual_time
async def test_after_a_stop_another_daemon_serves_at_once() -> None:
    async with world() as w, daemon(w) as first:
        await ruling(w)
        await first.in_office()
        async with daemon(w, DAEMON + 1) as second:
            await second.says("another daemon is before us")
            asked_s = now_s()
            await first.stop()
            await second.in_office()
            assert now_s() - asked_s < 2.0


@in_virtual_time
async def test_signals_stop_it() -> None:
    import os
    import signal

    async with world() as w, daemon(w) as d:
        await ruling(w)
        await d.in_office()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(d.task, 10.0)
        assert holder(w) is None


@in_virtual_time
async def test_twenty_terms_leave_nothing_behind() -> None:
    async with world() as w, daemon(w) as d:
        await ruling(w)
        tasks = armed = 0
        for number in range(20):
            reign = await d.in_office()
            await reign.channels.quiesced(5.0)
            await asyncio.sleep(1.0)
            found = len(asyncio.all_tasks()), sum(map(len, (*w.server._data.values(), *w.server._children.values())))
            if number >= 2:
                assert found == (tasks, armed)
            tasks, armed = found
            if number % 2:
                w.server.expire(d.session)
            else:
                reign.term.end("a test")
            await eventually(lambda reign=reign: reign.finished.is_set())
        gc.collect()
        assert len(w.server._sessions) == 5, "three brokers, the operator, the daemon"
