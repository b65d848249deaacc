"""Records the content of ZooKeeper, version by version, as far as invariants need it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

from metadata_store import paths
from metadata_store.codecs.topic import TopicDecoder, decode_state
from state_machines.model.types import Assignment, Leadership, TopicAssignment, TopicPartition

Key = tuple[str, int]


@lru_cache(4_096)
def key_of(path: str) -> Key | None:
    """Returns the partition whose state znode a path names."""
    found = paths.partition_of_state(path)
    return (found[0], found[1]) if found is not None else None


@lru_cache(4_096)
def topic_of(path: str) -> str | None:
    """Returns the topic whose znode a path names."""
    parent, _, name = path.rpartition("/")
    return name if parent == paths.TOPICS else None


class Dropped(NamedTuple):
    """A replica that an assignment names no more, and its broker's epoch in the controller's model at that time."""

    broker_epoch: int | None


class Joined(NamedTuple):
    """The moment when all of a reassignment's target was in the ISR first, and the brokers known to the controller.

    The controller does not wait for a registered broker that it does not know of yet.
    """

    target: tuple[int, ...]
    since_s: float
    known: dict[int, int]


class History:
    """Records leaderships of every partition by partition epoch, assignments, registrations, controller epochs.

    A *life* of a partition is from the creation of its state znode to its deletion. ``states`` has the present lives,
    ``former`` the ended ones; ``by_hand``: partitions of which one life ended without a request to the brokers.

    ``hosts``: brokers that may still have a log of an ended life. ``unaware``: brokers that may not have received its
    end. ``unfound``: brokers that reported its log as deleted while it was on a failed log directory. ``unstopped``:
    brokers that refused to delete it last.

    ``overwritten``: topics that a daemon may have overwritten with the content of a former incarnation. ``spoilt``:
    partitions that began with content of the topic's former incarnation, by a controller that did not know the next one
    yet. ``incarnations``: the last content of each of a topic's znodes, told apart by their czxid.

    ``markers``: topics marked for deletion. ``given_up``: topics, by czxid, and brokers for
    which an operator has ended the wait of their deletion, and whether that was confirmed.
    ``dropped``: replicas that reassignments removed, of present incarnations.
    ``removed``: brokers whose replica a daemon removed last, whatever became of the topic.
    ``request``: targets in the znode of reassignments. ``joined``: reassigned partitions whose target was in sync.

    ``unclean``: topics for which an unclean election was requested, or allowed, at some time. ``topic_ids``: the first
    id of an incarnation. ``scribbled``: partitions whose state znode was last written by another client than controller
    and leader, with the epoch of the last term by then.

    ``to_be_created`` and ``to_be_deleted``: topics that admin clients named. ``holder``: the content of the role flag.
    ``changed_s``: the time of a path's last write or deletion.
    """

    def __init__(self) -> None:
        self.states: dict[Key, list[Leadership]] = {}
        self.former: dict[Key, list[list[Leadership]]] = {}
        self.hosts: dict[Key, set[int]] = {}
        self.by_hand: set[Key] = set()
        self.unaware: dict[Key, set[int]] = {}
        self.unfound: dict[Key, set[int]] = {}
        self.unstopped: dict[Key, set[int]] = {}
        self.markers: set[str] = set()
        self.given_up: dict[tuple[int, int], bool] = {}
        self.spoilt: set[Key] = set()
        self.overwritten: set[str] = set()
        self.topics: dict[str, TopicAssignment] = {}
        self.incarnations: dict[tuple[str, int], TopicAssignment] = {}
        self.dropped: dict[Key, dict[int, Dropped]] = {}
        self.removed: dict[Key, set[int]] = {}
        self.joined: dict[Key, Joined] = {}
        self.request: dict[TopicPartition, tuple[int, ...]] = {}
        self.unclean: set[str] = set()
        self.topic_ids: dict[tuple[str, int], bytes] = {}
        self.scribbled: dict[Key, int] = {}
        self.to_be_created: set[str] = set()
        self.to_be_deleted: set[str] = set()
        self.registered: dict[int, int] = {}
        self.holder = ""
        self.changed_s: dict[str, float] = {}
        self.epoch = 0
        self.epoch_version = 0
        self._decoder = TopicDecoder()

    def partitions(self) -> set[Key]:
        """Returns every partition that exists or existed."""
        assigned = {(topic.name, partition) for topic in self.topics.values() for partition in topic.partitions}
        return assigned | self.states.keys() | self.former.keys()

    def assignment(self, key: Key) -> tuple[int, ...]:
        """Returns the replicas of a partition; none where it is not assigned."""
        topic = self.topics.get(key[0])
        found = topic.partitions.get(key[1]) if topic is not None else None
        return found.replicas if found is not None else ()

    def kept(self, key: Key) -> frozenset[int]:
        """Returns replicas that no reassignment removes, or not yet; added replicas count once they are in sync.

        Until then a broker may still delete a former log: it receives StopReplica first, LeaderAndIsr afterwards.
        """
        topic, state = self.topics.get(key[0]), self.current(key)
        found = topic.partitions.get(key[1]) if topic is not None else None
        if found is None or state is None:
            return frozenset()
        removing = found.removing if key in self.joined else ()
        return frozenset(found.replicas).difference(removing, set(found.adding).difference(state.isr))

    def look_for_target(self, key: Key, now_s: float, known_epochs: Callable[[], dict[int, int]]) -> None:
        """Notes whether a reassignment's target is in sync, after a write of the state znode or of the topic znode."""
        topic, state = self.topics.get(key[0]), self.current(key)
        found = topic.partitions.get(key[1]) if topic is not None else None
        known = self.joined.get(key)
        if known is not None and (found is None or not found.moving or known.target != found.target):
            del self.joined[key]
        if found is None or not found.moving or key in self.joined:
            return
        if state is not None and (not found.kept.moving or set(found.target) <= set(state.isr)):
            self.joined[key] = Joined(found.target, now_s, known_epochs())

    def given_up_on(self, name: str) -> set[int]:
        """Returns the brokers for which the deletion of a topic need not wait."""
        topic = self.topics.get(name)
        return {broker for czxid, broker in self.given_up if topic is not None and czxid == topic.czxid}

    def current(self, key: Key) -> Leadership | None:
        """Returns the content of the state znode."""
        states = self.states.get(key)
        return states[-1] if states else None

    def ended(self, key: Key, strays: Collection[int], *, by_hand: bool) -> None:
        """Ends a life whose state znode was deleted; ``strays``: brokers that keep a log of it."""
        states = self.states.pop(key, None)
        if self.scribbled.pop(key, None) is not None and by_hand:
            self.unaware.setdefault(key, set()).update(self.registered)  # garbage starts no partition
        if states:
            self.former.setdefault(key, []).append(states)
            if by_hand:
                self.by_hand.add(key)
                strays = {*strays, *self.dropped.get(key, ())}
            else:
                self.hosts.get(key, set()).difference_update(self.assignment(key))
                strays = {*strays, *(b for b in self.dropped.get(key, ()) if key in self.strays(b))}
            self.hosts.setdefault(key, set()).update(strays)

    def unsent(self, broker: int) -> set[Key]:
        """Returns partitions whose end, or whose first content, a broker may not have received."""
        return self.by_hand | self.spoilt | {key for key, brokers in self.unaware.items() if broker in brokers}

    def hosted_by(self, broker: int) -> set[Key]:
        """Returns partitions of which a broker may have a log of an ended life: it refuses the next life."""
        return {key for key, brokers in self.hosts.items() if broker in brokers}

    def life(self, key: Key) -> int:
        """Returns the number of the present life, or of the next one."""
        return len(self.former.get(key, ()))

    def at(self, key: Key, version: int) -> Leadership | None:
        """Returns the content of the present life's state znode at a version."""
        states = self.states.get(key, ())
        return states[version] if 0 <= version < len(states) else None

    def ever(self, key: Key, version: int) -> list[tuple[int, Leadership]]:
        """Returns its content at a version in each of its lives, with their numbers."""
        lives = (
            [*self.former.get(key, ()), self.states.get(key, ())] if key in self.former else [self.states.get(key, ())]
        )
        return [(life, states[version]) for life, states in enumerate(lives) if 0 <= version < len(states)]

    def lives(self, key: Key, version: int, leader: int, leader_epoch: int, isr: tuple[int, ...]) -> list[int]:
        """Returns the lives in which the state znode had this content at a version."""
        wanted = leader, leader_epoch, isr
        found = self.ever(key, version)
        return [life for life, held in found if (held.leader, held.leader_epoch, held.isr) == wanted]

    def topic_written(
        self, name: str, data: bytes | None, version: int, czxid: int, known: Mapping[int, int], *, by_daemon: bool
    ) -> TopicAssignment:
        """Notes a write of a topic znode. ``known``: broker epochs in the model of the daemon that wrote it."""
        found = self._decoder.decode(paths.topic(name), name, data, version, czxid)
        assert isinstance(found, TopicAssignment), found
        if found.topic_id is not None:
            self.topic_ids.setdefault((name, czxid), found.topic_id)
        self._dropped(self.incarnations.get((name, czxid)), found, known, by_daemon=by_daemon)
        self.topics[name] = self.incarnations[name, czxid] = found
        return found

    def _dropped(
        self, before: TopicAssignment | None, found: TopicAssignment, known: Mapping[int, int], *, by_daemon: bool
    ) -> None:
        for partition, assignment in found.partitions.items():
            self.removed.get((found.name, partition), set()).difference_update(assignment.replicas)
        if before is None:
            for key in [key for key in self.dropped if key[0] == found.name]:
                del self.dropped[key]
            return
        for partition, old in before.partitions.items():
            new = found.partitions.get(partition)
            if new is None or new == old:
                continue
            dropped = self.dropped.setdefault((found.name, partition), {})
            for broker in new.replicas:
                dropped.pop(broker, None)
            for broker in set(old.replicas) - set(new.replicas):
                dropped[broker] = Dropped(known.get(broker))
                removed = self.removed.setdefault((found.name, partition), set())
                (removed.add if by_daemon else removed.discard)(broker)

    def strays(self, broker: int) -> set[Key]:
        """Returns partitions of which a broker may still have a dropped replica.

        The broker was away when the controller would have stopped it, or had just registered anew. It may still be
        away: two absences are no agreement.
        """
        epoch = self.registered.get(broker)
        return {
            key
            for key, gone in self.dropped.items()
            if (found := gone.get(broker)) is not None and (found.broker_epoch is None or found.broker_epoch != epoch)
        }

    def lost_ids(self) -> dict[str, bytes]:
        """Returns ids of the topics whose znodes do not have them any more."""
        lost = [topic for topic in self.topics.values() if topic.topic_id is None]
        return {t.name: self.topic_ids[t.name, t.czxid] for t in lost if (t.name, t.czxid) in self.topic_ids}

    def may_continue_former(self, topic: TopicAssignment) -> bool:
        """Returns whether a former incarnation ended at the version that a write replaced.

        ZooKeeper compares versions only.
        """
        return any(
            name == topic.name and czxid < topic.czxid and former.version == topic.version - 1
            for (name, czxid), former in self.incarnations.items()
        )

    def ends(self, topic: TopicAssignment) -> bool:
        """Returns whether only its znode is left of a topic that is being deleted."""
        return topic.name in self.markers and not any(self.current((topic.name, p)) for p in topic.partitions)

    def moving(self) -> dict[Key, Assignment]:
        """Returns the reassignments that are under way."""
        return {(t.name, p): a for t in self.topics.values() for p, a in t.partitions.items() if a.moving}

    def spoil(self, key: Key, czxid: int) -> None:
        """Notes a state znode created for the ended incarnation: brokers receive the replicas of that one."""
        self.spoilt.add(key)
        self.hosts.setdefault(key, set()).update(self.incarnations[key[0], czxid].partitions[key[1]].replicas)

    @staticmethod
    def leadership(data: bytes | None, version: int) -> Leadership:
        """Decodes a state znode."""
        found = decode_state(data, version)
        assert isinstance(found, Leadership), found
        return found
