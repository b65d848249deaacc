"""What must be true after an event, in plain Python on lists: neither regent's core nor Kafka's code takes part.

The rules are those of Kafka 3.9 for a cluster without reassignments, deletions and unclean elections: a leader is the
first replica that is live and in sync; a broker that dies or shuts down leaves the ISRs; each change of a partition
raises its leader epoch and its partition epoch by one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.datasets import DataSet

Digest = tuple[int, str]
"""Number of entries and the sum of their hashes, modulo 2**64, in hexadecimal."""


class State(NamedTuple):
    """A partition's state znode. ``epoch`` is the leader epoch, ``version`` the znode's version."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    version: int


@dataclass
class Oracle:
    """The expected state of every partition of ``data``; ``changed`` has the rows that the present term rewrote."""

    data: DataSet
    states: list[State] = field(repr=False)
    live: set[int]
    leaving: set[int] = field(default_factory=set)
    changed: set[int] = field(default_factory=set)

    def dies(self, broker: int) -> None:
        """The registration of a broker is gone."""
        self.live.discard(broker)
        self.leaving.discard(broker)
        self._leaves_isrs(broker)

    def shuts_down(self, broker: int) -> None:
        """A controlled shutdown was carried out; the broker is still registered."""
        self.leaving.add(broker)
        self._leaves_isrs(broker)

    def returns(self, broker: int) -> None:
        """A broker is registered again, and has not caught up with anything yet."""
        self.live.add(broker)

    def _leaves_isrs(self, broker: int) -> None:
        for row, (replicas, state) in enumerate(zip(self.data.replicas, self.states, strict=True)):
            if broker in state.isr and len(state.isr) > 1:
                isr = tuple(b for b in state.isr if b != broker)
                leader = state.leader if state.leader != broker else self._first(replicas, isr)
                self.states[row] = State(leader, state.epoch + 1, isr, state.version + 1)
                self.changed.add(row)

    def _first(self, replicas: tuple[int, ...], isr: tuple[int, ...]) -> int:
        eligible = self.live - self.leaving
        return next(b for b in replicas if b in isr and b in eligible)

    # -- what the brokers must know

    @property
    def live_list(self) -> frozenset[int]:
        """Registered brokers, those that shut down included."""
        return frozenset(self.live)

    @property
    def reachable(self) -> frozenset[int]:
        """Brokers whose replicas are not offline."""
        return frozenset(self.live - self.leaving)

    def metadata(self) -> Digest:
        """Digest of the metadata cache that every live broker must have."""
        offline = {b: True for b in self.data.brokers if b not in self.reachable}
        sums = _Sums()
        for row, (replicas, state) in enumerate(zip(self.data.replicas, self.states, strict=True)):
            away = sorted(b for b in replicas if b in offline) if offline else ()
            sums.add(f"{self._entry(row, replicas, state)}|{_csv(away)}")
        return sums.digest

    def replicas(self) -> dict[int, Digest]:
        """For each live broker the digest of what it must have been told of its own replicas."""
        sums = {broker: _Sums() for broker in self.live}
        for row, (replicas, state) in enumerate(zip(self.data.replicas, self.states, strict=True)):
            entry = _hash(self._entry(row, replicas, state))
            for broker in replicas:
                if broker in sums:
                    sums[broker].add_hash(entry)
        return {broker: found.digest for broker, found in sums.items()}

    def _entry(self, row: int, replicas: tuple[int, ...], state: State) -> str:
        topic, partition = self.data.name(row)
        return f"{topic}|{partition}|{state.leader}|{state.epoch}|{_csv(state.isr)}|{state.version}|{_csv(replicas)}"


def initial(data: DataSet, versions: Iterable[int] | None = None) -> Oracle:
    """Everything in sync and led by its preferred replica; ``versions`` are those of the state znodes."""
    numbers = versions if versions is not None else (0 for _ in data.replicas)
    states = [State(r[0], 0, r, version) for r, version in zip(data.replicas, numbers, strict=True)]
    return Oracle(data, states, set(data.brokers))


class _Sums:
    def __init__(self) -> None:
        self.count = 0
        self.total = 0

    def add(self, entry: str) -> None:
        self.add_hash(_hash(entry))

    def add_hash(self, value: int) -> None:
        self.count += 1
        self.total += value

    @property
    def digest(self) -> Digest:
        return self.count, f"{self.total % 2**64:016x}"


def _hash(entry: str) -> int:
    return int.from_bytes(hashlib.blake2b(entry.encode(), digest_size=8).digest(), "little")


def _csv(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))
