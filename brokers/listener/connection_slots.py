"""Places of a listener: connections counted from their accept on, and the bytes that they hold.

A connection has proven itself once it has shown who it is or was served. Whoever has not gives way: neither many
connections nor many bytes of strangers keep those out that are served.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

ALLOWANCE_BYTES: Final = 65_536
"""A connection that holds no more is never refused for what all hold together."""
KNOWN_MAX: Final = 1_000
"""Addresses that are remembered because a connection from there has proven itself."""


class ConnectionSlot:
    """One connection. ``give_way`` ends it; it may be called before the connection is complete."""

    __slots__ = ("_slots", "address", "give_way", "held", "open", "proven")

    def __init__(self, slots: ConnectionSlots, address: str, give_way: Callable[[], object]) -> None:
        self._slots = slots
        self.address = address
        self.give_way = give_way
        self.proven = False
        self.held = 0
        self.open = True

    def prove(self) -> None:
        """It has shown who it is, or was served."""
        if self.open and not self.proven:
            self._slots.proved(self)

    def hold(self, size: int) -> bool:
        """It holds ``size`` bytes from now on; False where that is too much, with what the others hold."""
        return self._slots.hold(self, size)

    def leave(self) -> None:
        """It has ended."""
        if self.open:
            self._slots.left(self)


class _Share:
    """The connections of one address; those that have not proven themselves in the order in which they came."""

    __slots__ = ("open", "unproven")

    def __init__(self) -> None:
        self.open = 0
        self.unproven: dict[ConnectionSlot, None] = {}


class ConnectionSlots:
    """At most ``connections_max``, of one address ``per_address_max``.

    ``bytes_max``: what all hold together, beyond the allowance of each (:data:`ALLOWANCE_BYTES`). ``known``: whether
    an address is known before a connection from there has proven itself.
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
        self._strangers: dict[ConnectionSlot, None] = {}
        self._unproven: dict[ConnectionSlot, None] = {}
        self._proven: OrderedDict[str, None] = OrderedDict()
        self._known = known
        self.open = 0
        self.held = 0
        """Bytes that all hold."""

    def enter(self, address: str, give_way: Callable[[], object]) -> ConnectionSlot | None:
        """A place; None where there is none and nobody has to give way."""
        share = self._shares.get(address)
        if share is not None and share.open >= self._per_address_max:
            if not self._freed(share.unproven):
                return None
        elif self.open >= self._connections_max and not self._freed(self._strangers or self._unproven):
            return None
        return self._entered(ConnectionSlot(self, address, give_way))

    def knows(self, address: str) -> bool:
        """Whether a connection from there has proven itself, or would."""
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
        slot.give_way = _nothing  # what ends it holds the connection and all that it has sent
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
        of_its_kind = self._unproven if self.knows(slot.address) else self._strangers
        share.unproven[slot] = of_its_kind[slot] = None
        return slot

    def _freed(self, unproven: dict[ConnectionSlot, None]) -> bool:
        """Whether one of them has made room: the oldest."""
        oldest = next(iter(unproven), None)
        if oldest is not None:
            self._end(oldest)
        return oldest is not None

    def _free_bytes(self) -> None:
        """Strangers that hold more than is anybody's give way, those that hold most first."""
        for slot in sorted(self._strangers, key=lambda slot: slot.held, reverse=True):
            if self.held <= self._bytes_max or slot.held <= ALLOWANCE_BYTES:
                return
            self._end(slot)

    def _end(self, slot: ConnectionSlot) -> None:
        give_way = slot.give_way
        self.left(slot)
        give_way()

    def _forget_unproven(self, slot: ConnectionSlot) -> None:
        self._strangers.pop(slot, None)
        self._unproven.pop(slot, None)
        self._shares[slot.address].unproven.pop(slot, None)


def _nothing() -> None:
    pass
