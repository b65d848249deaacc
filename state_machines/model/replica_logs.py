"""Declares the logs that brokers report on their log directories (KIP-113, Kafka ``DescribeLogDirs``)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

NO_OFFSET_LAG: Final = -1
"""Lag of a log whose replica is offline, or was not sent to its broker yet (``INVALID_OFFSET_LAG``)."""


class ReplicaLog(Struct, frozen=True, gc=False):
    """A log of one replica. ``size_bytes`` counts its segments.

    ``is_future``: it replaces the replica's log on another directory of the same broker, once it has caught up.
    ``offset_lag`` is in offsets: behind the high watermark, for a future log behind the replica's present log. It is
    :data:`NO_OFFSET_LAG` where the broker does not know it.
    """

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDirectory(Struct, frozen=True):
    """A log directory of a broker. ``error`` is Kafka's error code: 0 online, 56 offline; then it lists no logs."""

    path: str
    error: int
    logs: tuple[ReplicaLog, ...] = ()
