"""Finds replicas that a move adds and that have nearly caught up, so that throttles let them go before they have.

A leader acknowledges no record with acks=all before each follower has it that has caught up once, in the ISR or not
(Kafka ``Partition.maybeIncrementLeaderHW``). A throttled follower that shares an exhausted rate with others fetches
once in seconds. So it has to leave the lists before the fetch that brings it to the end of the log.

What one fetch brings depends on settings of brokers and on the size of records. So it is measured: a replica has nearly
caught up if it lacks at most what two pauses between looks may bring. One passes until the next look, the other until
brokers have the lists. Of a small replica three quarters are throttled all the same: it may catch up between two looks,
and is let go by the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from state_machines.model.types import TopicPartition

LOOKS_MAX: Final = 12
"""Looks that are compared: brokers keep a rate on average over eleven seconds, and copy nothing for some of them."""
PAUSES: Final = 2
"""Pauses between looks in which a replica must not catch up."""
PARTS: Final = 4
"""A replica is near only for the last one of so many parts: a throttle holds for the others, however small it is."""


class Copy(NamedTuple):
    """A replica that a move adds: its partition, its broker, and the leader from which it copies."""

    name: TopicPartition
    broker: int
    leader: int


Sizes = Mapping[tuple[TopicPartition, int], int]
"""Bytes of logs by partition and broker; one that its broker has not created has 0, an unknown one is left out."""


class Looks(NamedTuple):
    """The sizes at the latest look, and the most bytes that a replica of each broker gained since the one before it.

    ``gained`` has as many for the looks before, the latest at the end.
    """

    sizes: Sizes = {}
    gained: tuple[Mapping[int, int], ...] = ()

    def plus(self, copies: Iterable[Copy], sizes: Sizes) -> Looks:
        """Returns the looks with one more. ``copies``: those that are throttled, whose gains count."""
        found: dict[int, int] = {}
        for name, broker, _ in copies:
            before, after = self.sizes.get((name, broker)), sizes.get((name, broker))
            if before is not None and after is not None:
                found[broker] = max(found.get(broker, 0), after - before)
        return Looks(sizes, (*self.gained, found)[-LOOKS_MAX:])

    def near(self, copies: Iterable[Copy]) -> set[Copy]:
        """Returns the copies that have nearly caught up; none to a broker that was not seen at two looks."""
        most: dict[int, int] = {}
        for look in self.gained:
            for broker, gain in look.items():
                most[broker] = max(most.get(broker, 0), gain)
        return {copy for copy in copies if copy.broker in most and self._is_near(copy, most[copy.broker])}

    def _is_near(self, copy: Copy, gain: int) -> bool:
        leader, own = self.sizes.get((copy.name, copy.leader)), self.sizes.get((copy.name, copy.broker))
        return leader is not None and own is not None and leader - own <= min(PAUSES * gain, leader // PARTS)
