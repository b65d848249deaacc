"""Slots and handshakes of a listener: proven connections stay, and no crowd delays other addresses."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

import pytest

from brokers.listener.connection_slots import ALLOWANCE_BYTES, KNOWN_MAX, ConnectionSlot, ConnectionSlots
from brokers.listener.handshakes import PAUSE_S, TURN_S, Handshakes
from tests.kit.deadlines import in_exact_time

MIB = 1_048_576


class Door:
    """Slots, and the connections that had to give way."""

    def __init__(self, connections_max: int = 4, per_address_max: int = 3, bytes_max: int = MIB) -> None:
        self.slots = ConnectionSlots(connections_max, per_address_max, bytes_max)
        self.ended: list[str] = []

    def enter(self, name: str, address: str | None = None) -> ConnectionSlot | None:
        return self.slots.enter(address or name, lambda: self.ended.append(name))

    @property
    def shares(self) -> int:
        """Returns the number of addresses that take memory."""
        return len(self.slots._shares)

    def let_in(self, name: str, address: str | None = None, *, proven: bool = False) -> ConnectionSlot:
        slot = self.enter(name, address)
        assert slot is not None
        if proven:
            slot.prove()
        return slot


def test_of_unproven_connections_the_oldest_gives_way_to_a_new_one() -> None:
    door = Door()
    for name in "abcdef":
        door.let_in(name)
    assert (door.ended, door.slots.open) == (["a", "b"], 4)


def test_a_proven_connection_never_gives_way() -> None:
    door = Door()
    for name in "abcd":
        door.let_in(name, proven=True)
    assert door.enter("e") is None
    assert door.ended == []


def test_an_address_with_its_share_of_slots_gives_way_itself() -> None:
    door = Door(connections_max=10)
    other = door.let_in("other")
    crowd = [door.let_in(name, "crowd") for name in "abc"]
    crowd[0].prove()
    door.let_in("d", "crowd")
    assert door.ended == ["b"]
    assert other.open
    for _ in range(2):
        assert door.slots.enter("crowd", lambda: None)
    assert door.ended == ["b", "c", "d"]


def test_unknown_addresses_give_way_before_an_address_that_was_proven() -> None:
    door = Door()
    door.let_in("broker", "10.0.0.1", proven=True).leave()
    again = door.let_in("again", "10.0.0.1")
    for name in "abcdefgh":
        door.let_in(name)
    assert again.open
    assert door.ended == ["a", "b", "c", "d", "e"]


def test_unknown_addresses_give_way_before_an_address_that_is_known_beforehand() -> None:
    ended: list[str] = []
    slots = ConnectionSlots(2, 2, MIB, lambda address: address == "10.0.0.1")
    broker = slots.enter("10.0.0.1", lambda: ended.append("broker"))
    for name in "abcd":
        assert slots.enter(name, partial(ended.append, name))
    assert broker is not None
    assert broker.open
    assert ended == ["a", "b", "c"]


def test_among_proven_addresses_the_oldest_unproven_connection_gives_way() -> None:
    door = Door(connections_max=2)
    door.let_in("broker", "10.0.0.1", proven=True)
    door.let_in("unproven", "10.0.0.1")
    door.let_in("next", "10.0.0.1")
    assert door.ended == ["unproven"]


def test_unproven_connections_that_hold_all_bytes_give_way_to_a_proven_one() -> None:
    door = Door(connections_max=20)
    strangers = [door.let_in(name) for name in "abcdefgh"]
    assert all(slot.hold(MIB // 8) for slot in strangers)
    assert not strangers[0].hold(MIB)
    broker = door.let_in("broker", proven=True)
    assert broker.hold(MIB // 2)
    assert (door.ended, door.slots.held, broker.open) == (["a", "b", "c", "d"], MIB, True)
    assert not broker.hold(2 * MIB), "a proven one is bounded, too"


def test_every_connection_may_hold_the_allowance() -> None:
    door = Door()
    assert door.let_in("broker", proven=True).hold(MIB)
    stranger = door.let_in("stranger")
    assert stranger.hold(ALLOWANCE_BYTES)
    assert not stranger.hold(ALLOWANCE_BYTES + 1)


def test_a_bounded_number_of_proven_addresses_is_remembered() -> None:
    door = Door()
    for number in range(KNOWN_MAX):
        door.let_in(str(number), proven=True).leave()
    door.let_in("0", proven=True).leave()
    door.let_in("new", proven=True).leave()
    known = [name for name in (*map(str, range(KNOWN_MAX)), "new") if door.slots.knows(name)]
    assert (len(known), door.slots.knows("0"), door.slots.knows("1")) == (KNOWN_MAX, True, False), "the oldest is gone"


@pytest.mark.parametrize("seed", range(20))
def test_counts_are_exact_in_a_random_run(seed: int) -> None:
    random, door = Random(seed), Door(8, 4, 3 * ALLOWANCE_BYTES)
    inside: list[ConnectionSlot] = []
    for turn in range(500):
        inside = [slot for slot in inside if slot.open]
        assert door.slots.open == len(inside) <= 8
        assert door.slots.held == sum(slot.held for slot in inside)
        assert door.slots.held <= (3 + 8) * ALLOWANCE_BYTES
        slot = random.choice(inside) if inside else None
        match random.randrange(4):
            case 0 | 1:
                if (found := door.enter(str(turn), random.choice("abc"))) is not None:
                    inside.append(found)
            case 2 if slot is not None and not slot.hold(random.randrange(2 * ALLOWANCE_BYTES)):
                slot.leave()
            case 3 if slot is not None:
                random.choice((slot.prove, slot.leave))()
    for slot in inside:
        slot.leave()
    assert (door.slots.open, door.slots.held, door.shares) == (0, 0, 0)


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
