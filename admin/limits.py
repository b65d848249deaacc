"""Bounds of the admin endpoint."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

CHUNK_BYTES: Final = 65_536
"""Answers are passed on in pieces of at most this size."""
REWRITTEN_BYTES_MAX: Final = 1_048_576
"""Most bytes of an answer that are held to be changed: the head of Metadata, ApiVersions, DescribeCluster."""
UNKNOWN_FRAME_BYTES_MAX: Final = 65_536
"""Largest request of a client that must authenticate and has not, and of those that need no authentication."""
ITEM_BYTES: Final = 200
"""About what an item of an array takes in memory once it is read: up to twenty times of what it takes on the wire."""


class Limits(Struct, frozen=True):
    """What clients and brokers may use.

    ``buffered_bytes_max``: requests of all clients together that are received or carried out, their bytes and what
    was read of them (:data:`ITEM_BYTES`). Of an answer, a connection holds a few :data:`CHUNK_BYTES`, however large it
    is. ``frame_timeout_ms``: a request that has begun must be complete, a piece of an answer sent and taken, a client
    authenticated or with its first real request there, within it.
    How long a broker thinks about an answer is up to the client, which hangs up when it has waited enough: members of a
    group may wait for minutes.
    """

    frame_bytes_max: int = 16_777_216
    connections_max: int = 1_000
    connections_per_address_max: int = 500
    buffered_bytes_max: int = 134_217_728
    frame_timeout_ms: int = 10_000
    idle_timeout_ms: int = 600_000
    connect_timeout_ms: int = 5_000
    answer_bytes_max: int = 1_073_741_824
