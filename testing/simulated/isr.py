"""Does a broker's work as a leader: finds the ISR changes it wants, requests them, and handles the responses.

From IBP 2.7-IV2 on it sends them to the controller, one AlterPartition in flight. Below it writes the state znode
itself and notifies the controller by a znode (Kafka's ``AlterPartitionManager`` and ``ZkAlterPartitionManager``).
Requests and writes are values; the broker's owner carries them.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from brokers.wire.errors import Error
from brokers.wire.versions import TOPIC_IDS, Ibp
from metadata_store import paths
from metadata_store.codecs.notifications import encode_partitions
from metadata_store.codecs.topic import encode_state
from metadata_store.port import Create, SetData
from state_machines.model.types import Leadership, TopicPartition
from testing.simulated.calls import ALTER_PARTITION_IDS, IsrChange, alter_partition, alter_partition_response
from testing.simulated.hosting import Hosting, Replica
from testing.simulated.metadata import MetadataCache
from testing.simulated.values import Key

ISR_CHANGE: Final = f"{paths.ISR_CHANGES}/isr_change_"
ALTER_PARTITION_MAX: Final = 3

_ROLLED_BACK: Final = frozenset({Error.OPERATION_NOT_ATTEMPTED, Error.INELIGIBLE_REPLICA})
_GIVEN_UP: Final = frozenset(
    {
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNKNOWN_TOPIC_ID,
        Error.FENCED_LEADER_EPOCH,
        Error.INVALID_UPDATE_VERSION,
        Error.INVALID_REQUEST,
    }
)

InSync = Callable[[Key], Container[int]]
"""Returns the replicas of a partition that have caught up with its leader; the leader itself need not be among them."""


class InFlight(Struct, frozen=True):
    """An AlterPartition without a response yet. ``frame`` has no length."""

    correlation: int
    version: int
    frame: bytes
    changes: dict[Key, IsrChange]


class IsrWrite(Struct, frozen=True):
    """A leader's own conditional write of a state znode."""

    change: IsrChange
    op: SetData


class IsrWork:
    """Holds the ISR changes of one incarnation. ``epoch`` is its broker epoch, which a new registration changes.

    A partition has at most one change pending. Where it was refused for good (errors 3, 42, 74, 95, 100) the leader
    wants nothing more of it until it is sent a higher leader epoch, as a real one does.
    """

    def __init__(self, hosting: Hosting, cache: MetadataCache, epoch: int, ibp: Ibp) -> None:
        self._hosting = hosting
        self._cache = cache
        self.epoch = epoch
        self._ibp = ibp
        self._pending: dict[Key, tuple[Replica, IsrChange]] = {}
        self._unsent: dict[Key, IsrChange] = {}
        self._changed: dict[Key, None] = {}
        self.in_flight: InFlight | None = None

    @property
    def waiting(self) -> int:
        """Counts the changes without a response or write yet."""
        return len(self._unsent)

    def pending(self, key: Key) -> IsrChange | None:
        """Returns the change that a led partition waits for, one that was refused for good included."""
        basis, change = self._pending.get(key, (None, None))
        return change if basis is not None and basis is self._hosting.replicas.get(key) else None

    def wish(self, in_sync: InSync) -> list[Key]:
        """Looks at every partition that the broker leads; returns those of which it wants another ISR now.

        Members that fell behind leave together; replicas that caught up join one at a time, if they are in the live
        list.
        """
        found = []
        for key, replica in self._hosting.replicas.items():
            if replica.leader != self._hosting.broker_id or key in self._unsent or self.pending(key) is not None:
                continue
            isr = self._wanted(replica, in_sync(key))
            if isr is not None:
                epochs = replica.leader_epoch, replica.partition_epoch
                change = IsrChange(key, replica.topic_id, *epochs, isr, replica.controller_epoch)
                self._pending[key] = replica, change
                self._unsent[key] = change
                found.append(key)
        return found

    def _wanted(self, replica: Replica, in_sync: Container[int]) -> tuple[int, ...] | None:
        leader, isr = self._hosting.broker_id, replica.isr
        kept = tuple(member for member in isr if member == leader or member in in_sync)
        if len(kept) < len(isr):
            return kept
        for other in replica.replicas:
            if other not in isr and other in in_sync and other in self._cache.live:
                return (*isr, other)
        return None

    # -- from IBP 2.7-IV2 on

    def alter_partition(self, correlation: int, offered: int = ALTER_PARTITION_MAX) -> bytes | None:
        """Returns the next request with everything that waits; None while one is in flight, or where nothing waits.

        ``offered`` is the controller's highest version. Without a settled response (:meth:`take_response`) the bytes of
        :attr:`in_flight` are sent again, to the controller of that moment.
        """
        if self.in_flight is not None or not self._unsent:
            return None
        changes = dict(self._unsent)
        by_id = self._ibp >= TOPIC_IDS and all(change.topic_id for change in changes.values())
        version = min(offered, ALTER_PARTITION_MAX if by_id else ALTER_PARTITION_IDS - 1)
        frame = alter_partition(version, correlation, self._hosting.broker_id, self.epoch, list(changes.values()))
        self.in_flight = InFlight(correlation, version, frame, changes)
        return frame

    def take_response(self, frame: bytes) -> bool:
        """Takes the response; returns False where it is not settled, because it contains NOT_CONTROLLER.

        A response to another request than that in flight changes nothing. Raises :class:`Malformed`.
        """
        request = self.in_flight
        if request is None or int.from_bytes(frame[:4], "big") != request.correlation:
            return True
        _, top, responses = alter_partition_response(request.version, frame)
        if Error.NOT_CONTROLLER in {top, *(response.error for response in responses)}:
            return False
        self.in_flight = None
        if top == Error.NONE:
            keys: dict[tuple[str | bytes | None, int], Key] = {(k[0], k[1]): k for k in request.changes}
            keys |= {(change.topic_id, key[1]): key for key, change in request.changes.items()}
            for response in responses:
                key = keys.get((response.topic, response.partition))
                if key is not None:
                    self._settle(key, request.changes[key], response.error, response.state)
        return True

    def give_up(self, lives: Callable[[IsrChange], bool]) -> None:
        """Gives up changes of partitions that are gone; the next request goes without them."""
        gone = [key for key, change in self._unsent.items() if not lives(change)]
        for key in gone:
            del self._unsent[key]
        if self.in_flight is not None and not self.in_flight.changes.keys().isdisjoint(gone):
            self.in_flight = None

    def _settle(self, key: Key, change: IsrChange, error: int, state: Leadership) -> None:
        if self._unsent.get(key) is change:
            del self._unsent[key]
        if self.pending(key) is not change:
            return
        if error == Error.NONE:
            self._granted(key, state)
        elif error in _ROLLED_BACK:
            del self._pending[key]
        elif error not in _GIVEN_UP:
            self._unsent[key] = change

    def _granted(self, key: Key, state: Leadership) -> None:
        """Enters a change that the controller or ZooKeeper has. A state older than the leader's is left alone."""
        replica = self._hosting.replicas[key]
        if state.leader_epoch == replica.leader_epoch and state.version >= replica.partition_epoch:
            del self._pending[key]
            self._hosting.replicas[key] = replace(replica, isr=state.isr, partition_epoch=state.version)

    # -- below

    def writes(self) -> list[IsrWrite]:
        """Returns the conditional writes of everything that waits; each must be reported by :meth:`written`."""
        found, self._unsent = self._unsent, {}
        broker = self._hosting.broker_id
        return [
            IsrWrite(
                change,
                SetData(
                    paths.state(*change.key),
                    encode_state(broker, change.leader_epoch, change.isr, change.controller_epoch),
                    change.partition_epoch,
                ),
            )
            for change in found.values()
        ]

    def written(self, write: IsrWrite, state: Leadership | None) -> None:
        """Reports a write; ``state`` is the znode's afterwards: the broker's own, or another writer's."""
        change = write.change
        if self.pending(change.key) is not change:
            return
        ours = self._hosting.broker_id, change.leader_epoch, change.isr, change.controller_epoch
        if state is None or (state.leader, state.leader_epoch, state.isr, state.controller_epoch) != ours:
            return
        self._granted(change.key, state)
        self._changed[change.key] = None

    def notification(self) -> Create | None:
        """Returns the znode that notifies the controller of writes since the last one; real ones wait 2.5 to 60 s."""
        if not self._changed:
            return None
        data = encode_partitions([TopicPartition(*key) for key in self._changed])
        self._changed = {}
        return Create(ISR_CHANGE, data, sequential=True)
