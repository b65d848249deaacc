"""Declares the inputs of planning and reports as arrays: a table of brokers, one of partitions, and their loads.

:mod:`pipeline.snapshot_file`, :mod:`pipeline.assignment_file` and :mod:`pipeline.loads_file` read them from files.
Nothing here needs Spark. Arrays of one table have the same length; row ``i`` of each is one broker, or one partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

Int32s: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]
Int64s: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Bools: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

NONE: Final = -1
"""Pads rows of matrices of broker ids, and stands for an unknown integer."""


class BadInput(ValueError):
    """An input cannot be used. The message names file, line, field and value, and says what to do."""


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers, by ascending id.

    ``ids``: int32. ``rack``: int32, index into ``racks``, -1 without one. ``live``: bool, whether it is registered.
    ``epochs``: int64, broker epochs, -1 of brokers that are not registered. ``session_ms``: int32, time-out of the
    ZooKeeper session, -1 where it is not known.
    """

    ids: Int32s
    racks: tuple[str, ...]
    rack: Int32s
    live: Bools
    epochs: Int64s
    session_ms: Int32s

    def __len__(self) -> int:
        return len(self.ids)

    def index_of(self, ids: Int32s) -> Int32s:
        """Returns the rows of broker ids (any shape), as int32; -1 for -1 and for ids that the table lacks."""
        if not len(self.ids):
            return np.full(ids.shape, NONE, dtype=np.int32)
        at: Int64s = np.asarray(np.searchsorted(self.ids, ids) % len(self.ids))
        found: Int32s = np.where(self.ids[at] == ids, at, NONE).astype(np.int32)
        return found


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions, sorted by name of the topic and number.

    ``topics``: names, ascending; ``topic_ids``: their ids as Kafka prints them, None where unknown. ``topic``: int32,
    index into both. ``partition``: int32, number. ``replicas``, ``isr``: int32 matrices of broker ids, in the order
    of preference, padded with -1 on the right. ``replicas`` includes replicas that are being added. ``adding`` and
    ``removing``: bool matrices of the form of ``replicas``. ``leader``: int32, broker id, -1 without one.
    ``leader_epoch``, ``partition_epoch``: int32, -1 where unknown. ``min_isr``: int32, -1 where unknown. An
    assignment from a plan file has no ISR, no leader and no epochs: they are unknown.
    """

    topics: tuple[str, ...]
    topic_ids: tuple[str | None, ...]
    topic: Int32s
    partition: Int32s
    replicas: Int32s
    adding: Bools
    removing: Bools
    leader: Int32s
    leader_epoch: Int32s
    partition_epoch: Int32s
    isr: Int32s
    min_isr: Int32s

    def __len__(self) -> int:
        return len(self.partition)

    def name(self, i: int) -> str:
        """Returns the name of partition ``i`` for people, such as ``orders-3``."""
        return f"{self.topics[self.topic[i]]}-{self.partition[i]}"

    def rows_of(self, topics: Sequence[str], partitions: Sequence[int]) -> Int64s:
        """Returns the rows of partitions by their names, as int64; -1 for those that the table lacks."""
        index = {name: at for at, name in enumerate(self.topics)}
        keys = self.topic.astype(np.int64) << 32 | self.partition
        topic = np.fromiter((index.get(name, NONE) for name in topics), np.int64, len(topics))
        wanted = topic << 32 | np.asarray(partitions, dtype=np.int64)
        if not len(keys):
            return np.full(len(wanted), NONE, dtype=np.int64)
        at: Int64s = np.asarray(np.searchsorted(keys, wanted) % len(keys))
        found: Int64s = np.where((keys[at] == wanted) & (topic != NONE), at, NONE)
        return found


@dataclass(frozen=True, slots=True)
class Loads:
    """Loads of partitions; row ``i`` belongs to row ``i`` of a :class:`Partitions`.

    ``size_bytes``: int64, size of one replica, -1 where unknown. ``bytes_in_per_s``: float64, what producers write.
    ``bytes_out_per_s``: float64, what consumers read; both NaN where unknown. Replication is in neither of them.
    ``unknown``: how many rows of the files name a partition that is not in the table.
    """

    size_bytes: Int64s
    bytes_in_per_s: Floats
    bytes_out_per_s: Floats
    unknown: int = 0

    @classmethod
    def none(cls, partitions: int) -> Loads:
        """Returns loads of which nothing is known."""
        nothing = np.full(partitions, np.nan)
        return cls(np.full(partitions, NONE, dtype=np.int64), nothing, nothing.copy())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole snapshot. ``seq_first`` and ``seq_last``: numbers of rows of the journal of ``ctl_epoch``.

    Rows up to the first are in it, rows after the last are not; of those in between the partition epochs tell.
    ``ts_us``: wall clock of the begin, in microseconds. From a plan file all of these are 0, and ``cluster`` is empty.
    """

    brokers: Brokers
    partitions: Partitions
    cluster: str = ""
    ctl_epoch: int = 0
    seq_first: int = 0
    seq_last: int = 0
    ts_us: int = 0


def matrix(rows: Sequence[Sequence[int]]) -> Int32s:
    """Returns lists of ids as an int32 matrix, padded with -1 on the right; at least one column wide."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    width = max(1, int(lengths.max(initial=0)))
    found: Int32s = np.full((len(rows), width), NONE, dtype=np.int32)
    flat = np.fromiter((each for row in rows for each in row), np.int32, int(lengths.sum()))
    found[np.arange(width) < lengths[:, None]] = flat
    return found


def brokers_of(
    ids: Iterable[int],
    racks: dict[int, str | None] | None = None,
    live: Iterable[int] | None = None,
    epochs: dict[int, int] | None = None,
    session_ms: dict[int, int] | None = None,
) -> Brokers:
    """Returns the table of brokers by their ids. ``live``: ids of those that are registered, None: all of them."""
    ordered = sorted(set(ids))
    rack_of = racks or {}
    names = tuple(sorted({name for b in ordered if (name := rack_of.get(b)) is not None}))
    number: dict[str | None, int] = {name: at for at, name in enumerate(names)}
    alive = None if live is None else frozenset(live)
    return Brokers(
        np.array(ordered, dtype=np.int32),
        names,
        np.array([number.get(rack_of.get(b), NONE) for b in ordered], dtype=np.int32),
        np.array([alive is None or b in alive for b in ordered], dtype=np.bool_),
        np.array([(epochs or {}).get(b, NONE) for b in ordered], dtype=np.int64),
        np.array([(session_ms or {}).get(b, NONE) for b in ordered], dtype=np.int32),
    )
