"""Bounds a listener's connections, counted from their accept on, and the bytes that they hold.

A connection is proven once it has authenticated or was served. Unproven ones give way: neither many connections nor
many bytes of unknown peers keep served ones out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

ALLOWANCE_BYTES: Final = 65_536
"""Bytes that every connection may hold, whatever the bytes of all connections together."""
KNOWN_MAX: Final = 1_000
"""Most addresses of proven connections that are remembered."""


class ConnectionSlot:
    """The slot of one connection. ``give_way`` ends it, perhaps before the connection is complete."""

    __slots__ = ("_slots", "address", "give_way", "held", "open", "proven")

    def __init__(self, slots: ConnectionSlots, address: str, give_way: Callable[[], object]) -> None:
        self._slots = slots
        self.address = address
        self.give_way = give_way
        self.proven = False
        self.held = 0
        self.open = True

    def prove(self) -> None:
        """Marks the connection as proven: it has authenticated, or was served."""
        if self.open and not self.proven:
            self._slots.proved(self)

    def hold(self, size: int) -> bool:
        """Sets the bytes that the connection holds; returns False where all connections together hold too many."""
        return self._slots.hold(self, size)

    def leave(self) -> None:
        """Frees the slot of an ended connection."""
        if self.open:
            self._slots.left(self)


class _Share:
    """The connections of one address; the unproven ones in the order of their accept."""

    __slots__ = ("open", "unproven")

    def __init__(self) -> None:
        self.open = 0
        self.unproven: dict[ConnectionSlot, None] = {}


class ConnectionSlots:
    """At most ``connections_max`` slots, ``per_address_max`` of them for one address.

    ``bytes_max`` bounds the bytes of all connections, beyond the allowance of each (:data:`ALLOWANCE_BYTES`).
    ``known`` returns whether an address counts as known before one of its connections is proven.
    """

    def __init__(
        self,
        connections_max: int,
        per_address_max: int,
        bytes_max: int,
        known: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._connections_max = connections_max
        self._per_address_max = per_address_max
        self._bytes_max = bytes_max
        self._shares: dict[str, _Share] = {}
        self._unknown: dict[ConnectionSlot, None] = {}
        self._unproven: dict[ConnectionSlot, None] = {}
        self._proven: OrderedDict[str, None] = OrderedDict()
        self._known = known
        self.open = 0
        self.held = 0
        """Bytes that all connections hold."""

    def enter(self, address: str, give_way: Callable[[], object]) -> ConnectionSlot | None:
        """Returns a slot; None where none is free and no connection has to give way."""
        share = self._shares.get(address)
        if share is not None and share.open >= self._per_address_max:
            if not self._freed(share.unproven):
                return None
        elif self.open >= self._connections_max and not self._freed(self._unknown or self._unproven):
            return None
        return self._entered(ConnectionSlot(self, address, give_way))

    def knows(self, address: str) -> bool:
        """Returns whether a connection of this address was proven, or the address is known."""
        return address in self._proven or self._known(address)

    def proved(self, slot: ConnectionSlot) -> None:
        """See :meth:`ConnectionSlot.prove`."""
        slot.proven = True
        self._forget_unproven(slot)
        self._proven[slot.address] = None
        self._proven.move_to_end(slot.address)
        while len(self._proven) > KNOWN_MAX:
            self._proven.popitem(last=False)

    def left(self, slot: ConnectionSlot) -> None:
        """See :meth:`ConnectionSlot.leave`."""
        slot.open = False
        slot.give_way = _nothing  # the callback refers to the connection and all its bytes
        self.open -= 1
        self.held -= slot.held
        slot.held = 0
        self._forget_unproven(slot)
        share = self._shares[slot.address]
        share.open -= 1
        if not share.open:
            del self._shares[slot.address]

    def hold(self, slot: ConnectionSlot, size: int) -> bool:
        """See :meth:`ConnectionSlot.hold`."""
        if not slot.open:
            return True
        self.held += size - slot.held
        slot.held = size
        if self.held <= self._bytes_max or size <= ALLOWANCE_BYTES:
            return True
        if slot.proven or self.knows(slot.address):
            self._free_bytes()
        return self.held <= self._bytes_max

    def _entered(self, slot: ConnectionSlot) -> ConnectionSlot:
        share = self._shares.setdefault(slot.address, _Share())
        share.open += 1
        self.open += 1
        of_its_kind = self._unproven if self.knows(slot.address) else self._unknown
        share.unproven[slot] = of_its_kind[slot] = None
        return slot

    def _freed(self, unproven: dict[ConnectionSlot, None]) -> bool:
        """Ends the oldest of them; returns whether there was one."""
        oldest = next(iter(unproven), None)
        if oldest is not None:
            self._end(oldest)
        return oldest is not None

    def _free_bytes(self) -> None:
        """Ends connections of unknown addresses that hold more than the allowance, the largest first."""
        for slot in sorted(self._unknown, key=lambda slot: slot.held, reverse=True):
            if self.held <= self._bytes_max or slot.held <= ALLOWANCE_BYTES:
                return
            self._end(slot)

    def _end(self, slot: ConnectionSlot) -> None:
        give_way = slot.give_way
        self.left(slot)
        give_way()

    def _forget_unproven(self, slot: ConnectionSlot) -> None:
        self._unknown.pop(slot, None)
        self._unproven.pop(slot, None)
        self._shares[slot.address].unproven.pop(slot, None)


def _nothing() -> None:
    pass
