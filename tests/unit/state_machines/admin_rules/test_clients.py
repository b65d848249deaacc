"""Access control lists and quotas on mutations: Kafka's precedence over its full product, and their znodes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from itertools import product
from typing import Any

import msgspec
import pytest

from controller.kafka.access import Account, QuotaBuckets
from metadata_store.codecs.base import MalformedNode
from metadata_store.nodes.acl_nodes import decode_acls, decode_extended_change, decode_literal_change
from metadata_store.nodes.entity_configs import quota_path
from state_machines.admin_rules.acls import (
    ANY_PRINCIPAL,
    ANYTHING,
    DENY_ALL,
    Acls,
    Entry,
    Operation,
    Pattern,
    Resource,
    allowed,
    canonical_host,
)
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
from tests.kit.deadlines import in_exact_time

ALICE, BOB = "User:alice", "User:bob"
HERE, THERE = "10.0.0.1", "10.0.0.2"
PLACES = [(Pattern.LITERAL, "orders"), (Pattern.LITERAL, "*"), (Pattern.PREFIXED, "ord"), (Pattern.PREFIXED, "orders")]
ELSEWHERE = [(Pattern.LITERAL, "ord"), (Pattern.PREFIXED, "orders2"), (Pattern.PREFIXED, "rders")]
IMPLIES = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def lists(*lines: tuple[Pattern, str, Entry], kind: Resource = Resource.TOPIC) -> Acls:
    acls = Acls(found=True)
    for pattern, name in {(pattern, name) for pattern, name, _ in lines}:
        acls.put(pattern, (kind, name), tuple(e for p, n, e in lines if (p, n) == (pattern, name)))
    return acls


def line(allows: bool, operation: str = "All", principal: str = ALICE, host: str = ANYTHING) -> Entry:
    return Entry(principal, host, operation, allows)


def may(acls: Acls, operation: Operation = Operation.DELETE, *, principal: str = ALICE, open_: bool = False) -> bool:
    return allowed(acls, principal, HERE, operation, Resource.TOPIC, "orders", open_=open_)


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("named", Operation)
def test_one_line_allows_what_it_names_and_what_that_implies(operation: Operation, named: Operation) -> None:
    allowed_ = named in {operation, Operation.ALL, *IMPLIES.get(operation, ())}
    assert may(lists((*PLACES[0], line(True, named))), operation) is allowed_
    denied = named in {operation, Operation.ALL}
    both = lists((*PLACES[0], line(False, named)), (*PLACES[1], line(True, "All")))
    assert may(both, operation) is not denied, "a denial implies no other operation"


@pytest.mark.parametrize("place", PLACES + ELSEWHERE)
@pytest.mark.parametrize(("principal", "named"), [(ALICE, True), (ANY_PRINCIPAL, True), (BOB, False)])
@pytest.mark.parametrize(("host", "here"), [(ANYTHING, True), (HERE, True), (THERE, False)])
def test_a_line_concerns_its_principal_host_and_resource(
    *, place: tuple[Pattern, str], principal: str, named: bool, host: str, here: bool
) -> None:
    concerns = place in PLACES and named and here
    assert may(lists((*place, line(True, principal=principal, host=host)))) is concerns
    everything = (Pattern.LITERAL, "*", line(True, principal=ANY_PRINCIPAL))
    assert may(lists(everything, (*place, line(False, principal=principal, host=host)))) is not concerns


@pytest.mark.parametrize(("denied", "granted"), list(itertools.product(PLACES, PLACES)))
def test_a_denial_outweighs_every_permission(denied: tuple[Pattern, str], granted: tuple[Pattern, str]) -> None:
    assert may(lists((*granted, line(True))))
    assert not may(lists((*granted, line(True)), (*denied, line(False))))


def test_without_a_list_the_setting_decides_and_with_one_it_does_not() -> None:
    assert not may(Acls())
    assert may(Acls(), open_=True)
    for place in PLACES:
        assert not may(lists((*place, line(True, principal=BOB))), open_=True)
    for place in ELSEWHERE:
        assert may(lists((*place, line(False))), open_=True)
    assert not may(lists((*PLACES[0], *DENY_ALL)), open_=True)


def test_a_list_of_the_cluster_concerns_no_topic() -> None:
    acls = lists((Pattern.LITERAL, "*", line(True)), kind=Resource.CLUSTER)
    assert allowed(acls, ALICE, HERE, Operation.CREATE, Resource.CLUSTER, "kafka-cluster")
    assert not may(acls)


def test_a_list_without_lines_takes_no_memory() -> None:
    acls = lists((*PLACES[0], line(True)), (*PLACES[2], line(True)))
    for pattern, name in (PLACES[0], PLACES[2], ELSEWHERE[0]):
        acls.put(pattern, (Resource.TOPIC, name), ())
    assert not acls.literal
    assert not acls.prefixed
    assert not acls.sizes


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("*", "*"),
        ("10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::1", "::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("FE80:0:0:0:0:0:0:A", "fe80::a"),
        ("a host", "a host"),
    ],
)
def test_addresses_have_one_spelling(text: str, address: str) -> None:
    assert canonical_host(text) == address


# -- znodes


def test_a_list_as_kafka_writes_it() -> None:
    data = (
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Describe","host":"*"},'
        b'{"principal":"User:*","permissionType":"Deny","operation":"All","host":"0:0:0:0:0:0:0:1"}]}'
    )
    assert decode_acls("", data) == (Entry(ALICE, "*", "Describe", True), Entry(ANY_PRINCIPAL, "::1", "All", False))
    assert decode_acls("", b'{"version":1,"acls":[]}') == ()


@pytest.mark.parametrize(
    ("permission", "operation", "entry"),
    [
        ("Deny", "ALL", Entry(ALICE, "*", "All", False)),
        ("DENY", "all", Entry(ALICE, "*", "All", False)),
        ("deny", "CLUSTERACTION", Entry(ALICE, "*", "ClusterAction", False)),
        ("ALLOW", "describeconfigs", Entry(ALICE, "*", "DescribeConfigs", True)),
        ("Deny", "IdempotentWrite", Entry(ALICE, "*", "IdempotentWrite", False)),
        ("Deny", "Levitate", Entry(ALICE, "*", "All", False)),
        ("Deny", "Any", Entry(ALICE, "*", "All", False)),
        ("Allow", "Levitate", Entry(ALICE, "*", "Levitate", True)),
    ],
)
def test_case_does_not_count_and_a_denial_of_an_unknown_operation_denies_all(
    permission: str, operation: str, entry: Entry
) -> None:
    line = {"principal": ALICE, "permissionType": permission, "operation": operation, "host": "*"}
    assert decode_acls("", msgspec.json.encode({"version": 1, "acls": [line]})) == (entry,)


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"{}",
        b'{"version":2,"acls":[]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Maybe","operation":"All","host":"*"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"","host":"*"}]}',
        b'{"version":1,"acls":[{"permissionType":"Allow","operation":"All","host":"*"}]}',
    ],
)
def test_a_malformed_list_is_a_value(data: bytes | None) -> None:
    assert isinstance(decode_acls("/kafka-acl/Topic/t", data), MalformedNode)


def test_notifications_name_a_list() -> None:
    for kind in (b"TOPIC", b"Topic"):
        assert decode_literal_change("", kind + b":orders") == (Pattern.LITERAL, (Resource.TOPIC, "orders"))
    assert decode_literal_change("", b"Topic:a:b") == (Pattern.LITERAL, (Resource.TOPIC, "a:b"))
    assert decode_literal_change("", b"Cluster:kafka-cluster") == (Pattern.LITERAL, (Resource.CLUSTER, "kafka-cluster"))
    assert decode_literal_change("", b"Group:g") is None
    prefixed = b'{"version":1,"resourceType":"Topic","name":"or","patternType":"PREFIXED"}'
    assert decode_extended_change("", prefixed) == (Pattern.PREFIXED, (Resource.TOPIC, "or"))
    assert decode_extended_change("", prefixed.replace(b"Topic", b"Group")) is None
    for decode, data in _bad_changes():
        assert isinstance(decode("", data), MalformedNode)


def _bad_changes() -> Iterable[tuple[Any, bytes | None]]:
    for data in (None, b"", b"Topic", b"\xff:x"):
        yield decode_literal_change, data
    for data in (None, b"Topic:x", b'{"version":2,"resourceType":"Topic","name":"x","patternType":"prefixed"}'):
        yield decode_extended_change, data
    yield decode_extended_change, b'{"version":1,"resourceType":"Topic","name":"x","patternType":"any"}'


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
