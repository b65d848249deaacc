"""Names causes that keep a daemon from the role; repeats terms after errors, and then gives other daemons a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest

from controller.daemon.candidate import EARLY_ENDS_MAX, STEADY_TERM_S
from controller.daemon.daemon import Daemon
from controller.daemon.state import Mode
from controller.kafka.path.events import EventKind
from controller.role import own_znodes as own
from controller.role.claim import Claim, Role
from metadata_store import paths
from metadata_store.acl import OPEN, READ, Acl
from metadata_store.codecs.controller import Migration, encode_migration
from metadata_store.errors import TROUBLE, Code, NotConnected, ZkError
from testing.memory import MemoryZooKeeper
from tests.kit.deadlines import eventually, in_exact_time
from tests.kit.kafka.daemons import daemon, epoch, failing, holder, now_s, process, regent_has_role
from tests.kit.kafka.parts import DAEMON
from tests.kit.kafka.role import settings_for
from tests.kit.kafka.world import KafkaWorld, in_world, world

Step = Callable[[KafkaWorld], Awaitable[object]]
LOCKED = [Acl(READ | 16, "world", "anyone")]
MIGRATING = encode_migration(Migration(3000, 1, 0, 0))


async def newer_format(w: KafkaWorld) -> None:
    await w.operator.create(own.ROOT, b"")
    await w.operator.create(own.FORMAT, b'{"version":2}')


async def twin(w: KafkaWorld) -> None:
    for path in (own.ROOT, own.LOCKS):
        if await w.operator.exists(path) is None:
            await w.operator.create(path, b"")
    await w.operator.create(f"{own.LOCKS}/lock-0000000000", own.encode(process()), ephemeral=True)


CAUSES: dict[str, tuple[Step, str, Step]] = {
    "a newer format": (newer_format, "upgrade this daemon", lambda w: w.operator.set(own.FORMAT, b'{"version":1}', -1)),
    "no permission": (
        lambda w: w.operator.create(own.ROOT, b"", acl=LOCKED),
        "check the ACL of /regent",
        lambda w: w.operator.set_acls(own.ROOT, OPEN, -1),
    ),
    "a locked epoch": (
        lambda w: w.operator.create(paths.CONTROLLER_EPOCH, b"5", acl=LOCKED),
        "set zookeeper.digest_file to the credentials that locked it",
        lambda w: w.operator.set_acls(paths.CONTROLLER_EPOCH, OPEN, -1),
    ),
    "a twin": (
        twin,
        "has controller.id 1000001, too: give one of the two another",
        lambda w: w.operator.delete(f"{own.LOCKS}/lock-0000000000", -1),
    ),
    "a migration to KRaft": (
        lambda w: w.operator.create(paths.MIGRATION, MIGRATING),
        "names KRaft controller 3000",
        lambda w: w.operator.delete(paths.MIGRATION, -1),
    ),
}


@pytest.mark.kafka("KafkaZkClientTest.testRegisterZkControllerAfterKRaft")
@pytest.mark.parametrize("cause", CAUSES)
@in_exact_time
async def test_a_blocked_daemon_names_the_cause_and_serves_once_it_is_gone(
    cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    bring, text, remove = CAUSES[cause]
    of_regent = cause in ("a newer format", "no permission")
    async with world() as w:
        await bring(w)
        if not of_regent:
            await regent_has_role(w)
        async with daemon(w) as d:
            await d.reason_contains(text)
            assert d.daemon.mode is Mode.BLOCKED
            assert {r.levelname for r in caplog.records if r.getMessage().startswith("blocked: ")} == {"WARNING"}
            await asyncio.sleep(30.0)
            assert not d.task.done()
            assert holder(w) is None
            await remove(w)
            if of_regent:
                await regent_has_role(w)
            await d.serving()


@in_world(before=regent_has_role)
async def test_a_term_follows_a_first_error_at_once_and_later_ones_after_growing_pauses(
    w: KafkaWorld,
) -> None:
    claims: list[float] = []
    really = Role.claim

    async def claim(role: Role) -> Claim:
        claims.append(now_s())
        return await really(role)

    with failing(7), mock.patch.object(Role, "claim", claim):
        async with daemon(w) as d:
            for number in range(2, 8):
                await d.reason_contains(f"error {number} in a row")
                assert holder(w) is None, "another daemon, or a broker, may have it"
                assert "ValueError: a bug" in d.daemon.why
            await d.serving()
    assert [round(after - before) for before, after in pairwise(claims)] == [0, 4, 8, 16, 30, 30, 30]
    assert d.daemon.counters.resignations["error"] == 7


@in_world(before=regent_has_role)
async def test_terms_that_never_serve_begin_ever_more_rarely_and_name_the_reason(w: KafkaWorld) -> None:
    """A server ends the connection at the same request each time: without pauses each try would cost an epoch."""
    with mock.patch("controller.kafka.term.term.fail_over", side_effect=NotConnected("hung up")):
        async with daemon(w) as d:
            await d.reason_contains("error 2 in a row")
            assert "lost while taking office" in d.daemon.why
            assert (d.daemon.mode, holder(w)) == (Mode.BLOCKED, None)
            tried = epoch(w)
            assert tried == EARLY_ENDS_MAX + 2
            await asyncio.sleep(300.0)
            assert 10 <= epoch(w) - tried <= 13, "a try every half minute"
    async with daemon(w) as d:
        await d.serving()


@in_exact_time
async def test_an_error_counts_as_the_first_one_after_a_steady_term_only() -> None:
    async with world() as w, daemon(w) as d:
        await regent_has_role(w)
        bug = mock.patch("controller.kafka.brokers.broker_change.compare", side_effect=ValueError("a bug"))
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


@in_world(before=regent_has_role)
async def test_the_next_daemon_in_the_queue_serves_while_one_fails(w: KafkaWorld) -> None:
    with failing(2):
        async with daemon(w) as first:
            await first.reason_contains("error 2 in a row")
            async with daemon(w, DAEMON + 1) as second:
                await second.serving()
                await asyncio.sleep(60.0)
                assert first.daemon.mode is Mode.STANDBY
                assert "another daemon is before us" in first.daemon.why
                assert second.daemon.mode is Mode.ACTIVE


async def started_with(code: Code, number: int) -> int:
    """Starts a daemon and ends a broker, with a code as one response; returns the number of requests."""
    async with world() as w, daemon(w) as d:
        requests, plain = 0, w.server.code_of

        def code_of(session: int) -> Code | None:
            nonlocal requests
            if session == w.operator.session_id:
                return plain(session)
            requests += 1
            return code if requests == number else None

        with mock.patch.object(w.server, "code_of", code_of):
            await regent_has_role(w)
            await d.serving()
            w.die(1)
            if code in TROUBLE:  # any other code is about the write itself, which is given up and counted
                await eventually(lambda: w.leaders()["t", 0] == (2, (2, 3)))
            await asyncio.sleep(5.0)
            assert not d.task.done()
            await d.serving()
        return requests


@pytest.mark.parametrize(
    "code", [Code.SYSTEM_ERROR, Code.THROTTLED_OP, Code.MARSHALLING_ERROR], ids=lambda code: code.name
)
@in_exact_time
async def test_an_error_code_on_any_request_to_zookeeper_delays_the_daemon_only(code: Code) -> None:
    """Covers each request from the first read to the last write of an election, heartbeats included."""
    number = requests = 0
    while number <= requests:
        number += 1
        requests = max(requests, await started_with(code, number))
    assert requests > 40


@in_exact_time
async def test_refused_heartbeats_close_the_gate_and_the_term_continues_after_them() -> None:
    async with world() as w, daemon(w) as d:
        await regent_has_role(w)
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


@in_exact_time
async def test_the_lease_follows_a_renegotiated_session_timeout() -> None:
    async with world() as w, daemon(w) as d:
        await regent_has_role(w)
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


@in_world()
async def test_a_shadow_without_permission_to_read_names_the_acl_and_waits(w: KafkaWorld) -> None:
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
