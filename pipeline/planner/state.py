"""Declares the state of a search: a few wide arrays, because each array that a compiled function gets costs time."""

from __future__ import annotations

from typing import Final, NamedTuple

from pipeline.planner.arrays import Array

FACTOR: Final = 0
TOPIC: Final = 1
FREE: Final = 2
"""Columns of ``part``: the replication factor, the place of the topic, and 1 for a partition that may move."""
RACK: Final = 0
HOST: Final = 1
LEFT: Final = 2
"""Columns of ``who``: the rack, 1 for a broker that may take replicas, 1 for one that all replicas leave."""
LOAD: Final = 0
LOW: Final = 1
HIGH: Final = 2
CAP: Final = 3
SCALE: Final = 4
WEIGHT: Final = 5
TOP: Final = 6
FLOOR: Final = 7
LAYERS: Final = 8
"""Layers of ``book``: loads, their bounds, 1 divided by the mean, 1 for what binds in this phase, and the highest and
lowest loads that this phase allows (infinite where nothing binds)."""
REASON: Final = 0
ORDER: Final = 1
"""Columns of ``notes``: the goal that first moved the partition, or -1, and the number of its last change."""


class State(NamedTuple):
    """Arrays of the search. P partitions, R replicas at most, B brokers, T topics, 8 kinds of load.

    Changed: ``replicas`` int32 P x R; ``cells`` int32 C x B, replicas by broker of topics that can have too many on
    one; ``book`` float64 8 x B x 8; ``notes`` int64 P x 2; ``ticks`` uint64 2, the state of the random numbers and the
    count of changes.

    Read: ``origin`` int32 P x R; ``part`` int32 P x 3; ``rows`` float64 P x 4, the size (1: the mean), bytes in, bytes
    out of the leader, CPU of a follower; ``who`` int32 B x 3; ``rule`` int32 (R + 1) x 2, by replication factor how
    many replicas a rack may have, and how many racks so many; ``tops`` int32 T x 2, the row of ``cells`` or -1, and
    how many replicas of the topic one broker may have.
    """

    replicas: Array
    cells: Array
    book: Array
    notes: Array
    ticks: Array
    origin: Array
    part: Array
    rows: Array
    who: Array
    rule: Array
    tops: Array
