"""Keeps the quotas on mutations in a term (KIP-599): the rates that were read, and the buckets of payers.

A new term begins with full buckets, as a new controller of Kafka does.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from brokers.listener.envelopes import CarriedCall
from brokers.wire.versions import Api
from state_machines.admin_rules.mutation_quotas import Bucket, Level, Quota, charge, levels, quota_of

V = TypeVar("V")

CALLERS_MAX: Final = 10_000
"""Callers whose rates and buckets are kept; the one that was used longest ago goes first."""
WINDOW_S: Final = 11.0
"""Kafka's defaults: 11 windows of 1 s."""
STRICT_SINCE: Final[Mapping[Api, int]] = {Api.CREATE_TOPICS: 6, Api.CREATE_PARTITIONS: 3, Api.DELETE_TOPICS: 5}
"""First versions whose callers know THROTTLING_QUOTA_EXCEEDED; other calls pass, with a throttle time."""


class Payer(NamedTuple):
    """Identifies a caller: ``user`` without its type, ``client`` empty without an id; ``strict``: may be refused."""

    user: str
    client: str
    strict: bool


def payer(call: CarriedCall) -> Payer:
    """Returns the payer of a call."""
    return Payer(call.principal.partition(":")[2], call.client_id, call.version >= STRICT_SINCE[call.api])


class QuotaBuckets:
    """Keeps the rates and the buckets. ``window_s``: a bucket holds the tokens of so many seconds."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self.window_s = window_s
        self._known: dict[tuple[str, str], Quota | None] = {}
        self._buckets: dict[tuple[str, str], Bucket] = {}

    def forget(self) -> None:
        """Forgets the rates after a configuration changed; they are read again when needed. Buckets stay."""
        self._known.clear()

    def unknown(self, payers: Iterable[Payer]) -> list[Level]:
        """Returns the names whose rates must be read before these payers are charged."""
        new = [payer for payer in payers if payer[:2] not in self._known]
        return list(dict.fromkeys(level for payer in new for level in levels(payer.user, payer.client)))

    def accounts(self, payers: Iterable[Payer], rates: Mapping[Level, float]) -> list[Account]:
        """Returns an account for each payer; ``rates``: the read rates of unknown ones."""
        asking = list(payers)
        found: dict[tuple[str, str], Quota | None] = {}
        for user, client, _ in asking:
            caller = user, client
            found[caller] = self._known.pop(caller) if caller in self._known else quota_of(user, client, rates)
        for caller, quota in found.items():
            _put(self._known, caller, quota)
        return [Account(self, found[user, client], strict) for user, client, strict in asking]

    def charge(self, quota: Quota, mutations: int, now_s: float, *, strict: bool) -> tuple[bool, int]:
        """Charges mutations; returns whether they are allowed, and the milliseconds that the caller is to wait."""
        bucket = self._buckets.pop(quota.payer, None)
        charged = charge(bucket, quota.rate, self.window_s, mutations, now_s, strict=strict)
        _put(self._buckets, quota.payer, charged.bucket)
        return charged.allowed, charged.throttle_ms


def _put(kept: dict[tuple[str, str], V], key: tuple[str, str], value: V) -> None:
    kept[key] = value
    if len(kept) > CALLERS_MAX:
        del kept[next(iter(kept))]


class Account:
    """Charges one call; without a quota everything is allowed."""

    def __init__(self, quotas: QuotaBuckets, quota: Quota | None = None, strict: bool = False) -> None:
        self._quotas = quotas
        self._quota = quota
        self._strict = strict
        self._free_s = 0.0

    def charge(self, mutations: int) -> bool:
        """Charges partitions to create or delete; returns whether so many are allowed now."""
        if self._quota is None:
            return True
        now_s = asyncio.get_running_loop().time()
        allowed, throttle_ms = self._quotas.charge(self._quota, mutations, now_s, strict=self._strict)
        if throttle_ms:
            self._free_s = now_s + throttle_ms / 1000
        return allowed

    @property
    def throttle_ms(self) -> int:
        """Returns how long the caller is still to wait: the response may come long after the charge."""
        left_ms = (self._free_s - asyncio.get_running_loop().time()) * 1000
        return max(0, math.ceil(round(left_ms, 3)))
