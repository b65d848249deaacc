"""Judges quotas on controller mutations (KIP-599): the rate that holds for a caller, and the bucket that pays.

Mutations are partitions that are created or deleted. A bucket fills at the rate of its quota, up to what the rate gives
in a window. It may be overdrawn: a caller that finds it below zero is refused (strict), a caller that overdraws it
waits (permissive).

Source: Kafka ``ControllerMutationQuotaManager``, ``ClientQuotaManager``, ``TokenBucket``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

EVERY: Final = ""
"""As a name: the default of all users, or of all clients."""
THROTTLE_MS_MAX: Final = 2**31 - 1
"""Longest wait that fits into a response, in milliseconds."""


class Level(NamedTuple):
    """The level of a rate: a user, a client, or a client of a user; None: the level names none."""

    user: str | None
    client: str | None


class Quota(NamedTuple):
    """A rate in partitions a second. ``payer``: user and client that share a bucket, empty where they do not matter."""

    rate: float
    payer: tuple[str, str]


class Bucket(Struct, frozen=True, gc=False):
    """The balance at a reading of the clock, in partitions and in seconds."""

    tokens: float
    at_s: float


class Charged(NamedTuple):
    """A bucket afterwards, whether the mutations are allowed, and how long the caller is to wait."""

    bucket: Bucket
    allowed: bool
    throttle_ms: int


def levels(user: str, client: str) -> Iterator[Level]:
    """Returns where a caller's rate may be set, by precedence. A client without a name has no rate of its own."""
    for name in (user, EVERY):
        if client:
            yield Level(name, client)
            yield Level(name, EVERY)
        yield Level(name, None)
    if client:
        yield Level(None, client)
        yield Level(None, EVERY)


def quota_of(user: str, client: str, rates: Mapping[Level, float]) -> Quota | None:
    """Returns the quota that holds for a caller; None: unlimited.

    Each caller of a default quota has a bucket of its own.
    """
    for level in levels(user, client):
        if (rate := rates.get(level)) is not None:
            return Quota(rate, ("" if level.user is None else user, "" if level.client is None else client))
    return None


def refilled(bucket: Bucket | None, rate: float, window_s: float, now_s: float) -> Bucket:
    """Returns the bucket at ``now_s``; a new one is full."""
    full = rate * window_s
    if bucket is None:
        return Bucket(full, now_s)
    return Bucket(min(full, bucket.tokens + rate * max(0.0, now_s - bucket.at_s)), now_s)


def charge(
    bucket: Bucket | None, rate: float, window_s: float, mutations: int, now_s: float, *, strict: bool
) -> Charged:
    """Takes ``mutations`` out of a bucket. A strict caller is refused where it is overdrawn, and takes nothing then."""
    found = refilled(bucket, rate, window_s, now_s)
    if strict and found.tokens < 0:
        return Charged(found, False, _wait_ms(found.tokens, rate))
    left = Bucket(found.tokens - mutations, now_s)
    return Charged(left, True, 0 if strict else _wait_ms(left.tokens, rate))


def _wait_ms(tokens: float, rate: float) -> int:
    """Returns the time until the bucket is at zero again, rounded up: a caller that waits so long is not refused."""
    if tokens >= 0:
        return 0
    wait_ms = -tokens / rate * 1000 if rate else math.inf
    return THROTTLE_MS_MAX if wait_ms >= THROTTLE_MS_MAX else math.ceil(wait_ms)
