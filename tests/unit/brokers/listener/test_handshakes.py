"""Turns of TLS handshakes: no crowd delays other addresses, and slow handshakes end where others wait."""

from __future__ import annotations

import asyncio

import pytest

from brokers.listener.handshakes import PAUSE_S, TURN_S, Handshakes
from tests.kit.virtual_time import in_exact_time


class Line:
    """Handshakes that take their time in turns, and the time at which each began."""

    def __init__(self, under_way_max: int = 2, kept_for_known: int = 0) -> None:
        self.handshakes = Handshakes(under_way_max, kept_for_known=kept_for_known)
        self.began: list[str] = []
        self.began_s: dict[str, float] = {}
        self.ended: list[str] = []
        self.under_way_max = 0
        self._under_way = 0

    async def shake(self, address: str, takes_s: float, *, known: bool = False) -> float:
        """Shakes hands; returns the seconds from its arrival to its end."""
        arrived_s = now_s()
        try:
            async with self.handshakes.turn(address, known=known):
                self.began.append(address)
                self.began_s[address] = now_s()
                self._under_way += 1
                self.under_way_max = max(self.under_way_max, self._under_way)
                try:
                    await asyncio.sleep(takes_s)
                finally:
                    self._under_way -= 1
        except TimeoutError:
            self.ended.append(address)
        return now_s() - arrived_s


def now_s() -> float:
    return asyncio.get_running_loop().time()


@in_exact_time
async def test_a_crowd_at_one_address_delays_no_other_address() -> None:
    line = Line()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(50):
            tasks.create_task(line.shake("crowd", 60))
        await asyncio.sleep(0)
        assert await line.shake("broker", 0.05) < 3
    assert line.began.index("broker") <= 4
    assert line.ended == ["crowd"] * 48
    assert line.under_way_max == 2


@in_exact_time
async def test_a_crowd_delays_no_later_connection_of_its_own_address() -> None:
    line = Line()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(300):
            tasks.create_task(line.shake("here", 60))
        await asyncio.sleep(0.5)
        assert await line.shake("here", 0.05) < 2


@in_exact_time
async def test_a_crowd_of_unknown_addresses_delays_no_known_address() -> None:
    """Turns by address alone would make a broker wait for all of them."""
    line = Line(under_way_max=8, kept_for_known=2)
    async with asyncio.TaskGroup() as tasks:
        strangers = [tasks.create_task(line.shake(f"stranger {number}", 600)) for number in range(500)]
        await asyncio.sleep(0.5)
        before = list(line.began)
        assert len(before) == 6, "room is reserved"
        for _ in range(20):
            await line.shake("broker", 0.05, known=True)
        assert line.began.count("broker") == 20
        assert line.began[: len(before) + 2] == [*before, "broker", "broker"]
        assert line.under_way_max <= 8
        for stranger in strangers:
            stranger.cancel()


@in_exact_time
async def test_a_crowd_of_known_addresses_delays_no_unknown_address() -> None:
    line = Line(under_way_max=4, kept_for_known=1)
    async with asyncio.TaskGroup() as tasks:
        for number in range(200):
            tasks.create_task(line.shake(f"known {number}", 600, known=True))
        await asyncio.sleep(0.5)
        assert line.under_way_max == 4, "known ones may use all room"
        before = len(line.began)
        await line.shake("new broker", 0.05)
        assert line.began.index("new broker") <= before + 2
        assert line.under_way_max == 4


@pytest.mark.parametrize(("handshakes", "ended"), [(2, 0), (3, 1)])
@in_exact_time
async def test_a_slow_handshake_ends_after_its_time_only_if_another_one_waits(handshakes: int, ended: int) -> None:
    line = Line()
    took_s = await asyncio.gather(*(line.shake(f"peer {number}", 9) for number in range(handshakes)))
    assert len(line.ended) == ended
    assert took_s[0] == (pytest.approx(TURN_S, abs=0.02) if ended else 9)


@in_exact_time
async def test_handshakes_that_waited_begin_with_pauses_between_them() -> None:
    line = Line(under_way_max=4)
    await asyncio.gather(*(line.shake(f"peer {number}", 1) for number in range(4)))
    assert [began_s / PAUSE_S for began_s in line.began_s.values()] == pytest.approx([0, 1, 2, 3])


@in_exact_time
async def test_a_handshake_that_is_cancelled_while_it_waits_takes_no_turn() -> None:
    line = Line(under_way_max=1)
    first = asyncio.create_task(line.shake("a", 0.5))
    await asyncio.sleep(0.1)
    second = asyncio.create_task(line.shake("b", 600))
    third = asyncio.create_task(line.shake("c", 0.1))
    await asyncio.sleep(0.1)
    second.cancel()
    await asyncio.gather(first, third)
    assert line.began == ["a", "c"]
    assert line.began_s["c"] == pytest.approx(0.5)
