"""Compares every broker with ZooKeeper's content, as far as a controller can bring it to a broker (I5)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from state_machines.model.types import NO_LEADER, NO_VERSION
from testing.simulated.digest import Truth, View, differences, expected_view, view
from tests.simulation.kafka.history import Key
from tests.simulation.kafka.leading import LISTENER
from tests.simulation.kafka.unfinished import held_up

if TYPE_CHECKING:
    from controller.kafka.term.term import Term
    from tests.simulation.kafka.world import SimulatedKafka

SHOWN_MAX: Final = 3


class Views:
    """Compares the brokers' replicas and metadata with ZooKeeper."""

    def __init__(self, world: SimulatedKafka) -> None:
        self.w = world

    def wrong(self, broker: int, recent: Collection[Key] = (), *, live_list: bool = True) -> list[str]:
        """Returns the differences of a broker, in words.

        ``recent``: partitions that it need not know yet; ``live_list``: whether it must know the registered brokers.
        """
        history, node = self.w.invariants.history, self.w.brokers[broker]
        truth, live = self.truth(), sorted(history.registered)
        found: list[str] = []
        if node.core.controller_epoch != history.epoch:
            found.append(f"{node} knows epoch {node.core.controller_epoch}")
        mine, expected = view(node.core), expected_view(broker, live, truth)
        if live_list:
            others = [other for other in live if not self._reaches(broker, other)]
            found += [f"{node} takes {node.core.live.get(other)} for broker {other}" for other in others]
        else:
            mine = replace(mine, live=expected.live)
        unheeded = self._unnoticed() | frozenset(recent)
        mine, expected = (self._comparable(broker, one, truth, unheeded) for one in (mine, expected))
        found += [f"{node}: {line}" for line in differences(mine, expected, SHOWN_MAX)]
        return found + [f"{node}: {line}" for line in self._topic_ids(broker, truth, unheeded)]

    def truth(self) -> dict[Key, Truth]:
        """Returns the partitions that brokers must know, as ZooKeeper has them."""
        history = self.w.invariants.history
        return {
            key: Truth(state.leader, state.leader_epoch, state.isr, state.version, history.assignment(key))
            for key, states in history.states.items()
            if key not in history.spoilt and (key[0] not in history.markers or held_up(self.w, key[0]))
            for state in states[-1:]
        }

    def _topic_ids(self, broker: int, truth: dict[Key, Truth], unheeded: Collection[Key]) -> list[str]:
        """Returns the sent topics whose id in the broker differs from the znode's id."""
        if not self.w.sends_ids:
            return []
        core, history = self.w.brokers[broker].core, self.w.invariants.history
        sent = {name for name, _ in (core.metadata.keys() & truth.keys()) - history.unsent(broker) - set(unheeded)}
        return [
            f"the id of {name} is {core.cache.topic_ids.get(name)!r} instead of {topic.topic_id!r}"
            for name, topic in history.topics.items()
            if name in sent and topic.topic_id is not None and core.cache.topic_ids.get(name) != topic.topic_id
        ][:SHOWN_MAX]

    def _comparable(self, broker: int, found: View, truth: dict[Key, Truth], unheeded: Collection[Key]) -> View:
        """Leaves out everything that a broker need not know.

        Followers take no notice of partitions without a leader. Brokers receive nothing of topics that were removed by
        hand. Where they hosted one, they refuse another topic id, and lower leader epochs, of its successor.

        The order of replicas in LeaderAndIsr is left out. A controller that dies between a new order and the new leader
        epoch leaves it to UpdateMetadata.
        """
        history = self.w.invariants.history
        unsent = history.unsent(broker)
        metadata = {
            k: known for k, known in found.metadata.items() if (k in truth or k not in unsent) and k not in unheeded
        }
        refused = history.spoilt.union(unheeded, history.hosted_by(broker), history.strays(broker))
        led = {
            key: (epoch, isr, partition_epoch, _sorted(replicas))
            for key, (epoch, isr, partition_epoch, replicas) in found.led.items()
            if key not in refused
        }
        refused |= {key for key, known in truth.items() if known.leader == NO_LEADER}
        followed = {
            key: (leader, epoch, _sorted(replicas))
            for key, (leader, epoch, replicas) in found.followed.items()
            if key not in refused
        }
        return View(found.live, metadata, led, followed)

    def _unnoticed(self) -> frozenset[Key]:
        """Returns scribbled state znodes that have their former content, and that this term has not met late."""
        history, term = self.w.invariants.history, self.w.serving_term()
        return frozenset(
            key
            for key, epoch in history.scribbled.items()
            if term is None or epoch < history.epoch or _version(term, key) < history.states[key][-1].version
        )

    def _reaches(self, broker: int, other: int) -> bool:
        """Returns whether a broker knows the present address of another."""
        entry = self.w.brokers[broker].core.live.get(other)
        endpoint = entry.endpoint(LISTENER) if entry is not None else None
        return endpoint is not None and (endpoint.host, endpoint.port) == self.w.brokers[other].address


def _sorted(ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(ids))


def _version(term: Term, key: Key) -> int:
    i = term.cluster.find(*key)
    return NO_VERSION if i is None else term.cluster.rows[i].version
