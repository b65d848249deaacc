"""Quotas on mutations (KIP-599): precedence over its full product, the bucket, and the znodes that hold rates."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from controller.kafka.access.quota_buckets import Account, QuotaBuckets
from metadata_store.nodes.quota_nodes import quota_path
from state_machines.admin_rules.mutation_quotas import (
    EVERY,
    THROTTLE_MS_MAX,
    Bucket,
    Level,
    Quota,
    charge,
    levels,
    quota_of,
    refilled,
)
from tests.kit.virtual_time import in_exact_time

PRECEDENCE = [
    ("/config/users/u/clients/c", ("u", "c")),
    ("/config/users/u/clients/<default>", ("u", "c")),
    ("/config/users/u", ("u", "")),
    ("/config/users/<default>/clients/c", ("u", "c")),
    ("/config/users/<default>/clients/<default>", ("u", "c")),
    ("/config/users/<default>", ("u", "")),
    ("/config/clients/c", ("", "c")),
    ("/config/clients/<default>", ("", "c")),
]
"""Kafka's order, and the key of the bucket that callers share (``ClientQuotaManager.quotaMetricTags``)."""


@pytest.mark.parametrize("present", list(product([False, True], repeat=8)))
def test_the_most_specific_rate_holds(present: tuple[bool, ...]) -> None:
    found = list(levels("u", "c"))
    assert [quota_path(level) for level in found] == [path for path, _ in PRECEDENCE]
    rates = {level: float(n) for n, (level, there) in enumerate(zip(found, present, strict=True)) if there}
    expected = next((n for n, there in enumerate(present) if there), None)
    assert quota_of("u", "c", rates) == (None if expected is None else Quota(expected, PRECEDENCE[expected][1]))


def test_a_client_without_an_id_has_the_users_rate_only() -> None:
    assert [quota_path(level) for level in levels("u", "")] == ["/config/users/u", "/config/users/<default>"]


def test_names_in_paths_are_escaped_as_kafka_escapes_them() -> None:
    """A client that calls itself ``<default>`` is not the default (Kafka ``Sanitizer``)."""
    assert quota_path(Level("CN=a, O=b/c", "~*+ä")) == "/config/users/CN%3Da%2C%20O%3Db%2Fc/clients/%7E%2A%2B%C3%A4"
    assert quota_path(Level(None, "<default>")) == "/config/clients/%3Cdefault%3E"
    assert quota_path(Level(None, EVERY)) == "/config/clients/<default>"


def test_a_bucket_begins_full_and_never_holds_more_than_a_window() -> None:
    full = refilled(None, 2.0, 10.0, 100.0)
    assert full == Bucket(20.0, 100.0)
    assert refilled(full, 2.0, 10.0, 200.0) == Bucket(20.0, 200.0)
    assert refilled(Bucket(-4.0, 100.0), 2.0, 10.0, 101.0) == Bucket(-2.0, 101.0)
    assert refilled(full, 1.0, 10.0, 100.0) == Bucket(10.0, 100.0)
    assert refilled(full, 2.0, 10.0, 99.0) == Bucket(20.0, 99.0)


@pytest.mark.parametrize(
    ("tokens", "mutations", "strict", "left", "allowed", "throttle_ms"),
    [
        (5.0, 5, True, 0.0, True, 0),
        (5.0, 9, True, -4.0, True, 0),
        (0.0, 9, True, -9.0, True, 0),
        (-1.0, 9, True, -1.0, False, 500),
        (-1.0, 0, True, -1.0, False, 500),
        (5.0, 5, False, 0.0, True, 0),
        (5.0, 9, False, -4.0, True, 2_000),
        (-1.0, 9, False, -10.0, True, 5_000),
        (-1.0, 0, False, -1.0, True, 500),
        (-0.0001, 1, True, -0.0001, False, 1),
    ],
)
def test_strict_callers_are_refused_and_permissive_ones_get_a_throttle_time(
    tokens: float, mutations: int, strict: bool, left: float, allowed: bool, throttle_ms: int
) -> None:
    found = charge(Bucket(tokens, 7.0), 2.0, 10.0, mutations, 7.0, strict=strict)
    assert found == (Bucket(left, 7.0), allowed, throttle_ms)


@pytest.mark.parametrize("rate", [0.0, 1e-9])
def test_a_rate_of_zero_gives_the_longest_throttle_time(rate: float) -> None:
    found = charge(None, rate, 10.0, 3, 0.0, strict=True)
    assert found.allowed
    again = charge(found.bucket, rate, 10.0, 1, 1.0, strict=True)
    assert (again.allowed, again.throttle_ms) == (False, THROTTLE_MS_MAX)


@in_exact_time
async def test_a_throttle_time_ends_with_the_time_that_has_passed_since_the_charge() -> None:
    """Without a quota, or with a full bucket, it is zero."""
    quotas = QuotaBuckets(window_s=10.0)
    assert Account(quotas).charge(1_000_000)
    assert Account(quotas).throttle_ms == 0
    account = Account(quotas, Quota(2.0, ("u", "")), strict=False)
    assert (account.charge(20), account.throttle_ms) == (True, 0)
    for passed_s, throttle_ms in ((0.0, 5_000), (1.0, 4_000), (3.9995, 1), (0.1, 0)):
        if not passed_s:
            assert account.charge(10)
        await asyncio.sleep(passed_s)
        assert account.throttle_ms == throttle_ms
