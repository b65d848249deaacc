"""Declares the bounds of the admin endpoint."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

CHUNK_BYTES: Final = 65_536
"""Largest piece of a forwarded response."""
REWRITTEN_BYTES_MAX: Final = 1_048_576
"""Most bytes of a response that are held to be changed: the head of Metadata, ApiVersions, DescribeCluster."""
UNKNOWN_FRAME_BYTES_MAX: Final = 65_536
"""Largest request of a client that has still to authenticate, and of the APIs that need no authentication."""
ITEM_BYTES: Final = 200
"""Approximate memory of a decoded array item, up to twenty times its size on the wire."""


class Limits(Struct, frozen=True):
    """The resources that clients and brokers may use.

    ``buffered_bytes_max`` bounds the requests of all clients that are being received or carried out, with their bytes
    and their items (:data:`ITEM_BYTES`). Of a response, a connection holds a few :data:`CHUNK_BYTES`, of whatever size.
    ``frame_timeout_ms`` bounds the rest of a partly received request, and the sending of a piece of a response. It also
    bounds the time until a client authenticates or sends its first real request. The wait for a broker's response has
    no bound but the client, which hangs up: members of a group may wait for minutes.
    """

    frame_bytes_max: int = 16_777_216
    connections_max: int = 1_000
    connections_per_address_max: int = 500
    buffered_bytes_max: int = 134_217_728
    frame_timeout_ms: int = 10_000
    idle_timeout_ms: int = 600_000
    connect_timeout_ms: int = 5_000
    response_bytes_max: int = 1_073_741_824
