"""Lists facts about brokers, and the base of all: what happened in ZooKeeper or at a broker, as a value.

A decision enters the model once it is committed (:meth:`Cluster.apply`), everything else as a fact, also what a write
outside of a partition's state znode did. :meth:`Fact.enter` is pure: it changes the model, and returns what the journal
records and what brokers are sent. A term enters facts by :meth:`controller.kafka.path.facts.Facts.enter` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from state_machines.model.cluster import Cluster
from state_machines.model.decision import Change
from state_machines.model.min_isr import MinIsr
from state_machines.model.types import Broker


class Entered(Struct, frozen=True, gc=False):
    """What a fact changed.

    ``rows`` are those that the fact concerns and that are new to it, ``topics`` likewise, by index. ``changes`` are
    leaderships that differ from the model's, or states alone; every broker is sent the metadata of ``metadata``.
    ``gone`` and ``back`` are incarnations of brokers, ``connected`` those whose channels begin or get new endpoints.
    """

    rows: Sequence[int] = ()
    topics: Sequence[int] = ()
    changes: Sequence[Change] = ()
    metadata: Sequence[int] = ()
    gone: Sequence[Broker] = ()
    back: Sequence[Broker] = ()
    connected: Sequence[Broker] = ()


NOTHING: Final = Entered()
"""Returned by facts that change nothing, or nothing that journal and brokers get."""


class Fact(Struct, frozen=True, gc=False):
    """Base of all facts."""

    def enter(self, cluster: Cluster) -> Entered:
        """Enters the fact into the model; a fact that the model has already changes nothing."""
        raise NotImplementedError


# -- registrations and marks


class BrokersLoaded(Fact, frozen=True, gc=False):
    """The registrations at the begin of a term."""

    brokers: Mapping[int, Broker]

    def enter(self, cluster: Cluster) -> Entered:
        """Enters all registrations."""
        cluster.observe_brokers(self.brokers)
        return NOTHING


class BrokersUp(Fact, frozen=True, gc=False):
    """All that a term begins with is read, and the brokers that are registered can be sent it."""

    def enter(self, cluster: Cluster) -> Entered:
        """Changes nothing: :class:`BrokersLoaded` entered the registrations."""
        brokers = list(cluster.brokers.values())
        return Entered(back=brokers, connected=brokers)


class BrokersRead(Fact, frozen=True, gc=False):
    """The registrations, read again. ``bounced`` have other broker epochs: they are gone until :class:`BouncedBack`."""

    brokers: Mapping[int, Broker]
    bounced: Sequence[int] = ()

    def enter(self, cluster: Cluster) -> Entered:
        """Enters all registrations but those of ``bounced``."""
        before, found = cluster.brokers, self.brokers
        cluster.observe_brokers({b: found[b] for b in found if b not in self.bounced})
        dead, new = sorted(before.keys() - found.keys()), sorted(found.keys() - before.keys())
        modified = sorted(b for b in before.keys() & cluster.brokers.keys() if found[b] != before[b])
        return Entered(
            gone=[before[b] for b in (*dead, *self.bounced)],
            back=[found[b] for b in (*new, *self.bounced)],
            connected=[found[b] for b in (*new, *modified)],
        )


class BouncedBack(Fact, frozen=True, gc=False):
    """The registrations, with those of the ``bounced`` brokers of :class:`BrokersRead`."""

    brokers: Mapping[int, Broker]
    bounced: Sequence[int]

    def enter(self, cluster: Cluster) -> Entered:
        """Enters all registrations."""
        cluster.observe_brokers(self.brokers)
        return Entered(connected=[self.brokers[b] for b in self.bounced])


class ShutdownRequested(Fact, frozen=True, gc=False):
    """A registered broker, or an operator in its place, requests its controlled shutdown."""

    broker: Broker

    def enter(self, cluster: Cluster) -> Entered:
        """Ends the liveness of the broker."""
        cluster.observe_shutting_down(self.broker.id)
        return Entered()


class ShutdownEnded(Fact, frozen=True, gc=False):
    """Others lead every partition of a broker that shuts down, wherever they can."""

    broker: Broker

    def enter(self, cluster: Cluster) -> Entered:
        """Changes nothing: decisions moved the leaders."""
        return Entered()


class ShutdownUndone(Fact, frozen=True, gc=False):
    """An operator undoes the shutdown of a registered broker."""

    broker: Broker

    def enter(self, cluster: Cluster) -> Entered:
        """Lets the broker live again."""
        cluster.observe_shutdown_undone(self.broker.id)
        return Entered(back=[self.broker])


class MarksRead(Fact, frozen=True, gc=False):
    """The brokers that operators have cordoned, and those of them that they have drained."""

    cordoned: Collection[int]
    drained: Collection[int]

    def enter(self, cluster: Cluster) -> Entered:
        """Enters the marks."""
        cluster.observe_cordoned(self.cordoned)
        cluster.observe_drained(self.drained)
        return NOTHING


# -- responses of brokers


class HigherEpochTold(Fact, frozen=True, gc=False):
    """An incarnation of a broker obeys a higher controller epoch."""

    broker: int
    broker_epoch: int

    def enter(self, cluster: Cluster) -> Entered:
        """Enters the incarnation; what is returned is not :data:`NOTHING` where it is a new one."""
        return Entered() if cluster.observe_outranked(self.broker, self.broker_epoch) else NOTHING


class RequestAccepted(Fact, frozen=True, gc=False):
    """A broker carried out a request: it obeys this term."""

    broker: int

    def enter(self, cluster: Cluster) -> Entered:
        """Ends what :class:`HigherEpochTold` entered."""
        cluster.observe_accepted(self.broker)
        return NOTHING


class LeadersAnswered(Fact, frozen=True, gc=False):
    """A broker's response to LeaderAndIsr: the errors of ``refused`` rows, none of the others in ``rows``."""

    broker: int
    rows: Collection[int]
    refused: Mapping[int, int]
    now_ms: int

    def enter(self, cluster: Cluster) -> Entered:
        """Enters which replicas refuse."""
        cluster.observe_leader_and_isr(self.broker, self.rows, self.refused, self.now_ms)
        return NOTHING


class IdRefused(Fact, frozen=True, gc=False):
    """A broker has logs of these rows with another topic id."""

    broker: int
    rows: Collection[int]

    def enter(self, cluster: Cluster) -> Entered:
        """Casts doubt on the ids."""
        cluster.observe_id_refused(self.broker, self.rows)
        return NOTHING


class LogsDeleted(Fact, frozen=True, gc=False):
    """A broker has deleted its logs of these rows."""

    broker: int
    rows: Collection[int]

    def enter(self, cluster: Cluster) -> Entered:
        """Ends the doubts of ids that these logs alone have raised."""
        cluster.observe_logs_deleted(self.broker, self.rows)
        return NOTHING


class ReplicasFailed(Fact, frozen=True, gc=False):
    """Replicas are on a failed log directory of a registered broker."""

    broker: int
    rows: Collection[int]

    def enter(self, cluster: Cluster) -> Entered:
        """Enters them until the broker starts anew; ``rows`` of the result are new."""
        return Entered(rows=cluster.observe_failed_dirs(self.broker, self.rows))


class MinIsrRead(Fact, frozen=True, gc=False):
    """``min.insync.replicas`` of the brokers and of topics, as far as brokers have sent it."""

    found: MinIsr

    def enter(self, cluster: Cluster) -> Entered:
        """Enters the values. A default that is known stays where no broker has sent it this time."""
        cluster.observe_min_isr(self.found.after(cluster.min_isr))
        return NOTHING
