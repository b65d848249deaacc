"""Request znodes and notifications with entries that cannot be used: each costs itself alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_store.codecs.base import Malformed
from metadata_store.codecs.entries import UNUSABLE_MAX, Unusable
from metadata_store.codecs.notifications import Partitions, decode_partitions
from metadata_store.codecs.reassignment import Reassignments, decode_reassignments, encode_reassignments
from state_machines.model.types import TopicPartition

FIRST, LAST = TopicPartition("t", 0), TopicPartition("t", 9)
GOOD = b'{"topic":"t","partition":0,"replicas":[2,3]}', b'{"topic":"t","partition":9,"replicas":[3,1]}'

UNUSABLE = [
    b'{"topic":"t","partition":-1,"replicas":[2,3]}',
    b'{"topic":"t","partition":2147483648,"replicas":[2,3]}',
    b'{"topic":"t","partition":1%s,"replicas":[2,3]}' % (b"0" * 5000),
    b'{"topic":"t","partition":1.5,"replicas":[2,3]}',
    b'{"topic":"t","partition":"1","replicas":[2,3]}',
    b'{"topic":"t","partition":NaN,"replicas":[2,3]}',
    b'{"topic":"t","partition":null,"replicas":[2,3]}',
    b'{"topic":"t","replicas":[2,3]}',
    b'{"topic":7,"partition":1,"replicas":[2,3]}',
    b'{"topic":"\xff","partition":1,"replicas":[2,3]}',
    b'{"topic":"\\ud800","partition":1,"replicas":[2,3]}',
    b'{"partition":1,"replicas":[2,3]}',
    b"[]",
    b"null",
    b'"t-1"',
    b"1e999",
]
WITHOUT_TARGET = [
    b'{"topic":"t","partition":1,"replicas":[2,-3]}',
    b'{"topic":"t","partition":1,"replicas":[2,"3"]}',
    b'{"topic":"t","partition":1,"replicas":"2,3"}',
    b'{"topic":"t","partition":1}',
]


def znode(*entries: bytes) -> bytes:
    return b'{"version":1,"partitions":[%s],"vendor":1}' % b",".join(entries)


@pytest.mark.parametrize("bad", [*UNUSABLE, *WITHOUT_TARGET])
def test_an_unusable_entry_of_a_reassignment_costs_itself_alone(bad: bytes) -> None:
    found = decode_reassignments("/p", znode(GOOD[0], bad, GOOD[1]))
    assert isinstance(found, Reassignments)
    assert (found.targets, found.unknown) == ({FIRST: (2, 3), LAST: (3, 1)}, {"vendor": 1})
    assert (found.unusable.count, found.unusable.entries) == (1, 3)
    assert "partitions[1]: " in str(found.unusable)


@pytest.mark.parametrize("bad", UNUSABLE)
def test_an_unusable_entry_of_a_list_of_partitions_costs_itself_alone(bad: bytes) -> None:
    found = decode_partitions("/p", znode(GOOD[0], bad, GOOD[1]))
    assert isinstance(found, Partitions)
    assert (found.named, found.unusable.count) == ([FIRST, LAST], 1)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.sampled_from(["topic", "partition"]), inner)
    ),
    max_leaves=5,
)


@given(st.lists(values, max_size=4), st.dictionaries(st.text(min_size=12), values, max_size=2))
def test_whatever_stands_beside_an_entry_it_is_decoded_and_can_be_written_again(
    strange: list[object], more: dict[str, object]
) -> None:
    entries = [json.loads(GOOD[0]), *strange, json.loads(GOOD[1])]
    found = decode_reassignments("/p", json.dumps({"version": 1, "partitions": entries, **more}).encode())
    assert isinstance(found, Reassignments)
    assert found.targets.keys() >= {FIRST, LAST}
    again = decode_reassignments("/p", encode_reassignments(found.targets, found.unknown))
    assert isinstance(again, Reassignments)
    assert (again.targets, again.unusable) == (found.targets, Unusable())


def test_the_first_unusable_entries_are_told_and_the_others_counted() -> None:
    found = decode_partitions("/p", znode(*[b"{}"] * 5))
    assert isinstance(found, Partitions)
    assert str(found.unusable).startswith("5 of 5 entries cannot be used (partitions[0]: Object missing required field")
    assert str(found.unusable).endswith("; 2 more)")
    assert "partitions[3]" not in str(found.unusable)


def test_a_znode_of_nothing_but_unusable_entries_beyond_the_bound_is_malformed() -> None:
    found = decode_partitions("/p", znode(*[b"1"] * (UNUSABLE_MAX + 1)))
    assert isinstance(found, Malformed)
    assert f"more than {UNUSABLE_MAX}" in found.why


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"[]",
        b"{",
        b'{"version":1}',
        b'{"version":1,"partitions":{}}',
        b'{"version":2,"partitions":[]}',
        b"[" * 100_000,
    ],
)
def test_what_has_no_list_of_entries_is_malformed(data: bytes | None) -> None:
    assert isinstance(decode_reassignments("/p", data), Malformed)
    assert isinstance(decode_partitions("/p", data), Malformed)
