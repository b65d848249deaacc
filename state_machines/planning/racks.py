"""Counts racks of replica sets.

Brokers without a rack share one that has no name: so they never look better spread than they are. An absent broker's
rack is unknown, and counts as one of its own: its replica is no reason to move another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from state_machines.planning.cluster_view import ClusterView

Rack = str | int
"""Name of a rack, empty for brokers without one; the id of a broker whose rack is unknown."""


class Racks:
    """Racks of all brokers, and those of ``hosts``, on which replicas may be placed."""

    def __init__(self, view: ClusterView, hosts: Iterable[int]) -> None:
        self._racks: dict[int, Rack] = {
            b: broker.rack or ("" if broker.live else b) for b, broker in view.brokers.items()
        }
        self.open = {self.of(b) for b in hosts}
        """Racks on which replicas may be placed."""

    def of(self, broker: int) -> Rack:
        """Returns the rack of a broker."""
        return self._racks.get(broker, broker)

    def used(self, replicas: Iterable[int]) -> set[Rack]:
        """Returns the racks of replicas."""
        return {self.of(b) for b in replicas}

    def missing(self, replicas: Collection[int]) -> int:
        """Returns on how many more racks the same number of replicas could be."""
        used = self.used(replicas)
        return min(len(replicas), len(used | self.open)) - len(used)
