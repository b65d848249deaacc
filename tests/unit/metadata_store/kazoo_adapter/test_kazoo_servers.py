"""The order and the time limits of attempts at servers, and when a server counts as frozen."""

from __future__ import annotations

import asyncio

import pytest

from metadata_store.errors import NotConnected
from metadata_store.kazoo_adapter.jute import Reply
from metadata_store.kazoo_adapter.servers import Address, Servers
from metadata_store.kazoo_adapter.silence import answered_or_left
from tests.kit.controller_parts import Clock
from tests.kit.virtual_time import in_virtual_time, skip

A: Address = ("a", "10.0.0.1", 2181)
B: Address = ("b", "10.0.0.2", 2181)
C: Address = ("c", "10.0.0.3", 2181)
REPLY = Reply(0, 1, b"", 0)


def test_the_servers_that_failed_lately_are_tried_last() -> None:
    clock = Clock()
    servers = Servers(clock)
    assert servers.round([A, B, C]) == [A, B, C]
    servers.failed(*A[1:])
    clock.now_s += 1.0
    servers.failed(*B[1:])
    assert servers.round([B, A, C]) == [C, A, B]


@pytest.mark.parametrize("session_s", [4.0, 6.0, 18.0, 40.0])
def test_a_round_of_three_servers_fits_between_the_silence_and_the_end_of_the_lease(session_s: float) -> None:
    servers = Servers()
    servers.round([A, B, C])
    left_s = session_s * (0.8 - 1 / 6 - 1 / 3)
    unreachable = 1  # one of the two others
    assert unreachable * servers.attempt_s(session_s) < left_s


def test_a_single_server_has_the_longest_attempt_and_several_get_longer_with_each_round() -> None:
    servers = Servers()
    servers.round([A])
    assert servers.attempt_s(18.0) == pytest.approx(5.4)
    taken = []
    for _ in range(6):
        servers.round([A, B, C])
        taken.append(servers.attempt_s(18.0))
    assert taken == sorted(taken)
    assert taken[-1] == pytest.approx(5.4)
    servers.connected()
    servers.round([A, B, C])
    assert servers.attempt_s(18.0) == pytest.approx(1.5)


class Link:
    """A connection that was left or not."""

    def __init__(self) -> None:
        self.received = 0
        self.left = False
        self.answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def leave(self, silent_s: float) -> bool:
        self.left = True
        self.answer.set_exception(NotConnected("given up"))
        return True


@in_virtual_time
async def test_a_slow_server_that_replies_to_other_requests_is_not_left() -> None:
    link = Link()
    waiting = asyncio.create_task(answered_or_left(link, link.answer, 6.0))
    for _ in range(10):
        await asyncio.sleep(1.0)
        link.received += 1
    link.answer.set_result(REPLY)
    assert await waiting == REPLY
    assert not link.left


@in_virtual_time
async def test_a_server_is_not_left_for_replies_that_waited_while_this_process_stood_still() -> None:
    link = Link()
    waiting = asyncio.create_task(answered_or_left(link, link.answer, 6.0))
    await asyncio.sleep(0.1)
    skip(30.0)
    await asyncio.sleep(0.1)
    link.answer.set_result(REPLY)
    assert await waiting == REPLY
    assert not link.left
