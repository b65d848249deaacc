"""What is learned of connections that end at large requests, and what is not."""

from __future__ import annotations

import asyncio
import logging

import pytest

from metadata_store.kazoo_adapter import jute
from metadata_store.kazoo_adapter.jute import Reply
from metadata_store.kazoo_adapter.kazoo_client import Call
from metadata_store.kazoo_adapter.limits import BATCH_BYTES_MAX, CUT_BYTES, HOLDS_S, SOON_S, SUSPECT_BYTES, Limits
from metadata_store.port import REQUEST_BYTES_MAX, WRITE_BYTES_MAX

USUAL = (REQUEST_BYTES_MAX, WRITE_BYTES_MAX)
OTHER = 71


class Servers:
    """Limits, the clock that they see, and connections that end at requests."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.limits = Limits(lambda: self.now_s)

    def hangs_up(self, *sizes: int, opcode: int = jute.MULTI_READ, under_way_s: float = 0.01) -> tuple[int, int]:
        """A connection ends while requests of these sizes are under way; returns what is allowed now."""
        for size in sizes:
            self.limits.unanswered(opcode, size, under_way_s)
        self.limits.ended()
        return self.allowed

    @property
    def allowed(self) -> tuple[int, int]:
        return self.limits.batch_bytes, self.limits.write_bytes


@pytest.mark.kafka("KafkaZkClientTest.testJuteMaxBuffer")
def test_batches_are_cut_once_the_same_large_request_met_two_ends(caplog: pytest.LogCaptureFixture) -> None:
    servers = Servers()
    assert servers.hangs_up(40, 520_000, 75_000) == USUAL
    servers.limits.answered(75_000)
    assert servers.hangs_up(520_010) == (CUT_BYTES, WRITE_BYTES_MAX), "a retry has other epochs in it"
    assert "for 10 minutes, then larger ones are tried again" in caplog.text
    assert "raise it to 1048575" in caplog.text


def test_a_blip_costs_nothing_and_neither_do_many_with_something_else_under_way() -> None:
    servers = Servers()
    assert servers.hangs_up(75_000) == USUAL
    servers.limits.answered(75_000)
    assert servers.hangs_up(200_000) == USUAL, "it was answered in between"
    servers.limits.answered(200_000)
    assert servers.hangs_up(200_000) == USUAL
    assert servers.hangs_up(200_000, opcode=OTHER) == USUAL, "another request"
    assert servers.hangs_up(900_000, opcode=OTHER) == USUAL, "another one again"
    assert servers.hangs_up() == USUAL
    assert servers.hangs_up(900_000, opcode=OTHER) == USUAL, "not two in a row"
    for _ in range(5):
        assert servers.hangs_up(SUSPECT_BYTES) == USUAL, "small ones are not the reason"
        assert servers.hangs_up(200_000, under_way_s=2 * SOON_S) == USUAL, "the server had taken it"


def test_batches_that_were_cut_are_no_suspects() -> None:
    servers = Servers()
    for size in (520_000, 520_000, CUT_BYTES + 4_096, CUT_BYTES + 4_096):
        servers.hangs_up(size)
    assert servers.allowed == (CUT_BYTES, WRITE_BYTES_MAX)


@pytest.mark.parametrize("size", [BATCH_BYTES_MAX + 1, 100_000])
def test_a_write_that_cannot_be_cut_is_refused_in_the_end(size: int) -> None:
    servers = Servers()
    ends = 0
    while servers.limits.write_bytes >= size:
        servers.hangs_up(size, opcode=jute.SET_DATA)
        ends += 1
    assert servers.limits.write_bytes == size - 1
    assert ends == (2 if size > BATCH_BYTES_MAX else 4)


def test_after_some_minutes_the_usual_sizes_are_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    servers = Servers()
    for _ in range(4):
        servers.hangs_up(520_000)
    servers.now_s += HOLDS_S - 1
    assert servers.allowed == (CUT_BYTES, 519_999)
    servers.now_s += 1
    assert servers.allowed == USUAL
    assert "requests to ZooKeeper have their usual sizes" in caplog.text
    assert servers.hangs_up(520_000) == USUAL
    assert servers.hangs_up(520_000) == (CUT_BYTES, WRITE_BYTES_MAX), "learned again"


def test_a_request_of_the_size_that_is_answered_proves_it_wrong() -> None:
    servers = Servers()
    for _ in range(2):
        servers.hangs_up(300_000)
    servers.limits.answered(299_999)
    assert servers.limits.batch_bytes == CUT_BYTES
    servers.limits.answered(300_000)
    assert servers.allowed == USUAL


class Told:
    """What a call tells its listener."""

    def __init__(self) -> None:
        self.last_zxid = 0
        self.unanswered_ones: list[tuple[int, int, float]] = []
        self.answered_ones: list[int] = []

    def hand_over(self, item) -> None:  # type: ignore[no-untyped-def]
        item()

    def unanswered(self, opcode: int, size: int, under_way_s: float) -> None:
        self.unanswered_ones.append((opcode, size, under_way_s))

    def answered(self, size: int) -> None:
        self.answered_ones.append(size)


async def test_calls_tell_their_size_and_how_long_they_were_under_way() -> None:
    told = Told()
    sent, kept, answered = (Call(told, jute.SYNC, b"x" * n, writes=False) for n in (3, 4, 5))  # type: ignore[arg-type]
    sent.serialize()
    answered.serialize()
    answered.reply(Reply(0, 7, b"", 0))
    for call in (sent, kept):
        call.set_exception(ConnectionError())
    assert told.answered_ones == [5]
    [(opcode, size, under_way_s)] = told.unanswered_ones
    assert (opcode, size) == (jute.SYNC, 3), "what was not sent is not the reason"
    assert 0 <= under_way_s < SOON_S
    await asyncio.gather(sent.future, kept.future, return_exceptions=True)
