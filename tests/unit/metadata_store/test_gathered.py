"""Calls of many tasks on one session: few requests, and each call as if it had been alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from metadata_store import gathered
from metadata_store.acl import READ, Acl
from metadata_store.errors import Code, MultiFailed, NotConnected, OutcomeUnknown, SessionLost, ZkError
from metadata_store.gathered import Gathered
from metadata_store.port import (
    ANY_VERSION,
    ConnectionState,
    Create,
    Created,
    Delete,
    Kill,
    Op,
    OpResult,
    SetData,
    Write,
)
from testing.memory import MemoryServer, MemoryZooKeeper
from tests.kit.deadlines import eventually


class Counting:
    """Counts requests, and may do something before the next one. ``sizes``: operations of each."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.fails: BaseException | None = None
        self.held: asyncio.Event | None = None

    async def before(self, ops: Sequence[Write]) -> None:
        self.sizes.append(len(ops))
        if self.held is not None:
            await self.held.wait()
        if self.fails is not None:
            error, self.fails = self.fails, None
            raise error

    async def after(self, ops: Sequence[Write]) -> None:
        """Does nothing."""


@pytest.fixture
async def zk() -> MemoryZooKeeper:
    found = MemoryZooKeeper(MemoryServer())
    await found.connect(1.0)
    found.hooks = Counting()
    return found


def counted(zk: MemoryZooKeeper) -> Counting:
    assert isinstance(zk.hooks, Counting)
    return zk.hooks


async def test_writes_that_wait_together_go_together(zk: MemoryZooKeeper) -> None:
    calls = Gathered(zk)
    made = [calls.multi([Create(f"/{number}", b"%d" % number)]) for number in range(50)]
    assert [one.path for [one] in await asyncio.gather(*made) if isinstance(one, Created)] == [
        f"/{n}" for n in range(50)
    ]
    assert counted(zk).sizes == [50]
    found = await asyncio.gather(*(calls.read(f"/{number}", "/none") for number in range(50)))
    assert [(one and one.data, none) for one, none in found] == [(b"%d" % number, None) for number in range(50)]


async def test_what_comes_meanwhile_goes_next(zk: MemoryZooKeeper) -> None:
    calls, hooks = Gathered(zk), counted(zk)
    hooks.held = asyncio.Event()
    first = asyncio.ensure_future(calls.multi([Create("/a", None)]))
    await eventually(lambda: hooks.sizes)
    others = [asyncio.ensure_future(calls.multi([Create(f"/{n}", None), Delete(f"/{n}", 0)])) for n in range(3)]
    await asyncio.sleep(0)
    hooks.held.set()
    await asyncio.gather(first, *others)
    assert hooks.sizes == [1, 6]


@pytest.mark.parametrize("bad", [0, 1, 3])
async def test_a_write_that_is_refused_fails_alone(zk: MemoryZooKeeper, bad: int) -> None:
    await zk.create("/there", b"")
    calls = Gathered(zk)
    counted(zk).sizes.clear()
    writes: list[list[Op]] = [
        [Create(f"/{n}", b""), SetData("/there", b"x", 7) if n == bad else SetData(f"/{n}", b"y", 0)] for n in range(4)
    ]
    found = await asyncio.gather(*map(calls.multi, writes), return_exceptions=True)
    failed = found[bad]
    assert isinstance(failed, MultiFailed)
    assert (failed.code, failed.index, failed.path, len(failed.codes)) == (Code.BAD_VERSION, 1, "/there", 2)
    assert [isinstance(one, list) and len(one) for one in found] == [2 if n != bad else False for n in range(4)]
    sizes = [8, *(2 * part for part in (bad, 3 - bad) if part)]
    assert counted(zk).sizes == sizes, "those before it, which ZooKeeper has found good, and then those behind it"
    assert [await zk.exists(f"/{n}") is not None for n in range(4)] == [n != bad for n in range(4)]


async def test_all_writes_of_a_request_without_a_response_are_of_unknown_outcome(zk: MemoryZooKeeper) -> None:
    calls = Gathered(zk)
    zk.server.lose_replies(zk.session_id)
    found = await asyncio.gather(*(calls.multi([Create(f"/{n}", b"")]) for n in range(3)), return_exceptions=True)
    assert [type(one) for one in found] == [OutcomeUnknown] * 3


async def test_nothing_is_written_without_a_connection_and_the_next_calls_are(zk: MemoryZooKeeper) -> None:
    calls, hooks = Gathered(zk), counted(zk)
    hooks.fails = NotConnected("no connection")
    found = await asyncio.gather(*(calls.multi([Create(f"/{n}", b"")]) for n in range(3)), return_exceptions=True)
    assert [type(one) for one in found] == [NotConnected] * 3
    hooks.fails = None
    assert await calls.multi([Create("/0", b"")])


async def test_a_znode_that_may_not_be_read_fails_its_call_alone(zk: MemoryZooKeeper) -> None:
    await zk.create("/open", b"x")
    await zk.create("/closed", b"x", acl=[Acl(READ, "digest", "other:hash")])
    calls = Gathered(zk)
    one, other = await asyncio.gather(calls.read("/open"), calls.read("/open", "/closed"), return_exceptions=True)
    assert isinstance(one, list)
    assert one[0] is not None
    assert isinstance(other, ZkError)
    assert (other.code, other.path) == (Code.NO_AUTH, "/closed")


async def test_a_call_that_is_cancelled_before_it_goes_is_not_carried_out(zk: MemoryZooKeeper) -> None:
    calls = Gathered(zk)
    one, other = (asyncio.ensure_future(calls.multi([Create(path, b"")])) for path in ("/one", "/other"))
    await asyncio.sleep(0)
    one.cancel()
    await other
    await asyncio.gather(one, return_exceptions=True)
    assert (await zk.exists("/one"), await zk.exists("/other") is not None) == (None, True)


async def test_requests_are_bounded_by_calls_and_by_bytes(zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered, "CALLS_MAX", 3)
    calls, hooks = Gathered(zk), counted(zk)
    await asyncio.gather(*(calls.multi([Create(f"/{n}", b"")]) for n in range(7)))
    assert hooks.sizes == [3, 3, 1]
    hooks.sizes.clear()
    large = b"x" * (zk.write_bytes_max // 4)
    await asyncio.gather(*(calls.multi([SetData(f"/{n}", large, ANY_VERSION)]) for n in range(3)))
    assert hooks.sizes == [1, 1, 1]


async def test_a_write_among_many_that_are_refused_is_done_by_the_first_request_that_it_is_of(
    zk: MemoryZooKeeper,
) -> None:
    """Those that are refused come back at once, as servers do whose znodes are not as they should be."""
    calls, stop = Gathered(zk), asyncio.Event()

    async def refused() -> None:
        while not stop.is_set():
            with pytest.raises(MultiFailed):
                await calls.multi([Delete("/none", 0)])

    failing = [asyncio.ensure_future(refused()) for _ in range(15)]
    await asyncio.sleep(0)
    await calls.multi([Create("/good", b"")])
    most = 2 * (2 * len(failing) + 1)
    assert len(counted(zk).sizes) <= most
    stop.set()
    await asyncio.gather(*failing)


async def test_each_caller_has_an_error_of_its_own(zk: MemoryZooKeeper) -> None:
    counted(zk).fails = NotConnected("no connection")
    calls = Gathered(zk)
    made = calls.multi([Create("/0", b"")]), calls.multi([Create("/1", b"")])
    one, other = await asyncio.gather(*made, return_exceptions=True)
    assert isinstance(one, NotConnected)
    assert one is not other
    zk.server.expire(zk.session_id)
    await eventually(lambda: zk.state is ConnectionState.LOST)
    read, also = await asyncio.gather(calls.read("/0"), calls.read("/1"), return_exceptions=True)
    assert isinstance(read, NotConnected)
    assert read is not also


async def test_a_call_of_a_session_that_is_over_is_not_carried_out_in_the_next_one(zk: MemoryZooKeeper) -> None:
    calls, hooks = Gathered(zk), counted(zk)
    hooks.held, hooks.fails = asyncio.Event(), NotConnected("no connection")
    sent = asyncio.ensure_future(calls.multi([Create("/sent", b"")]))
    await eventually(lambda: hooks.sizes)
    waiting = asyncio.ensure_future(calls.multi([Create("/0", b"")]))
    await asyncio.sleep(0)
    zk.server.expire(zk.session_id)
    await eventually(lambda: zk.state is ConnectionState.LOST)
    await zk.connect(1.0)
    hooks.held.set()
    with pytest.raises(SessionLost):
        await waiting
    await asyncio.gather(sent, return_exceptions=True)
    assert await zk.exists("/0") is None
    assert await calls.multi([Create("/1", b"")])


@pytest.mark.parametrize(("fails", "waits"), [(None, NotConnected), (Kill(), Kill)])
async def test_no_call_waits_for_a_task_that_is_gone(
    zk: MemoryZooKeeper, fails: Kill | None, waits: type[BaseException]
) -> None:
    """Of writes under way nothing is known then, unless the process died; those behind them were never sent."""
    calls, hooks = Gathered(zk), counted(zk)
    hooks.held, hooks.fails = asyncio.Event(), fails
    sent = asyncio.ensure_future(calls.multi([Create("/sent", b"")]))
    await eventually(lambda: hooks.sizes)
    waiting = asyncio.ensure_future(calls.multi([Create("/waits", b"")]))
    await asyncio.sleep(0)
    if fails is None:
        [serving] = [one for one in asyncio.all_tasks() if one.get_name() == "gathered"]
        serving.cancel()
    hooks.held.set()
    for one, expected in ((sent, OutcomeUnknown if fails is None else Kill), (waiting, waits)):
        with pytest.raises(expected):
            await one
    hooks.fails = None
    assert await calls.multi([Create("/next", b"")])


async def test_a_call_that_cannot_be_weighed_fails_alone(zk: MemoryZooKeeper) -> None:
    calls = Gathered(zk)
    with pytest.raises(UnicodeEncodeError):
        await calls.multi([Create("/\ud800", b"")])
    assert await calls.multi([Create("/good", b"")])


async def test_a_fault_ends_its_own_calls_and_no_later_one(zk: MemoryZooKeeper) -> None:
    calls, hooks = Gathered(zk), counted(zk)
    hooks.held, hooks.fails = asyncio.Event(), RuntimeError("a fault")
    first = asyncio.ensure_future(calls.multi([Create("/first", b"")]))
    await eventually(lambda: hooks.sizes)
    second = asyncio.ensure_future(calls.multi([Create("/second", b"")]))
    await asyncio.sleep(0)
    hooks.held.set()
    with pytest.raises(RuntimeError, match="a fault"):
        await first
    hooks.fails = None
    assert await second


async def test_no_part_of_a_request_goes_in_the_next_session(zk: MemoryZooKeeper) -> None:
    """One of its calls is refused, and the session ends before those behind it go again."""
    await zk.create("/there", b"")
    calls, multi, sent = Gathered(zk), zk.multi, list[int]()

    async def once(ops: Sequence[Op]) -> list[OpResult]:
        sent.append(len(ops))
        try:
            return await multi(ops)
        finally:
            zk.server.expire(zk.session_id)
            await eventually(lambda: zk.state is ConnectionState.LOST)
            await zk.connect(1.0)

    zk.multi = once  # type: ignore[method-assign]
    made = (calls.multi([SetData(path, b"", 7)]) for path in ("/there", "/a"))
    refused, other = await asyncio.gather(*made, return_exceptions=True)
    assert isinstance(refused, MultiFailed)
    assert isinstance(other, SessionLost)
    assert sent == [2]
