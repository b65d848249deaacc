"""Finds expired delegation tokens (KIP-48; Kafka ``DelegationTokenManager.expireTokens``)."""

from __future__ import annotations

from msgspec import Struct


class Token(Struct, frozen=True, gc=False):
    """Id, version of the znode, and both ends in milliseconds since 1970: as last renewed, and at the latest."""

    id: str
    version: int
    expiry_ms: int
    max_ms: int


def expired(token: Token, now_ms: int) -> bool:
    """Checks whether either end lies before ``now_ms``."""
    return min(token.expiry_ms, token.max_ms) < now_ms
