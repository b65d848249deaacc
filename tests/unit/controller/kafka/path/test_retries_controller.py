"""What a term and a candidate try again: failed three times, done, failed again, done; each pause in virtual time."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from brokers.client import BrokerCallFailed
from brokers.wire.versions import Ibp
from configs.journal_section import JournalSettings
from controller.daemon.handback import _take_back
from controller.daemon.state import Mode, SecretWatch
from controller.journal.journal import Journal
from controller.kafka import clients
from controller.kafka.access import Authorizer, principals
from controller.kafka.brokers.broker_change import GONE_S
from controller.kafka.metrics.values import Counters
from controller.kafka.path.adoption import Values
from controller.kafka.path.events import EventKind, QueueFull
from controller.kafka.path.remembered import LostIds
from controller.kafka.topics import lost_ids
from controller.kafka.topics.configurations import DefaultConfigs
from controller.kafka.topics.deletion import NOT_DELETED
from controller.role import own_znodes as own
from controller.role.claim import Claim, Role
from controller.role.queue import ClaimRefused
from metadata_store import paths
from metadata_store.acl import ALL
from metadata_store.errors import Code, ConnectFailed, NotConnected, OutcomeUnknown, ZkError
from state_machines.model.cluster import Cluster
from state_machines.model.types import Broker
from testing.memory import MemoryZooKeeper
from tests.kit.deadlines import in_exact_time
from tests.kit.kafka.daemons import daemon, epoch, now_s, regent_has_role
from tests.kit.kafka.reassignments import alter, join, written
from tests.kit.kafka.world import KafkaWorld, world
from tests.unit.admin.test_retries import BROKER, pauses
from tests.unit.controller.kafka.brokers.test_handlers_brokers import BOTH, INTERNAL, endpoint, listed

ABOUT = 0.3


@contextmanager
def closed(w: KafkaWorld, path: str) -> Iterator[None]:
    """Lets no client write below a znode meanwhile."""
    w.restrict(path)
    yield
    w.restrict(path, ALL)


def signals(w: KafkaWorld, kind: EventKind) -> list[float]:
    """Times at which an event of the present term is signalled from now on."""
    times: list[float] = []
    queue = w.term.queue
    really = queue.signal

    def signal(found: EventKind, detail: Hashable = None) -> None:
        if kind is found:
            times.append(now_s())
        really(found, detail)

    queue.signal = signal  # type: ignore[assignment,method-assign]
    return times


async def running(w: KafkaWorld, *names: str) -> None:
    for name in names:
        await w.topic(name, (1, 2), leaders=True)
    await w.serve()


# -- handlers of the queue


@in_exact_time
async def test_znodes_of_deleted_topics_that_may_not_go_are_tried_every_five_seconds_each_time() -> None:
    async with world() as w:
        await running(w, "t", "u")
        for name, fails in (("t", 3), ("u", 2)):
            with closed(w, paths.partition(name, 0)):
                await w.mark(name)
                await w.propagated()
                first_s, failed = now_s(), w.counters.failures[NOT_DELETED]
                assert failed
                for count in range(1, fails + 1):
                    assert w.counters.failures[NOT_DELETED] - failed == count - 1
                    await asyncio.sleep(first_s + 5.0 * count - 0.2 - now_s())
                    await w.settle()
                    assert w.counters.failures[NOT_DELETED] - failed == count - 1, "not yet"
                    if count < fails:
                        await asyncio.sleep(0.4)
                        await w.settle()
            await asyncio.sleep(0.4)
            await w.propagated()
            assert not w.znodes_of(name)
            assert not w.term.controller.deletion_queue.refused
        again = signals(w, EventKind.DELETION_PROGRESS)
        await asyncio.sleep(60.0)
        assert again == [], "no timer is left"


@in_exact_time
async def test_reassignments_whose_last_rewrite_is_refused_are_tried_every_five_seconds_each_time() -> None:
    async with world() as w:
        await running(w, "t")
        for target, fails in (((2, 3), 3), ((3, 1), 2)):
            await alter(w, {("t", 0): target})
            await w.propagated()
            with closed(w, paths.topic("t")):
                tries = signals(w, EventKind.FINISH_REASSIGNMENTS)
                await join(w)
                for _ in range(3):
                    await w.propagated()
                first_s = now_s()
                await asyncio.sleep(5.0 * fails - 2.0)
                await w.settle()
                assert written(w, "t").moving
            await asyncio.sleep(5.0)
            await w.propagated()
            assert not written(w, "t").moving
            assert pauses(tries)[-fails:] == [pytest.approx(5.0, abs=ABOUT)] * fails
            assert tries[-1] - first_s == pytest.approx(5.0 * fails, abs=ABOUT)
            assert not w.term.controller.reassignment_queue.timers
            await asyncio.sleep(60.0)
            assert tries[-1] - first_s == pytest.approx(5.0 * fails, abs=ABOUT), "no timer is left"


@in_exact_time
async def test_reassignments_that_are_refused_are_decided_on_again_every_five_seconds_each_time() -> None:
    async with world() as w:
        await running(w, "t")
        tries = signals(w, EventKind.ADVANCE_REASSIGNMENTS)
        for target, fails in (((2, 3), 3), ((3, 1), 2)):
            with closed(w, paths.state("t", 0)):
                await alter(w, {("t", 0): target})
                await w.propagated()
                tries.clear()
                first_s = now_s()
                await asyncio.sleep(5.0 * fails - 2.0)
                await w.settle()
            await asyncio.sleep(4.0)
            await w.propagated()
            assert pauses([first_s, *tries]) == [pytest.approx(5.0, abs=ABOUT)] * fails
            queue = w.term.controller.reassignment_queue
            assert (queue.again, queue.timers) == (set(), set())
            for _ in range(3):
                await join(w)
                await w.propagated()
            assert not written(w, "t").moving
            tries.clear()
            await asyncio.sleep(60.0)
            assert tries == [], "no timer is left"


@pytest.mark.parametrize(("every_s", "again_s"), [(3_600.0, 30.0), (30.0, 30.0), (12.0, 12.0)])
@in_exact_time
async def test_expired_tokens_are_looked_for_every_interval_and_half_a_minute_after_each_failure(
    every_s: float, again_s: float
) -> None:
    meets: list[Exception | None] = [NotConnected(), QueueFull("full"), OutcomeUnknown(), None, NotConnected(), None]
    looks: list[float] = [now_s()]

    async def look(_: object) -> None:
        looks.append(now_s())
        if meets and (error := meets.pop(0)) is not None:
            raise error

    tasks: list[asyncio.Task[None]] = []
    c: Any = SimpleNamespace(
        adoption=SimpleNamespace(values=Values(token_check_s=every_s)),
        spawn=lambda work: tasks.append(asyncio.ensure_future(work)),
    )
    with mock.patch.object(clients, "_look", look):
        clients.begin(c)
        await asyncio.sleep(5.0 + 4 * again_s + 3 * every_s + 1.0)
    [task] = tasks
    task.cancel()
    assert pauses(looks) == [5.0, again_s, again_s, again_s, every_s, again_s, every_s, every_s][: len(looks) - 1]
    assert len(looks) >= 8


@in_exact_time
async def test_an_endpoint_that_goes_stays_listed_for_ten_seconds_each_time() -> None:
    assert GONE_S == 10.0
    async with world() as w:
        await w.begin_term()
        for away_s in (9.0, None, 9.0, 9.0, None, None):
            zk = await endpoint(w)
            await w.propagated()
            assert listed(w) == BOTH
            w.server.expire(zk.session_id)
            await w.propagated()
            for wait_s in (9.0,) if away_s else (9.7, 0.5):
                await asyncio.sleep(wait_s)
                await w.propagated()
                assert listed(w) == (INTERNAL if wait_s == 0.5 else BOTH)
        assert w.term.parts.endpoint.gone_s is None


@in_exact_time
async def test_the_balance_of_leaders_is_looked_at_after_five_seconds_and_then_every_five_minutes() -> None:
    async with world() as w:
        begun_s = now_s()
        await running(w, "t")
        looks = signals(w, EventKind.AUTO_BALANCE)
        await asyncio.sleep(5.0 + 3 * 300.0 + 10.0)
        assert pauses([begun_s, *looks]) == [pytest.approx(s, abs=ABOUT) for s in (5.0, 300.0, 300.0, 300.0)]


@in_exact_time
async def test_silent_brokers_are_queried_for_lost_ids_four_times_at_each_registration() -> None:
    asked: list[float] = []
    tasks: list[asyncio.Task[None]] = []
    lost = LostIds()
    lost.topics["t"] = 1
    c: Any = SimpleNamespace(
        lost_ids=lost,
        queue=mock.Mock(),
        cluster=SimpleNamespace(brokers={1: BROKER}),
        spawn=lambda work: tasks.append(asyncio.ensure_future(work)),
    )

    async def dial(*_: object) -> None:
        asked.append(now_s())

    with mock.patch.object(lost_ids, "_dial", dial):
        for cycle in range(1, 5):
            again = cycle == 4
            asked.clear()
            lost_ids.query_topic_ids_again(c, registered=True)
            assert (lost.asking, len(tasks)) == (True, cycle)
            await asyncio.sleep(1.5)
            if again:
                lost_ids.query_topic_ids_again(c, registered=True)
                assert len(tasks) == cycle, "one task asks"
            await asyncio.sleep(60.0)
            assert pauses(asked) == [1.0] * (5 if again else 3)
            assert (lost.asking, lost.tries_left) == (False, 0)


# -- beside the queue


@in_exact_time
async def test_refused_lists_are_read_every_half_minute_and_after_a_lost_connection_within_two_seconds() -> None:
    refused = ZkError(Code.NO_AUTH, "/kafka-acl")
    meets: list[Exception | None] = [refused, refused, refused, None, refused, NotConnected(), refused, None]
    reads: list[float] = []

    async def read(_: Authorizer, __: object) -> None:
        reads.append(now_s())
        error = meets.pop(0)
        if error is not None:
            raise error

    authorizer = Authorizer(principals(""), lists=True, open_=False, elsewhere=False, served=True)
    with mock.patch.object(Authorizer, "_read", read):
        following = asyncio.ensure_future(authorizer.follow(mock.Mock()))
        await asyncio.sleep(1_000.0)
        assert pauses(reads) == [30.0, 30.0, 30.0]
        reads.clear()
        authorizer.look_again(everything=False)
        await asyncio.sleep(1_000.0)
        assert pauses(reads) == [30.0, 2.0, 30.0]
        assert meets == []
        following.cancel()


@in_exact_time
async def test_defaults_of_topics_are_queried_again_five_seconds_after_each_failure() -> None:
    cluster = Cluster(1)
    cluster.observe_brokers({1: BROKER})
    answers = False
    asked: list[float] = []

    @asynccontextmanager
    async def dial(_: Broker) -> AsyncIterator[Any]:
        asked.append(now_s())
        if not answers:
            raise BrokerCallFailed("nobody listens")
        yield SimpleNamespace(broker_settings=mock.AsyncMock(return_value={}), api_versions={})

    configs = DefaultConfigs(cluster, dial, Ibp.parse("3.9"))
    for _ in range(3):
        answers = False
        configs.forget()
        for _ in range(3):
            asked.clear()
            assert await configs.known() is None
            await asyncio.sleep(4.9)
            assert await configs.known() is None
            assert len(asked) == 1, "not yet"
            await asyncio.sleep(0.2)
        answers = True
        asked.clear()
        assert await configs.known() is not None
        await asyncio.sleep(3_600.0)
        assert await configs.known() is not None
        assert len(asked) == 1
    asked.clear()
    configs.forget()
    for since_s, times in [(0.4, 1), (0.2, 2), (4.3, 3), (0.2, 3), (0.4, 4), (3_600.0, 4)]:
        assert await configs.known() is not None
        await asyncio.sleep(since_s)
        assert await configs.known() is not None
        assert len(asked) == times, since_s


@in_exact_time
async def test_the_secret_is_read_every_two_seconds() -> None:
    reads: list[float] = []
    watch = SecretWatch(mock.Mock(), Path("/secret"))

    async def look(*_: object) -> None:
        reads.append(now_s())

    with mock.patch.object(SecretWatch, "_look", look):
        keeping = asyncio.ensure_future(watch.keep())
        await asyncio.sleep(7.0)
        keeping.cancel()
    assert pauses(reads) == [2.0, 2.0, 2.0]


@in_exact_time
async def test_a_role_is_taken_back_once_the_connection_allows_it() -> None:
    meets: list[Exception | None] = [NotConnected(), OutcomeUnknown(), ZkError(Code.BAD_VERSION, "/regent/role"), None]
    tries: list[float] = []

    async def set_flag(*_: object) -> None:
        tries.append(now_s())
        if (error := meets.pop(0)) is not None:
            raise error

    role = SimpleNamespace(set_flag=set_flag)
    daemon: Any = SimpleNamespace(stopping=asyncio.Event(), role=role)
    await _take_back(daemon, "a test")
    assert pauses(tries) == [0.2, 0.2, 0.2]


@pytest.mark.parametrize("fails", [1, 3])
def test_a_journal_is_tried_again_every_five_seconds_each_time_the_disk_refuses(
    fails: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("controller.journal.journal.time", SimpleNamespace(monotonic=lambda: clock[0]))
    journal = Journal(tmp_path, JournalSettings(), Counters())
    refused = OSError(errno.ENOSPC, "No space left on device")
    with mock.patch.object(journal._segments, "sync") as sync:
        for _ in range(3):
            sync.side_effect = refused
            for _ in range(fails):
                sync.reset_mock()
                journal._write([], last=False)
                assert (sync.call_count, journal._failing) == (1, refused.strerror)
                clock[0] += 4.9
                journal._write([], last=False)
                assert sync.call_count == 1, "not yet"
                clock[0] += 0.2
            sync.side_effect = None
            journal._write([], last=False)
            assert (journal._failing, journal._counters.journal_failing) == ("", "")
            journal._write([], last=False)
            assert sync.call_count == 3


# -- a candidate


Meets = list[Exception | float | None]
"""What each claim meets: an error, a wait and then an error, or nothing."""


@asynccontextmanager
async def claims(meets: Meets) -> AsyncIterator[list[float]]:
    """Times of the claims."""
    times: list[float] = []
    really = Role.claim

    async def claim(role: Role) -> Claim:
        times.append(now_s())
        found = meets.pop(0) if meets else None
        if isinstance(found, float):
            await asyncio.sleep(found)
            raise ClaimRefused("not yet")
        if found is not None:
            raise found
        return await really(role)

    with mock.patch.object(Role, "claim", claim):
        yield times


def refusals(count: int) -> Meets:
    return [ClaimRefused("not yet") for _ in range(count)]


@in_exact_time
async def test_a_refused_claim_is_tried_again_after_growing_pauses_that_begin_anew_after_a_claim() -> None:
    """2 s to 16 s; a minute without a refusal, or a claim, makes those before forgotten."""
    meets: Meets = [*refusals(6), None]
    async with world() as w, claims(meets) as times:
        await regent_has_role(w)
        async with daemon(w) as d:
            for grown in ([2.0, 4.0, 8.0, 16.0, 16.0, 16.0], [0.0, 2.0, 4.0, 8.0]):
                term = await d.serving()
                assert d.daemon.mode is Mode.ACTIVE
                assert pauses(times) == [pytest.approx(s, abs=ABOUT) for s in grown[: len(times) - 1]]
                times.clear()
                meets[:] = [*refusals(3), None]
                with mock.patch("controller.kafka.brokers.broker_change.compare", side_effect=ValueError("a bug")):
                    times.append(now_s())
                    term.queue.signal(EventKind.BROKER_CHANGE)
                    await term.finished.wait()
            await d.serving()


@in_exact_time
async def test_refusals_that_lie_a_minute_apart_do_not_add_up() -> None:
    meets: Meets = [*refusals(2), 61.0, *refusals(1), 50.0, None]
    async with world() as w, claims(meets) as times:
        await regent_has_role(w)
        async with daemon(w) as d:
            await d.serving()
    assert pauses(times) == [pytest.approx(s, abs=ABOUT) for s in (2.0, 4.0, 63.0, 4.0, 58.0)]


@in_exact_time
async def test_terms_that_end_early_follow_each_other_with_a_pause_and_are_forgotten_after_a_term() -> None:
    """Five may; the sixth is an error, whose first one is tried again at once like any other."""
    fails = [3]

    async def fail_over(*_: object, **__: object) -> None:
        fails[0] -= 1
        if fails[0] >= 0:
            raise NotConnected("hung up")
        await really()

    async with world() as w:
        await regent_has_role(w)
        meets: Meets = []
        from controller.kafka.term.failover import fail_over as failing_over

        arguments: tuple[Any, ...] = ()

        async def really() -> None:
            await failing_over(*arguments)

        async def recorded(*given: Any) -> None:
            nonlocal arguments
            arguments = given
            await fail_over()

        async with claims(meets) as times:
            with mock.patch("controller.kafka.term.term.fail_over", recorded):
                async with daemon(w) as d:
                    for before, after in ((3, 5), (5, 5), (5, 4)):
                        term = await d.serving()
                        assert pauses(times) == [pytest.approx(0.2, abs=0.05)] * before
                        times.clear()
                        fails[0] = after
                        term.gate.end("a test")
                        await term.finished.wait()
                    await d.serving()
                    assert pauses(times) == [pytest.approx(0.2, abs=0.05)] * 4


@in_exact_time
async def test_a_daemon_whose_id_another_one_has_looks_every_two_seconds_or_at_a_change_of_the_queue() -> None:
    meets: list[str | None] = []
    looks: list[float] = []

    async def twin_of(*_: object) -> str | None:
        looks.append(now_s())
        return meets.pop(0) if meets else None

    async with world() as w:
        await regent_has_role(w)
        with mock.patch("controller.daemon.admission.twin_of", twin_of):
            async with daemon(w) as d:
                await d.serving()
                for cycle in range(3):
                    meets[:] = ["another daemon has controller.id 1"] * 3
                    looks.clear()
                    w.server.expire(d.session)
                    await d.reason_contains("has controller.id 1")
                    assert d.daemon.mode is Mode.BLOCKED
                    if cycle == 1:
                        await w.operator.create(f"{own.LOCKS}/lock-", b"", sequential=True)
                    await d.serving()
                    first_s = 0.0 if cycle == 1 else 2.0
                    assert pauses(looks) == [pytest.approx(s, abs=ABOUT) for s in (first_s, 2.0, 2.0)]


@in_exact_time
async def test_a_daemon_that_brokers_outrank_claims_again_two_seconds_after_the_epoch_was_raised_each_time() -> None:
    async with world() as w, daemon(w) as d:
        await regent_has_role(w)
        for cycle in range(1, 4):
            term = await d.serving()
            w.wires.errors |= {2: 11, 3: 11}
            term.channels.live_list_changed()
            await d.reason_contains("brokers have seen a higher controller epoch")
            claimed = epoch(w)
            for _ in range(cycle):
                await asyncio.sleep(60.0)
                w.server.reconnect(d.session)
            assert (epoch(w), d.daemon.mode) == (claimed, Mode.BLOCKED)
            w.wires.errors.clear()
            raised_s = now_s()
            await w.operator.set(paths.CONTROLLER_EPOCH, b"%d" % (100 * cycle), -1)
            await d.serving()
            assert epoch(w) == 100 * cycle + 1
            assert now_s() - raised_s <= 2.0 + ABOUT


@in_exact_time
async def test_a_daemon_without_a_session_connects_again_every_second_each_time() -> None:
    tries: list[float] = []
    fails = 3
    really = MemoryZooKeeper.connect

    async def connect(zk: MemoryZooKeeper, timeout_s: float) -> None:
        nonlocal fails
        tries.append(now_s())
        fails -= 1
        if fails >= 0:
            raise ConnectFailed("nobody there")
        await really(zk, timeout_s)

    async with world() as w:
        await regent_has_role(w)
        with mock.patch.object(MemoryZooKeeper, "connect", connect):
            async with daemon(w) as d:
                for failed, next_fails in ((3, 0), (0, 2), (2, 3), (3, 0)):
                    await d.serving()
                    assert pauses(tries) == [pytest.approx(1.0, abs=0.05)] * failed
                    tries.clear()
                    fails = next_fails
                    w.server.expire(d.session)
                    await asyncio.sleep(0.1)
