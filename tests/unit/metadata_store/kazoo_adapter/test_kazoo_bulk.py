"""Bulk requests: how they are cut, how many are under way, and sizes that are learned from ends of connections."""

from __future__ import annotations

import asyncio
import gc
import logging
import struct
from contextlib import suppress
from typing import Any

import pytest

from metadata_store.errors import Code, ZkError
from metadata_store.kazoo_adapter import jute
from metadata_store.kazoo_adapter.adapter import ENOUGH_BYTES, JAVA_ANSWER_BYTES_MAX, SINGLE_READS_MAX, Listings
from metadata_store.kazoo_adapter.jute import Reply
from metadata_store.kazoo_adapter.limits import (
    BATCH_BYTES_MAX,
    CUT_BYTES,
    HOLDS_S,
    SOON_S,
    SUSPECT_BYTES,
    LearnedLimits,
    answers,
    by_size,
    watch_chunks,
)
from metadata_store.port import (
    IN_FLIGHT_MAX,
    READ_PATHS_MAX,
    REQUEST_BYTES_MAX,
    WRITE_BYTES_MAX,
    Node,
    SetData,
    Stat,
)
from tests.kit.deadlines import in_exact_time
from tests.kit.kafka.parts import Clock
from tests.kit.kazoo import adapter, multi_read_reply, multi_reply, turns


@pytest.mark.parametrize(
    ("sizes", "count_max", "bytes_max", "overhead", "counts"),
    [
        ([1] * 5, 2, 10, 0, [2, 2, 1]),
        ([1], 5, 10, 0, [1]),
        ([], 5, 10, 0, []),
        ([4] * 4, 9, 10, 1, [2, 2]),
        ([4] * 4, 9, 9, 1, [1, 1, 1, 1]),
        ([1, 99, 1], 9, 10, 0, [1, 1, 1]),
        ([5, 5, 1], 9, 10, 0, [2, 1]),
    ],
)
def test_paths_are_cut_by_number_and_bytes_and_a_huge_one_goes_alone(
    sizes: list[int], count_max: int, bytes_max: int, overhead: int, counts: list[int]
) -> None:
    paths = ["x" * size for size in sizes]
    chunks = list(by_size(paths, count_max, bytes_max, overhead))
    assert list(map(len, chunks)) == counts
    assert [path for chunk in chunks for path in chunk] == paths


def test_watches_are_cut_by_kind() -> None:
    assert list(watch_chunks([["a"], [], ["b", "c"]], REQUEST_BYTES_MAX)) == [(["a"], (), ()), ((), (), ["b", "c"])]


def test_a_listing_that_brokers_cannot_read_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    listings = Listings()
    listings.read("/brokers/topics", JAVA_ANSWER_BYTES_MAX)
    assert not caplog.records
    for size in (JAVA_ANSWER_BYTES_MAX + 1, 2 * JAVA_ANSWER_BYTES_MAX):
        listings.read("/brokers/topics", size)
    [line] = caplog.messages
    assert f"/brokers/topics take {JAVA_ANSWER_BYTES_MAX + 1} bytes" in line
    assert f"-Djute.maxbuffer={ENOUGH_BYTES}" in line


async def test_requests_under_way_are_bounded_and_their_replies_in_order() -> None:
    under_way: list[asyncio.Future[Reply]] = []
    most = 0

    def send(opcode: int, body: bytes) -> asyncio.Future[Reply]:
        nonlocal most
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        under_way.append(future)
        most = max(most, sum(not sent.done() for sent in under_way))
        asyncio.get_running_loop().call_soon(future.set_result, Reply(0, opcode, body, 0))
        return future

    requests = [(n, b"", n) for n in range(20)]
    found = [(reply.zxid, count) async for reply, count in answers(send, requests, 3)]
    assert found == [(n, n) for n in range(20)]
    assert most == 3


async def test_replies_behind_a_failed_one_are_abandoned_without_a_complaint() -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    async def fail() -> bool:
        futures: list[asyncio.Future[Reply]] = [asyncio.get_running_loop().create_future() for _ in range(3)]
        left = list(futures)
        for future in futures[:2]:
            future.set_exception(ZkError(Code.SYSTEM_ERROR, "/"))
        with suppress(ZkError):
            await anext(answers(lambda _, __: left.pop(0), [(1, b"", 1)] * 3, 3))
        return futures[2].cancelled()

    assert await fail()
    gc.collect()
    await turns()
    assert failures == []


END = bytes.fromhex("ffffffff 01 ffffffff")
"""Header that ends a multi or a MultiRead: type -1, done, error -1."""
ODD_STAT = struct.pack("!qqqqiiiqiiq", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)


@pytest.mark.parametrize("chroot", ["", "/kafka"])
@in_exact_time
async def test_a_multi_read_holds_znodes_of_every_length_among_unreadable_ones(chroot: str) -> None:
    datas: list[bytes | Code | None] = [b"x", Code.NO_NODE, None, b"", Code.NO_AUTH, b"y" * 300, b"z"]
    reply = b"".join(
        multi_read_reply(data) if isinstance(data, Code) else multi_reply(jute.GET_DATA, jute.blob(data) + ODD_STAT)
        for data in datas
    )
    stat = Stat(1, 2, 5, 8, 10, 11, 7, 3)
    async with adapter(f"a:1{chroot}") as (zk, wire, _):
        paths = [f"/{number}" for number in range(len(datas))]
        reading = await wire.begin(zk.read_many(paths))
        assert wire.sent == [(jute.MULTI_READ, jute.multi_read([f"{chroot}{path}".encode() for path in paths]))]
        assert wire.sent[0][1].endswith(END)
        wire.reply(reply)
        assert await reading == [data if isinstance(data, Code) else Node(data, stat) for data in datas]
        decoding = await wire.begin(zk.read_decoded(paths, lambda data, version: (data, version)))
        wire.reply(reply)
        assert await decoding == [data if isinstance(data, Code) else (data, 5) for data in datas]


# -- as they are sent


def paths_of(total: int) -> list[str]:
    """Returns paths that take ``total`` bytes in MultiReads, 10 000 each but the last."""
    each = 10_000 - jute.READ_OVERHEAD
    whole, rest = divmod(total, 10_000)
    return ["/" + "x" * (each - 1)] * whole + ["/" + "x" * (rest - jute.READ_OVERHEAD - 1)]


WHOLE = REQUEST_BYTES_MAX // 10_000


@pytest.mark.parametrize(
    ("paths", "counts"),
    [
        (["/a"] * READ_PATHS_MAX, [READ_PATHS_MAX]),
        (["/a"] * (READ_PATHS_MAX + 1), [READ_PATHS_MAX, 1]),
        (paths_of(REQUEST_BYTES_MAX), [WHOLE + 1]),
        (paths_of(REQUEST_BYTES_MAX + 1), [WHOLE, 1]),
        ([*paths_of(REQUEST_BYTES_MAX), "/a"], [WHOLE + 1, 1]),
    ],
)
@in_exact_time
async def test_reads_are_split_at_the_bounds_of_paths_and_bytes(paths: list[str], counts: list[int]) -> None:
    async with adapter() as (zk, wire, _):
        for _ in range(2):
            wire.sent.clear()
            reading = await wire.begin(zk.read_many(paths))
            assert [opcode for opcode, _ in wire.sent] == [jute.MULTI_READ] * len(counts)
            for count in counts:
                wire.reply(multi_read_reply(*[Code.NO_NODE] * count))
            assert await reading == [Code.NO_NODE] * len(paths)


@pytest.mark.parametrize(("multi_read", "most"), [(True, IN_FLIGHT_MAX), (False, SINGLE_READS_MAX)])
@in_exact_time
async def test_no_more_reads_are_under_way_than_allowed(multi_read: bool, most: int) -> None:
    async with adapter(multi_read=multi_read) as (zk, wire, _):
        reading = await wire.begin(zk.read_many(["/a"] * (most + 2), paths_max=1), sends=False)
        body, err = (multi_read_reply(Code.NO_NODE), 0) if multi_read else (b"", int(Code.NO_NODE))
        for _ in range(3):
            assert wire.write() == most
            wire.reply(body, err=err)
            await turns()
        await wire.reply_all(body, err=err)
        assert await reading == [Code.NO_NODE] * (most + 2)


@in_exact_time
async def test_reads_and_watches_are_cut_smaller_while_the_server_hangs_up_at_large_requests() -> None:
    async with adapter() as (zk, wire, _):
        paths = [f"/{number:02d}" + "x" * 983 for number in range(100)]
        for limit, requests in [(REQUEST_BYTES_MAX, 1), (CUT_BYTES, 2)]:
            if limit == CUT_BYTES:
                for _ in range(2):
                    zk.limits.unanswered(jute.MULTI_READ, 500_000, 0.1)
                    zk.limits.ended()
            assert zk.request_bytes_max == limit
            for request in (zk.read_many(paths), zk.watch(data=paths, since_zxid=1)):
                wire.sent.clear()
                asked: asyncio.Task[Any] = await wire.begin(request)
                bodies = [body for _, body in wire.sent]
                assert len(bodies) == requests
                assert all(len(body) <= limit + 64 for body in bodies)
                assert all(b"".join(bodies).count(path.encode()) == 1 for path in paths)
                asked.cancel()
                await turns()
                await wire.reply_all(err=Code.NO_NODE)


@in_exact_time
async def test_single_writes_up_to_the_bound_are_sent_and_larger_ones_refused() -> None:
    async with adapter() as (zk, wire, _):
        around = len(jute.set_data(SetData("/a", b"", 0), "/a"))
        for make in (
            lambda size: zk.set("/a", b"x" * (size - around), 0),
            lambda size: zk.apply([SetData("/a", b"x" * (size - around - 18), 0)]),
            lambda size: zk.multi([SetData("/a", b"x" * (size - around - 18), 0)]),
        ):
            wire.sent.clear()
            with pytest.raises(ZkError) as refused:
                await make(WRITE_BYTES_MAX + 1)
            assert (refused.value.code, wire.sent) == (Code.TOO_BIG, [])
            asked: asyncio.Task[Any] = await wire.begin(make(WRITE_BYTES_MAX))
            [(opcode, body)] = wire.sent
            assert len(body) == WRITE_BYTES_MAX
            assert opcode == jute.SET_DATA or body.endswith(END)
            wire.reply(multi_reply(jute.SET_DATA))
            await asked


USUAL = (REQUEST_BYTES_MAX, WRITE_BYTES_MAX)
CUT = (CUT_BYTES, WRITE_BYTES_MAX)
OTHER = 71


class Server:
    """A server that hangs up at requests. ``allowed``: bytes of batches and of writes that are sent now."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.limits = LearnedLimits(self.clock)

    def hangs_up(self, *sizes: int, opcode: int = jute.MULTI_READ, under_way_s: float = 0.01) -> tuple[int, int]:
        """Ends a connection while requests of these sizes are under way; returns what is allowed then."""
        for size in sizes:
            self.limits.unanswered(opcode, size, under_way_s)
        self.limits.ended()
        return self.allowed

    @property
    def allowed(self) -> tuple[int, int]:
        return self.limits.batch_bytes, self.limits.write_bytes


@pytest.mark.kafka("KafkaZkClientTest.testJuteMaxBuffer")
def test_batches_are_cut_once_the_same_large_request_met_two_ends(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    assert server.hangs_up(40, 520_000, 75_000) == USUAL
    server.limits.answered(75_000)
    assert server.hangs_up(520_010) == CUT, "a retry has other epochs in it"
    assert "for 10 minutes, then larger ones are tried again" in caplog.text
    assert "raise it to 1048575" in caplog.text


@pytest.mark.parametrize(
    ("first", "second", "learned"),
    [
        ({"size": SUSPECT_BYTES}, {"size": SUSPECT_BYTES}, False),
        ({"size": SUSPECT_BYTES + 1}, {"size": SUSPECT_BYTES + 1}, True),
        ({"size": 200_000, "under_way_s": SOON_S}, {"size": 200_000, "under_way_s": SOON_S}, True),
        ({"size": 200_000, "under_way_s": SOON_S + 0.01}, {"size": 200_000, "under_way_s": SOON_S + 0.01}, False),
        ({"size": 200_000}, {"size": 200_000, "opcode": OTHER}, False),
        ({"size": 200_000}, {"size": 225_000}, True),
        ({"size": 200_000}, {"size": 230_000}, False),
        ({"size": 200_000}, {"size": 175_000}, False),
    ],
)
def test_two_ends_at_large_fresh_and_similar_requests_cut_batches(
    first: dict[str, float], second: dict[str, float], learned: bool
) -> None:
    server = Server()
    for end in (first, second):
        server.hangs_up(int(end["size"]), **{name: end[name] for name in end.keys() - {"size"}})  # type: ignore[arg-type]
    assert server.allowed == (CUT if learned else USUAL)


@pytest.mark.parametrize("between", ["reply", "other end", "larger reply"])
def test_what_happens_between_two_ends_clears_the_suspicion(between: str) -> None:
    server = Server()
    for _ in range(3):
        assert server.hangs_up(200_000) == USUAL
        if between == "other end":
            assert server.hangs_up() == USUAL
        else:
            server.limits.answered(200_000 if between == "reply" else 250_000)
    assert server.hangs_up(200_000) == USUAL
    server.limits.answered(199_999)
    assert server.hangs_up(200_000) == CUT, "a smaller one proves nothing"


def test_batches_that_were_cut_are_no_suspects() -> None:
    server = Server()
    for size in (520_000, 520_000, CUT_BYTES + 4_096, CUT_BYTES + 4_096):
        server.hangs_up(size)
    assert server.allowed == CUT


@pytest.mark.parametrize(("size", "ends"), [(BATCH_BYTES_MAX + 1, 2), (BATCH_BYTES_MAX, 4), (100_000, 4)])
def test_a_write_that_cannot_be_cut_is_refused_after_so_many_ends(size: int, ends: int) -> None:
    server = Server()
    for _ in range(ends):
        assert server.limits.write_bytes == WRITE_BYTES_MAX
        server.hangs_up(size, opcode=jute.SET_DATA)
    assert server.limits.write_bytes == size - 1


def test_learned_sizes_hold_for_some_minutes_each_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = Server()
    for _ in range(3):
        caplog.clear()
        assert [server.hangs_up(520_000) for _ in range(4)] == [USUAL, CUT, CUT, (CUT_BYTES, 519_999)]
        server.clock.now_s += HOLDS_S - 0.1
        assert server.allowed == (CUT_BYTES, 519_999)
        server.clock.now_s += 0.1
        assert server.allowed == USUAL
        assert "requests to ZooKeeper have their usual sizes" in caplog.text


def test_a_reply_to_a_request_of_the_size_restores_the_usual_sizes() -> None:
    server = Server()
    for _ in range(2):
        server.hangs_up(300_000)
    server.limits.answered(299_999)
    assert server.limits.batch_bytes == CUT_BYTES
    server.limits.answered(300_000)
    assert server.allowed == USUAL


@pytest.mark.parametrize(("sent", "learned"), [(True, True), (False, False)])
@in_exact_time
async def test_a_request_counts_by_its_size_once_it_was_sent(sent: bool, learned: bool) -> None:
    async with adapter() as (zk, wire, _):
        for _ in range(2):
            asked = await wire.begin(zk.set("/a", b"x" * 600_000, 0), sends=sent)
            await wire.reconnect()
            await asyncio.gather(asked, return_exceptions=True)
            await turns()
        assert (zk.limits.write_bytes < 700_000) == learned
        if learned:
            asked = await wire.begin(zk.set("/a", b"x" * (zk.limits.write_bytes - 100), 0))
            wire.reply(bytes(68))
            await asked
            assert zk.limits.write_bytes < 700_000, "a smaller request got a reply"
