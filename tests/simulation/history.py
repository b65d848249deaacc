"""What ZooKeeper held, version by version, as far as invariants need it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

from metadata_store import paths
from metadata_store.codecs.state import decode_state
from metadata_store.codecs.topic import TopicDecoder
from state_machines.model.types import Assignment, Leadership, TopicAssignment, TopicPartition

Key = tuple[str, int]


@lru_cache(4_096)
def key_of(path: str) -> Key | None:
    """The partition whose state znode a path names."""
    found = paths.partition_of_state(path)
    return (found[0], found[1]) if found is not None else None


@lru_cache(4_096)
def topic_of(path: str) -> str | None:
    """The topic whose znode a path names."""
    parent, _, name = path.rpartition("/")
    return name if parent == paths.TOPICS else None


class Dropped(NamedTuple):
    """A replica that an assignment names no more, and the epoch by which its broker was known then."""

    broker_epoch: int | None


class Joined(NamedTuple):
    """When all of a reassignment's target was in the ISR first, and the brokers that the controller knew of then.

    Of one that has registered, and of which the controller has yet to hear, it waits for nothing.
    """

    target: tuple[int, ...]
    since_s: float
    known: dict[int, int]


class History:
    """Leaderships of every partition by partition epoch, assignments, registrations, controller epochs.

    A *life* of a partition is from the creation of its state znode to its deletion: ``states`` has the present ones,
    ``former`` those that ended; ``by_hand``: one of them ended without a word to the brokers. ``hosts``: who may still
    have a log of a life that ended, ``unaware`` those who may not have heard of its end, ``unfound`` those who said
    that it was deleted while it was on a log directory that failed, ``unstopped`` those who refused to delete it last.
    ``overwritten``: topics that a daemon may have written over with what a former incarnation had.
    ``spoilt``: begun with what belongs to the former incarnation of the topic, by a controller that had yet to hear of
    the next one. ``incarnations``: what each of a topic's znodes, told apart by their czxid, held last. ``markers``: of
    deletion.
    ``dropped``: replicas that reassignments removed, of present incarnations. ``request``: what their znode names.
    ``joined``: of what is reassigned, once its target was in sync. ``unclean``: topics of which an unclean election was
    asked for, or was allowed, at some time. ``topic_ids``: the first id of an incarnation.
    ``scribbled``: partitions whose state znode was written last by somebody who is neither controller nor leader, and
    the epoch of the last term that served by then. ``to_be_created`` and ``to_be_deleted``: topics that admin
    clients named. ``holder``: whose role the flag says it is. ``changed_s``: when paths were written or deleted last.
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
        self.spoilt: set[Key] = set()
        self.overwritten: set[str] = set()
        self.topics: dict[str, TopicAssignment] = {}
        self.incarnations: dict[tuple[str, int], TopicAssignment] = {}
        self.dropped: dict[Key, dict[int, Dropped]] = {}
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
        """Every partition that there is or was."""
        assigned = {(topic.name, partition) for topic in self.topics.values() for partition in topic.partitions}
        return assigned | self.states.keys() | self.former.keys()

    def assignment(self, key: Key) -> tuple[int, ...]:
        """Replicas of a partition; none where it is not assigned."""
        topic = self.topics.get(key[0])
        found = topic.partitions.get(key[1]) if topic is not None else None
        return found.replicas if found is not None else ()

    def kept(self, key: Key) -> frozenset[int]:
        """Replicas that no reassignment removes, or does as yet; what it adds counts from when it is in sync.

        Until then a log that was there before may still be deleted: the broker is told to stop first, then of the new.
        """
        topic, state = self.topics.get(key[0]), self.current(key)
        found = topic.partitions.get(key[1]) if topic is not None else None
        if found is None or state is None:
            return frozenset()
        removing = found.removing if key in self.joined else ()
        return frozenset(found.replicas).difference(removing, set(found.adding).difference(state.isr))

    def look_for_target(self, key: Key, now_s: float, known_epochs: Callable[[], dict[int, int]]) -> None:
        """The state znode of a partition, or what its topic's says of it, was written."""
        topic, state = self.topics.get(key[0]), self.current(key)
        found = topic.partitions.get(key[1]) if topic is not None else None
        known = self.joined.get(key)
        if known is not None and (found is None or not found.moving or known.target != found.target):
            del self.joined[key]
        if found is None or not found.moving or key in self.joined:
            return
        if state is not None and (not found.kept.moving or set(found.target) <= set(state.isr)):
            self.joined[key] = Joined(found.target, now_s, known_epochs())

    def current(self, key: Key) -> Leadership | None:
        """What the state znode holds."""
        states = self.states.get(key)
        return states[-1] if states else None

    def ended(self, key: Key, strays: Collection[int], *, by_hand: bool) -> None:
        """The state znode was deleted; ``strays``: brokers that keep a log of it."""
        states = self.states.pop(key, None)
        if self.scribbled.pop(key, None) is not None:
            self.unaware.setdefault(key, set()).update(self.registered)  # garbage is no partition, nor its end one
        if states:
            self.former.setdefault(key, []).append(states)
            if by_hand:
                self.by_hand.add(key)
                strays = {*strays, *self.dropped.get(key, ())}
            else:
                self.hosts.get(key, set()).difference_update(self.assignment(key))
                strays = {*strays, *(b for b in self.dropped.get(key, ()) if key in self.strays(b))}
            self.hosts.setdefault(key, set()).update(strays)

    def untold(self, broker: int) -> set[Key]:
        """Partitions of which a broker may not have heard that they ended, or what they began with."""
        return self.by_hand | self.spoilt | {key for key, brokers in self.unaware.items() if broker in brokers}

    def hosted_by(self, broker: int) -> set[Key]:
        """Partitions of which a broker may have a log of a life that ended: it refuses what comes after it."""
        return {key for key, brokers in self.hosts.items() if broker in brokers}

    def life(self, key: Key) -> int:
        """Number of the present life, or of the next one."""
        return len(self.former.get(key, ()))

    def at(self, key: Key, version: int) -> Leadership | None:
        """What the state znode of the present life held at a version."""
        states = self.states.get(key, ())
        return states[version] if 0 <= version < len(states) else None

    def ever(self, key: Key, version: int) -> list[tuple[int, Leadership]]:
        """What it held at a version in each of its lives, with their numbers."""
        lives = (
            [*self.former.get(key, ()), self.states.get(key, ())] if key in self.former else [self.states.get(key, ())]
        )
        return [(life, states[version]) for life, states in enumerate(lives) if 0 <= version < len(states)]

    def lives(self, key: Key, version: int, leader: int, leader_epoch: int, isr: tuple[int, ...]) -> list[int]:
        """In which lives it held this at a version."""
        wanted = leader, leader_epoch, isr
        found = self.ever(key, version)
        return [life for life, held in found if (held.leader, held.leader_epoch, held.isr) == wanted]

    def topic_written(
        self, name: str, data: bytes | None, version: int, czxid: int, known: Mapping[int, int]
    ) -> TopicAssignment:
        """A topic znode was written. ``known``: broker epochs in the model of the daemon that did it."""
        found = self._decoder.decode(paths.topic(name), name, data, version, czxid)
        assert isinstance(found, TopicAssignment), found
        if found.topic_id is not None:
            self.topic_ids.setdefault((name, czxid), found.topic_id)
        self._dropped(self.incarnations.get((name, czxid)), found, known)
        self.topics[name] = self.incarnations[name, czxid] = found
        return found

    def _dropped(self, before: TopicAssignment | None, found: TopicAssignment, known: Mapping[int, int]) -> None:
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

    def strays(self, broker: int) -> set[Key]:
        """Partitions of which a broker may still have a replica that was dropped.

        It was away when that was to be stopped (it may still be so: two absences are no agreement), or had just
        registered anew.
        """
        epoch = self.registered.get(broker)
        return {
            key
            for key, gone in self.dropped.items()
            if (found := gone.get(broker)) is not None and (found.broker_epoch is None or found.broker_epoch != epoch)
        }

    def lost_ids(self) -> dict[str, bytes]:
        """Ids of the topics whose znodes do not have them any more."""
        lost = [topic for topic in self.topics.values() if topic.topic_id is None]
        return {t.name: self.topic_ids[t.name, t.czxid] for t in lost if (t.name, t.czxid) in self.topic_ids}

    def may_continue_former(self, topic: TopicAssignment) -> bool:
        """Whether a former incarnation ended at the version that a write replaced: ZooKeeper compares only that."""
        return any(
            name == topic.name and czxid < topic.czxid and former.version == topic.version - 1
            for (name, czxid), former in self.incarnations.items()
        )

    def ends(self, topic: TopicAssignment) -> bool:
        """Whether nothing but its znode is left of a topic that is being deleted."""
        return topic.name in self.markers and not any(self.current((topic.name, p)) for p in topic.partitions)

    def moving(self) -> dict[Key, Assignment]:
        """What is being reassigned."""
        return {(t.name, p): a for t in self.topics.values() for p, a in t.partitions.items() if a.moving}

    def spoil(self, key: Key, czxid: int) -> None:
        """The state znode was created for the incarnation that is gone: its replicas hear of it."""
        self.spoilt.add(key)
        self.hosts.setdefault(key, set()).update(self.incarnations[key[0], czxid].partitions[key[1]].replicas)

    @staticmethod
    def leadership(data: bytes | None, version: int) -> Leadership:
        """Content of a state znode."""
        found = decode_state(data, version)
        assert isinstance(found, Leadership), found
        return found
