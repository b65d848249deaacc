"""Znodes of regions in transition are read back as they were written; anything else is named, and no node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_store.catalog.unassigned import NODE_BYTES_MAX, UnreadableNode, decode, encode, path_of, region_of
from state_machines.regions.unassigned import Node, NodeState

NODE = Node(NodeState.OPENING, 17, 40, 41, "kv-1", 5, 3)
numbers = st.integers(0, 2**63 - 1)


@given(st.sampled_from(NodeState), numbers, numbers, numbers, st.text(max_size=200), numbers, numbers)
def test_each_node_is_read_back(
    state: NodeState, region: int, pid: int, token: int, server: str, incarnation: int, sequence: int
) -> None:
    node = Node(state, region, pid, token, server, incarnation, sequence)
    assert decode(encode(node), region) == node


def test_the_line_is_that_of_the_page() -> None:
    line = (
        b'{"state":"opening","region":17,"pid":40,"token":41,"server":"kv-1","incarnation":5,"sequence":3,"version":1}'
    )
    assert encode(NODE) == line
    assert path_of("/regent/regions", 17) == "/regent/regions/unassigned/17"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "it has 0 bytes"),
        (b"", "truncated"),
        (b"x" * (NODE_BYTES_MAX + 1), "bytes, expected 1 to"),
        (b"no node", "malformed"),
        (encode(NODE).replace(b"opening", b"open"), "Invalid enum value"),
        (encode(NODE).replace(b'"version":1', b'"version":2'), "it has format 2"),
        (encode(NODE._replace(region=18)), "it is that of region 18"),
        (b'{"state":"opening"}', "missing required field"),
        (encode(NODE).replace(b"kv-1", b"\xff"), "utf-8"),
    ],
)
def test_what_is_no_node_of_its_region_is_named(data: bytes | None, why: str) -> None:
    with pytest.raises(UnreadableNode, match=why):
        decode(data, 17)


@pytest.mark.parametrize(
    ("name", "region"), [("17", 17), ("017", None), ("x", None), ("", None), ("-1", None), ("٣", None)]
)
def test_the_name_of_a_znode_is_the_id_of_a_region(name: str, region: int | None) -> None:
    assert region_of(name) == region
