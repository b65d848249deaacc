"""Access control lists: Kafka's precedence over its full product, and znodes as Kafka writes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from metadata_store.codecs.acl import decode_acls, decode_extended_change, decode_literal_change
from metadata_store.codecs.base import Malformed
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
    assert isinstance(decode_acls("/kafka-acl/Topic/t", data), Malformed)


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
        assert isinstance(decode("", data), Malformed)


def _bad_changes() -> Iterable[tuple[Any, bytes | None]]:
    for data in (None, b"", b"Topic", b"\xff:x"):
        yield decode_literal_change, data
    for data in (None, b"Topic:x", b'{"version":2,"resourceType":"Topic","name":"x","patternType":"prefixed"}'):
        yield decode_extended_change, data
    yield decode_extended_change, b'{"version":1,"resourceType":"Topic","name":"x","patternType":"any"}'
