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
    """Leaderships of every partition by partition epoch, assignments, registrations, controller epochs."""

    def __init__(self) -> None:
        self.states: dict[Key, list[Leadership]] = {}
        self.topics: dict[str, TopicAssignment] = {}
        self.registered: dict[int, int] = {}
        self.epoch = 0
        self.epoch_version = 0
        self._decoder = TopicDecoder()

    def assignment(self, key: Key) -> tuple[int, ...]:
        """Replicas of a partition."""
        return self.topics[key[0]].partitions[key[1]].replicas

    def current(self, key: Key) -> Leadership | None:
        """What the state znode holds."""
        states = self.states.get(key)
        return states[-1] if states else None

    def at(self, key: Key, version: int) -> Leadership | None:
        """What the state znode held at a version."""
        states = self.states.get(key, ())
        return states[version] if 0 <= version < len(states) else None

    def topic_written(self, name: str, data: bytes | None, version: int, czxid: int) -> TopicAssignment:
        """A topic znode was written."""
        found = self._decoder.decode(paths.topic(name), name, data, version, czxid)
        assert isinstance(found, TopicAssignment), found
        self.topics[name] = found
        return found

    @staticmethod
    def leadership(data: bytes | None, version: int) -> Leadership:
        """Content of a state znode."""
        found = decode_state(data, version)
        assert isinstance(found, Leadership), found
        return found
