"""What ZooKeeper held, version by version, as far as invariants need it."""

from __future__ import annotations

from functools import lru_cache

from metadata_store import paths
from metadata_store.codecs.state import decode_state
from metadata_store.codecs.topic import TopicDecoder
from state_machines.types import Leadership, TopicAssignment

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


class History:
    """Leaderships of every partition by partition epoch, assignments, registrations, controller epochs.

    A *life* of a partition is from the creation of its state znode to its deletion: ``states`` has the present ones,
    ``former`` those that ended, ``hosts`` who was a replica in them. ``spoilt``: begun with what belongs to the former
    incarnation of the topic, by a controller that had yet to hear of the next one. ``incarnations``: what each of a
    topic's znodes, told apart by their czxid, held last.
    """

    def __init__(self) -> None:
        self.states: dict[Key, list[Leadership]] = {}
        self.former: dict[Key, list[list[Leadership]]] = {}
        self.hosts: dict[Key, set[int]] = {}
        self.spoilt: set[Key] = set()
        self.topics: dict[str, TopicAssignment] = {}
        self.incarnations: dict[int, TopicAssignment] = {}
        self.registered: dict[int, int] = {}
        self.epoch = 0
        self.epoch_version = 0
        self._decoder = TopicDecoder()

    def assignment(self, key: Key) -> tuple[int, ...]:
        """Replicas of a partition; none where it is not assigned."""
        topic = self.topics.get(key[0])
        found = topic.partitions.get(key[1]) if topic is not None else None
        return found.replicas if found is not None else ()

    def current(self, key: Key) -> Leadership | None:
        """What the state znode holds."""
        states = self.states.get(key)
        return states[-1] if states else None

    def ended(self, key: Key) -> None:
        """The state znode was deleted."""
        states = self.states.pop(key, None)
        self.spoilt.discard(key)
        if states:
            self.former.setdefault(key, []).append(states)
            self.hosts.setdefault(key, set()).update(self.assignment(key))

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

    def topic_written(self, name: str, data: bytes | None, version: int, czxid: int) -> TopicAssignment:
        """A topic znode was written."""
        found = self._decoder.decode(paths.topic(name), name, data, version, czxid)
        assert isinstance(found, TopicAssignment), found
        self.topics[name] = self.incarnations[czxid] = found
        return found

    def spoil(self, key: Key, czxid: int) -> None:
        """The state znode was created for the incarnation that is gone: its replicas hear of it."""
        self.spoilt.add(key)
        self.hosts.setdefault(key, set()).update(self.incarnations[czxid].partitions[key[1]].replicas)

    @staticmethod
    def leadership(data: bytes | None, version: int) -> Leadership:
        """Content of a state znode."""
        found = decode_state(data, version)
        assert isinstance(found, Leadership), found
        return found
