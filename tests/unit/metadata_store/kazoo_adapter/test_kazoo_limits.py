"""Request sizes that are learned from connections that end at large requests, and those that are not."""

from __future__ import annotations

import asyncio
import logging

import pytest

from metadata_store.kazoo_adapter import jute
from metadata_store.kazoo_adapter.limits import BATCH_BYTES_MAX, CUT_BYTES, HOLDS_S, SOON_S, SUSPECT_BYTES, Limits
from metadata_store.port import REQUEST_BYTES_MAX, WRITE_BYTES_MAX
from tests.kit.controller_parts import Clock
from tests.kit.kazoo_kit import adapter, turns
from tests.kit.virtual_time import in_exact_time

USUAL = (REQUEST_BYTES_MAX, WRITE_BYTES_MAX)
CUT = (CUT_BYTES, WRITE_BYTES_MAX)
OTHER = 71


class Server:
    """A server that hangs up at requests. ``allowed``: bytes of batches and of writes that are sent now."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.limits = Limits(self.clock)

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
