"""What keeps a daemon from the role is named and waited for; its own errors are retried, then others get a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest

from controller.daemon.candidate import EARLY_ENDS_MAX, STEADY_TERM_S
from controller.daemon.daemon import Daemon
from controller.engine.event_kinds import EventKind
from controller.role import own_znodes as own
from controller.role.claim import Claim, Role
from controller.role.mode import Mode
from metadata_store import paths
from metadata_store.acl import OPEN, READ, Acl
from metadata_store.errors import TROUBLE, Code, NotConnected, ZkError
from testing.memory import MemoryZooKeeper
from tests.core.claim_kit import process
from tests.core.controller_parts import DAEMON
from tests.core.controller_world import World, world
from tests.core.daemon_world import daemon, epoch, failing, holder, now_s, ruling
from tests.core.role_kit import settings_for
from tests.core.virtual_time import in_virtual_time
from tests.polling import eventually


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


async def last_epoch(w: World) -> None:
    await w.operator.create(paths.CONTROLLER_EPOCH, b"2147483647")


async def kraft(w: World) -> None:
    await w.operator.create(
        paths.MIGRATION,
        b'{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":1,"kraft_metadata_offset":0,'
        b'"kraft_metadata_epoch":0}',
    )


async def no_kraft(w: World) -> None:
    await w.operator.delete(paths.MIGRATION, -1)


async def twin(w: World) -> None:
    for path in (own.ROOT, own.LOCKS):
        if await w.operator.exists(path) is None:
            await w.operator.create(path, b"")
    await w.operator.create(f"{own.LOCKS}/lock-", own.encode(process()), ephemeral=True, sequential=True)


async def no_twin(w: World) -> None:
    names, _ = await w.operator.children(own.LOCKS) or ([], None)
    for name in names:
        await w.operator.delete(f"{own.LOCKS}/{name}", -1)


Step = Callable[[World], Awaitable[None]]
IN_THE_WAY: dict[str, tuple[Step, str, Step]] = {
    "the last epoch": (last_epoch, "brokers take no larger one", mended_epoch),
    "a newer format": (newer_format, "upgrade this daemon", older_format),
    "no permission": (no_permission, "check the ACL of /regent", permission),
    "a locked epoch": (locked_epoch, "set zookeeper.digest to the credentials that locked it", open_epoch),
    "a broken epoch": (broken_epoch, "/controller_epoch cannot be understood", mended_epoch),
    "a daemon with the same id": (twin, "has controller.id 1000001, too: give one of the two another", no_twin),
    "a migration to KRaft": (kraft, "names KRaft controller 3000", no_kraft),
}


@pytest.mark.kafka("KafkaZkClientTest.testRegisterZkControllerAfterKRaft")
@pytest.mark.parametrize("what", IN_THE_WAY)
@in_virtual_time
async def test_what_stands_in_the_way_is_named_and_waited_for(what: str, caplog: pytest.LogCaptureFixture) -> None:
    bring, says, remove = IN_THE_WAY[what]
    async with world() as w:
        await bring(w)
        if what not in ("a newer format", "no permission"):
            await ruling(w)
        async with daemon(w) as d:
            await d.says(says)
            assert d.daemon.mode is Mode.BLOCKED
            assert {r.levelname for r in caplog.records if r.getMessage().startswith("blocked: ")} == {"WARNING"}
            await asyncio.sleep(30.0)
            assert not d.task.done()
            assert holder(w) is None
            await remove(w)
            if what in ("a newer format", "no permission"):
                await ruling(w)
            await d.serving()


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_brokers_that_saw_a_higher_epoch_stop_it_until_an_operator_has_looked() -> None:
    async with world() as w, daemon(w) as d:
        await ruling(w)
        w.wires.errors[2] = w.wires.errors[3] = 11
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
        await d.serving()
        assert epoch(w) == 501


@in_virtual_time
async def test_the_first_error_is_retried_at_once_further_ones_after_growing_pauses_with_the_role_free() -> None:
    async with world() as w:
        await ruling(w)
        claims: list[float] = []
        really = Role.claim

        async def claim(role: Role) -> Claim:
            claims.append(now_s())
            return await really(role)

        with failing(7), mock.patch.object(Role, "claim", claim):
            async with daemon(w) as d:
                for number in range(2, 8):
                    await d.says(f"error {number} in a row")
                    assert holder(w) is None, "another daemon, or a broker, may have it"
                    assert "ValueError: a bug" in d.daemon.why
                await d.serving()
        assert [round(after - before) for before, after in pairwise(claims)] == [0, 4, 8, 16, 30, 30, 30]
        assert d.daemon.counters.resignations["error"] == 7


@in_virtual_time
async def test_terms_that_never_come_into_office_are_begun_ever_more_rarely_and_the_reason_is_shown() -> None:
    """A server that hangs up at the same request each time: without pauses each try would cost an epoch."""
    async with world() as w:
        await ruling(w)
        with mock.patch("controller.term.term.fail_over", side_effect=NotConnected("hung up")):
            async with daemon(w) as d:
                await d.says("error 2 in a row")
                assert "lost while taking office" in d.daemon.why
                assert (d.daemon.mode, holder(w)) == (Mode.BLOCKED, None)
                tried = epoch(w)
                assert tried == EARLY_ENDS_MAX + 2
                await asyncio.sleep(300.0)
                assert 10 <= epoch(w) - tried <= 13, "a try every half minute"
        async with daemon(w) as d:
            await d.serving()


@in_virtual_time
async def test_an_error_after_a_steady_term_is_a_first_one_again_but_one_after_a_short_term_is_not() -> None:
    async with world() as w, daemon(w) as d:
        await ruling(w)
        bug = mock.patch("controller.handlers.broker_change.compare", side_effect=ValueError("a bug"))
        for steady in (True, True, False):
            term = await d.serving()
            if steady:
                await asyncio.sleep(STEADY_TERM_S + 1)
            failed_s = now_s()
            with bug:
                term.queue.signal(EventKind.BROKER_CHANGE)
                await term.finished.wait()
            await d.serving()
            assert (now_s() - failed_s < 1.0) is steady


@in_virtual_time
async def test_while_one_daemon_fails_the_next_one_in_the_queue_serves() -> None:
    async with world() as w:
        await ruling(w)
        with failing(2):
            async with daemon(w) as first:
                await first.says("error 2 in a row")
                async with daemon(w, DAEMON + 1) as second:
                    await second.serving()
                    await asyncio.sleep(60.0)
                    assert first.daemon.mode is Mode.STANDBY
                    assert "another daemon is before us" in first.daemon.why
                    assert second.daemon.mode is Mode.ACTIVE


async def started_with(code: Code, number: int) -> int:
    """A start, and a broker's death, with one request answered with a code; returns how many requests there were."""
    async with world() as w, daemon(w) as d:
        requests, plain = 0, w.server.code_of

        def code_of(session: int) -> Code | None:
            nonlocal requests
            if session == w.operator.session_id:
                return plain(session)
            requests += 1
            return code if requests == number else None

        with mock.patch.object(w.server, "code_of", code_of):
            await ruling(w)
            await d.serving()
            w.die(1)
            if code in TROUBLE:  # any other code is about the write itself, which is given up and counted
                await eventually(lambda: w.led()["t", 0] == (2, (2, 3)), within_s=15.0)
            await asyncio.sleep(5.0)
            assert not d.task.done()
            await d.serving()
        return requests


@pytest.mark.parametrize(
    "code", [Code.SYSTEM_ERROR, Code.THROTTLED_OP, Code.MARSHALLING_ERROR], ids=lambda code: code.name
)
@in_virtual_time
async def test_whatever_request_zookeeper_answers_with_an_error_the_daemon_goes_on(code: Code) -> None:
    """From the first read to the last write of an election, heartbeats included."""
    number = requests = 0
    while number <= requests:
        number += 1
        requests = max(requests, await started_with(code, number))
    assert requests > 40


@in_virtual_time
async def test_heartbeats_that_are_answered_with_errors_let_the_lease_run_down_and_no_more() -> None:
    async with world() as w, daemon(w) as d:
        await ruling(w)
        term, zk = await d.serving(), d.sessions[-1]
        lease = d.daemon.lease
        assert lease is not None
        for code in (*TROUBLE, Code.MARSHALLING_ERROR, Code.NO_AUTH):
            with mock.patch.object(zk, "heartbeat", side_effect=ZkError(code, "/")):
                await asyncio.sleep(1.0)
                assert lease.valid()
                await asyncio.sleep(5.0)
                assert not lease.valid()
                assert not term.gate.open()
            await lease.until_valid()
        assert d.daemon.term is term, "the same term goes on"
        assert epoch(w) == 1


@in_virtual_time
async def test_a_session_timeout_that_is_negotiated_again_is_the_lease_s() -> None:
    async with world() as w, daemon(w) as d:
        await ruling(w)
        await d.serving()
        lease = d.daemon.lease
        assert lease is not None
        w.server.suspend(d.session)
        d.sessions[-1].session_timeout_ms = 4_000
        w.server.resume(d.session)
        await eventually(lambda: lease.session_timeout_s == 4.0)
        assert lease.remaining_s() <= 3.2
        await eventually(lambda: lease.remaining_s() > 2.0)
        assert epoch(w) == 1


@in_virtual_time
async def test_a_shadow_that_may_not_read_says_so_and_waits() -> None:
    async with world() as w:
        await w.topic("t", (1, 2, 3), leaders=True)
        secret = [Acl(31, "digest", "somebody:else")]
        await w.operator.set_acls(paths.TOPICS, secret, -1)
        shadow = Daemon(settings_for(Path("/nowhere")), lambda: MemoryZooKeeper(w.server), shadow=True)
        running = asyncio.create_task(shadow.run())
        await eventually(lambda: shadow.mode is Mode.BLOCKED and "check the ACL of /brokers/topics" in shadow.why)
        await asyncio.sleep(60.0)
        assert not running.done()
        shadow.stop()
        await running
