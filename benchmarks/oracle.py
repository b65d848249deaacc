"""The expected state after an event, in plain Python on lists, without regent's core and without Kafka's code.

The rules are those of Kafka 3.9 for a cluster without unclean elections: a leader is the first replica that is live and
in sync; a broker that dies or shuts down leaves the ISRs; each step of a partition's change raises its leader epoch by
one. The two controllers write the steps of one change together or apart, so partition epochs, which count writes,
are the only allowed difference: ``writes`` is their number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
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
    """The expected state of every partition of ``data``; ``changed`` has the rows that the present term rewrote.

    ``assigned`` are the replicas of each row, while it is reassigned those of the target and then those that go;
    ``targets`` has the running reassignments; ``rewritten`` has rows whose topic znode the controller has written.
    """

    data: DataSet
    states: list[State] = field(repr=False)
    live: set[int]
    leaving: set[int] = field(default_factory=set)
    changed: set[int] = field(default_factory=set)
    assigned: list[tuple[int, ...]] = field(default_factory=list, repr=False)
    targets: dict[int, tuple[int, ...]] = field(default_factory=dict, repr=False)
    rewritten: set[int] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        self.assigned = self.assigned or list(self.data.replicas)

    def dies(self, broker: int) -> None:
        """Takes a broker's death into account."""
        self.live.discard(broker)
        self.leaving.discard(broker)
        self._leaves_isrs(broker)

    def shuts_down(self, broker: int) -> None:
        """Takes a controlled shutdown into account; the broker is still registered."""
        self.leaving.add(broker)
        self._leaves_isrs(broker)

    def returns(self, broker: int) -> None:
        """Takes a broker's return into account; its replicas have not caught up yet."""
        self.live.add(broker)

    def was_dead(self, broker: int, writes: int) -> None:
        """Takes a broker's death before the term into account: its replicas leave the ISRs, then leaders move."""
        led = [row for row, state in enumerate(self.states) if state.leader == broker and len(state.isr) > 1]
        self.dies(broker)
        for row in led:
            state = self.states[row]
            self.states[row] = state._replace(epoch=state.epoch + 1, version=state.version + writes - 1)

    def _leaves_isrs(self, broker: int) -> None:
        for row, (replicas, state) in enumerate(zip(self.assigned, self.states, strict=True)):
            if broker in state.isr and len(state.isr) > 1:
                isr = tuple(b for b in state.isr if b != broker)
                leader = state.leader if state.leader != broker else self._first(replicas, isr)
                self._becomes(row, State(leader, state.epoch + 1, isr, state.version + 1))

    def _becomes(self, row: int, state: State) -> None:
        self.states[row] = state
        self.changed.add(row)

    # -- requests

    def reassigns(self, targets: dict[int, tuple[int, ...]]) -> None:
        """Takes begun reassignments into account: replicas of origin and target, one step, the same ISR and leader."""
        for row, target in targets.items():
            state = self.states[row]
            self.assigned[row] = (*target, *(b for b in self.assigned[row] if b not in target))
            self._becomes(row, state._replace(epoch=state.epoch + 1, version=state.version + 1))
        self.targets |= targets
        self.rewritten |= targets.keys()

    def completes(self, writes: int) -> None:
        """Takes completed reassignments into account: one write of each leader's ISR, then two steps of the end."""
        for row, target in self.targets.items():
            state = self.states[row]
            isr = tuple(dict.fromkeys((*state.isr, *target)))
            leader = state.leader if state.leader in target else self._first(target, isr)
            left = tuple(b for b in isr if b in target)
            self._becomes(row, State(leader, state.epoch + 2, left, state.version + 1 + writes))
            self.assigned[row] = target
        self.targets = {}

    def prefers(self) -> None:
        """Takes the election of all preferred leaders into account."""
        for row, (replicas, state) in enumerate(zip(self.assigned, self.states, strict=True)):
            if state.leader != replicas[0]:
                self._becomes(row, state._replace(leader=replicas[0], epoch=state.epoch + 1, version=state.version + 1))

    def creates(self, added: DataSet) -> None:
        """Takes created topics with started partitions into account."""
        first = len(self.states)
        topics, replicas = [*self.data.topics, *added.topics], [*self.data.replicas, *added.replicas]
        self.data = replace(self.data, topics=topics, replicas=replicas)
        self.states += initial(added).states
        self.assigned += added.replicas
        self.changed.update(range(first, len(self.states)))

    def deletes(self, added: DataSet) -> None:
        """Takes the deletion of the last created topics into account."""
        topics, rows = len(self.data.topics) - len(added.topics), len(self.states) - len(added.replicas)
        self.data = replace(self.data, topics=self.data.topics[:topics], replicas=self.data.replicas[:rows])
        del self.states[rows:], self.assigned[rows:]
        self.changed = {row for row in self.changed if row < rows}

    def _first(self, replicas: tuple[int, ...], isr: tuple[int, ...]) -> int:
        eligible = self.live - self.leaving
        return next(b for b in replicas if b in isr and b in eligible)

    # -- expected views of brokers

    @property
    def live_list(self) -> frozenset[int]:
        """Returns the registered brokers, those that shut down included."""
        return frozenset(self.live)

    @property
    def reachable(self) -> frozenset[int]:
        """Returns the brokers whose replicas are not offline."""
        return frozenset(self.live - self.leaving)

    def metadata(self) -> Digest:
        """Returns the digest of the metadata cache that every live broker must have."""
        offline = {b: True for b in self.data.brokers if b not in self.reachable}
        sums = _Sums()
        for row, (replicas, state) in enumerate(zip(self.assigned, self.states, strict=True)):
            away = sorted(b for b in replicas if b in offline) if offline else ()
            sums.add(f"{self._entry(row, replicas, state)}|{_csv(away)}")
        return sums.digest

    def replicas(self) -> dict[int, Digest]:
        """Returns for each live broker the digest of the states that it must have received of its replicas."""
        sums = {broker: _Sums() for broker in self.live}
        for row, (replicas, state) in enumerate(zip(self.assigned, self.states, strict=True)):
            entry = _hash(self._entry(row, replicas, state))
            for broker in replicas:
                if broker in sums:
                    sums[broker].add_hash(entry)
        return {broker: found.digest for broker, found in sums.items()}

    def _entry(self, row: int, replicas: tuple[int, ...], state: State) -> str:
        topic, partition = self.data.name(row)
        return f"{topic}|{partition}|{state.leader}|{state.epoch}|{_csv(state.isr)}|{state.version}|{_csv(replicas)}"


def initial(data: DataSet, versions: Iterable[int] | None = None, *, displaced: int = 0) -> Oracle:
    """Returns a state in sync and led by preferred replicas; the first ``displaced`` rows are led by their second one.

    ``versions`` are those of the state znodes.
    """
    numbers = versions if versions is not None else (0 for _ in data.replicas)
    rows = enumerate(zip(data.replicas, numbers, strict=True))
    states = [State(r[row < displaced], 0, r, version) for row, (r, version) in rows]
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
