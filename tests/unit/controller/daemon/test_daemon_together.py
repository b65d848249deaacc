"""Runs daemons beside each other, and brokers between them: never two terms with an open gate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from controller.daemon.candidate import REFUSED_PAUSE_S_MAX
from controller.daemon.state import Mode
from controller.procedures.parking import EARLY_S
from controller.procedures.requests import Bypass, ProcedureRefused
from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.acl import OPEN, Acl, digest_id
from metadata_store.codecs.controller import ControllerZnode, encode_controller
from state_machines.procedures.record import NO_ENDING
from testing.memory import MemoryZooKeeper
from tests.kit.deadlines import eventually, in_exact_time
from tests.kit.kafka.daemons import DaemonRun, daemon, epoch, holder, now_s, regent_has_role
from tests.kit.kafka.parts import DAEMON
from tests.kit.kafka.world import KafkaWorld, in_world, world


async def never_two(daemons: list[DaemonRun], until: Callable[[], bool]) -> None:
    """Checks the gates of all daemons repeatedly until a condition holds."""
    deadline_s = now_s() + 600.0
    while not until():
        epochs = [found for d in daemons if (found := d.epoch_open) is not None]
        assert len(epochs) == len(set(epochs)), "two daemons may write in one epoch"
        assert len(epochs) <= 1, "two daemons may write"
        assert now_s() < deadline_s
        await asyncio.sleep(0.01)


@pytest.mark.seed("S4-86")
@in_exact_time
async def test_a_standby_serves_after_the_session_of_the_other_daemon_and_never_beside_its_open_gate() -> None:
    async with world() as w, daemon(w) as first:
        await regent_has_role(w)
        term = await first.serving()
        async with daemon(w, DAEMON + 1) as second:
            await second.reason_contains("another daemon is before us in the queue")
            cut = first.session
            w.server.suspend(cut)
            w.die(1)
            cut_s = now_s()
            await never_two([first, second], lambda: now_s() - cut_s > 5.9)
            assert not term.gate.open()
            assert (term.stands_still, term.gate.ended) == (True, False), "its lease ran out, the session lives"
            w.server.expire(cut)
            assert term.gate.ended
            await never_two([first, second], lambda: second.daemon.mode is Mode.ACTIVE)
            await eventually(lambda: w.leaders()["t", 0] == (2, (2, 3)))
            assert now_s() - cut_s < 8.0
            assert second.daemon.counters.interim_terms == 0
            await first.reason_contains("another daemon is before us in the queue")
            await second.stop()
            await never_two([first], lambda: first.daemon.mode is Mode.ACTIVE)
            assert epoch(w) == 3


@in_world(before=regent_has_role)
async def test_the_term_of_a_broker_between_two_daemons_is_ended_and_counted(w: KafkaWorld) -> None:
    async with daemon(w) as first:
        await first.serving()
    await w.seize(2)
    async with daemon(w, DAEMON + 1) as second:
        await second.serving()
        assert second.daemon.counters.interim_terms == 1
        assert epoch(w) == 3
        assert holder(w) == second.session


def serves(d: DaemonRun, w: KafkaWorld) -> bool:
    """Returns whether the daemon is active: before that a lost connection ends a term."""
    return d.daemon.mode is Mode.ACTIVE and d.epoch_open == epoch(w)


@pytest.mark.seed("S4-86")
@in_world(before=regent_has_role)
async def test_three_daemons_with_faults_serve_one_term_at_a_time_with_growing_epochs(w: KafkaWorld) -> None:
    """Ends sessions, and breaks connections for shorter and longer than a lease."""
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
                    w.server.reconnect(unlucky)
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


async def lock_epoch(w: KafkaWorld) -> None:
    """Locks the epoch as a daemon with other credentials does in mode ``hold``."""
    locked = [Acl(31, "digest", digest_id("regent", "another")), Acl(1, "world", "anyone")]
    if await w.operator.exists(paths.CONTROLLER_EPOCH) is None:
        await w.operator.create(paths.CONTROLLER_EPOCH, b"5", acl=locked)
    else:
        await w.operator.set_acls(paths.CONTROLLER_EPOCH, locked, -1)


@in_world()
async def test_a_daemon_without_permission_to_claim_takes_no_queue_position(w: KafkaWorld) -> None:
    await lock_epoch(w)
    await regent_has_role(w)
    async with daemon(w) as wrong, daemon(w, DAEMON + 1) as other:
        for d in (wrong, other):
            await d.reason_contains("no permission to write /controller_epoch")
            assert d.daemon.mode is Mode.BLOCKED
        writes = len(wrong.script.writes)
        await asyncio.sleep(600.0)
        assert len(wrong.script.writes) == writes, "ZooKeeper is probed only where the ACL changed"
        assert not (await w.operator.children(own.LOCKS) or ([],))[0]
        owner = MemoryZooKeeper(w.server, credentials="regent:another")
        await owner.connect(1.0)
        await owner.set_acls(paths.CONTROLLER_EPOCH, OPEN, -1)
        await eventually(lambda: Mode.ACTIVE in (wrong.daemon.mode, other.daemon.mode))


@in_world(before=regent_has_role)
async def test_a_standby_that_loses_its_permission_leaves_the_queue(w: KafkaWorld) -> None:
    """The first claim in mode ``hold`` sets the lock while daemons with other credentials are queued already."""
    async with daemon(w, hold=True) as active:
        await active.serving()
        async with daemon(w, DAEMON + 1) as wrong, daemon(w, DAEMON + 2, hold=True) as healthy:
            await wrong.reason_contains("no permission to write /controller_epoch")
            await healthy.reason_contains("another daemon is before us")
            await active.crash()
            died_s = now_s()
            await healthy.serving()
            assert now_s() - died_s < 3.0
            assert wrong.daemon.mode is Mode.BLOCKED


@in_world()
async def test_refused_daemons_take_turns_in_the_queue_and_each_names_the_cause(w: KafkaWorld) -> None:
    await w.operator.create(paths.CONTROLLER_EPOCH, b"nonsense")
    await regent_has_role(w)
    async with daemon(w) as first, daemon(w, DAEMON + 1) as second:
        blocked: dict[DaemonRun, int] = {first: 0, second: 0}
        for _ in range(600):
            await asyncio.sleep(1.0)
            for d in blocked:
                blocked[d] += d.daemon.mode is Mode.BLOCKED and "cannot be understood" in d.daemon.why
        assert all(count > 200 for count in blocked.values()), blocked
        for d in blocked:
            positions = d.script.writes.count([f"{own.LOCKS}/lock-"])
            assert 600 / REFUSED_PAUSE_S_MAX / 2 < positions < 600 / REFUSED_PAUSE_S_MAX + 5
        await w.operator.set(paths.CONTROLLER_EPOCH, b"5", -1)
        await eventually(lambda: Mode.ACTIVE in (first.daemon.mode, second.daemon.mode))


@in_world(before=regent_has_role)
async def test_another_daemon_completes_a_hand_back_that_the_first_one_may_not_complete(w: KafkaWorld) -> None:
    """The daemon lost its credentials in a restart, between the flag and the last step of the hand-back."""
    async with daemon(w, hold=True) as active:
        await active.serving()
        await w.give_role_to("brokers")
        await active.crash()
    assert holder(w) == 0, "persistent, so that no broker is elected"
    async with daemon(w, DAEMON + 1) as wrong:
        await wrong.reason_contains("no permission to write /controller_epoch")
        assert holder(w) == 0
        async with daemon(w, DAEMON + 2, hold=True):
            await eventually(lambda: holder(w) is None)
            acls, _ = await w.operator.get_acls(paths.CONTROLLER_EPOCH)
            assert acls == list(OPEN)


@in_world(before=regent_has_role)
async def test_the_next_daemon_completes_a_hand_back_that_zookeeper_refuses_to_the_first(w: KafkaWorld) -> None:
    async with daemon(w) as active:
        await active.serving()
        await w.give_role_to("brokers")
        closed = [Acl(31 & ~8, "world", "anyone"), Acl(31, "digest", digest_id("regent", "secret"))]
        await w.operator.set_acls("/", closed, -1)
        await active.crash()
        await w.operator.create(paths.CONTROLLER, encode_controller(ControllerZnode(DAEMON)))
    async with daemon(w, DAEMON + 1) as wrong:
        await wrong.reason_contains("this daemon cannot complete an interrupted hand-back")
        async with daemon(w, DAEMON + 2, hold=True):
            await eventually(lambda: holder(w) is None)


@in_exact_time
async def test_a_request_that_waits_for_the_next_term_is_refused_once_that_is_one_of_another_daemon() -> None:
    async with world() as w, daemon(w) as first:
        await regent_has_role(w)
        await first.serving()
        async with daemon(w, DAEMON + 1) as second:
            await second.reason_contains("another daemon is before us in the queue")
            began_s = now_s()
            with pytest.raises(
                ProcedureRefused, match=r"this daemon is standby \(another daemon is before us .*: send the req"
            ):
                await second.daemon.parking.asked(Bypass(7, NO_ENDING), lambda: "a cause")
            assert now_s() - began_s < EARLY_S / 2
