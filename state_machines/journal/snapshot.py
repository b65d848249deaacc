"""Declares the lines of a snapshot: all brokers and all partitions at one place of the journal, for later jobs.

A file is gzip-compressed JSON lines. The first line is a :class:`Header`, the last one a :class:`Trailer`. In between
are a line for each broker, and lines with up to :data:`PARTITIONS_PER_LINE_MAX` partitions of one topic, as columns.
A topic that was deleted and created anew while it was read is there twice, with two ids: the later one counts.
A file without its trailer, or whose trailer counts other lines, is torn. Fields are only added within a version;
readers pass over fields, and over kinds of lines, that they do not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

FORMAT: Final = "regent-snapshot"
VERSION: Final = 1
PARTITIONS_PER_LINE_MAX: Final = 1_000
"""Most partitions of a line."""


class Header(Struct, omit_defaults=True, tag="HEADER", tag_field="kind"):
    """The first line. ``seq``: number of the last journal row of ``ctl_epoch`` before the first partition was read.

    ``ts_us``: the wall clock at that time, in microseconds. ``cause``: election, schedule or command.
    """

    format: str
    v: int
    cluster: str
    ctl_id: int
    ctl_epoch: int
    seq: int
    ts_us: int
    cause: str


class BrokerLine(Struct, omit_defaults=True, tag="BROKER", tag_field="kind"):
    """A broker. ``live``: it is registered. One that is not is known from assignments alone, by its id.

    ``shutting_down``: it is registered, and has requested controlled shutdown. ``session_ms``: time-out of its
    ZooKeeper session as it is configured; absent where that is not known.
    """

    broker: int
    live: bool
    broker_epoch: int | None = None
    rack: str | None = None
    shutting_down: bool = False
    session_ms: int | None = None


class PartitionsLine(Struct, omit_defaults=True, tag="PARTITIONS", tag_field="kind"):
    """Partitions of one topic; every list has one item for each of ``partition``, in the same order.

    ``replicas`` includes those being added. ``adding`` and ``removing`` are absent where no partition of the line
    moves. Without a leader ``leader`` is -1; without a state znode ``leader_epoch`` and ``partition_epoch`` are, too,
    and ``isr`` is empty. ``min_isr``: ``min.insync.replicas`` in force, absent where it is not known. ``deleting``:
    the topic is queued for deletion.
    """

    topic: str
    partition: Sequence[int]
    replicas: Sequence[Sequence[int]]
    leader: Sequence[int]
    leader_epoch: Sequence[int]
    partition_epoch: Sequence[int]
    isr: Sequence[Sequence[int]]
    topic_id: str | None = None
    min_isr: int | None = None
    adding: Sequence[Sequence[int]] | None = None
    removing: Sequence[Sequence[int]] | None = None
    deleting: bool = False


class Trailer(Struct, omit_defaults=True, tag="TRAILER", tag_field="kind"):
    """The last line. ``lines`` counts all others; ``partitions`` and ``brokers`` are totals.

    ``seq``: number of the last journal row once the last partition had been read. A row of a partition up to the
    header's ``seq`` is in the snapshot, one after the trailer's is not. Of those in between the partition epoch tells.
    """

    lines: int
    partitions: int
    brokers: int
    seq: int
    ts_us: int


Line = Header | BrokerLine | PartitionsLine | Trailer
