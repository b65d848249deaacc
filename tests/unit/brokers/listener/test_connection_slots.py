"""Slots of a listener: unproven connections give way to new ones, proven ones stay."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from brokers.listener.connection_slots import ALLOWANCE_BYTES, KNOWN_MAX, ConnectionSlot, ConnectionSlots

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
