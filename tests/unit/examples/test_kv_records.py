"""Records: whole ones are read back, and what follows a torn one is left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from examples.kv.records import HEAD, Edit, decode, encode

EDITS = st.lists(
    st.builds(
        Edit,
        region=st.integers(1, 2**63 - 1),
        token=st.integers(1, 2**63 - 1),
        sequence=st.integers(0, 2**63 - 1),
        key=st.binary(max_size=20),
        value=st.binary(max_size=200),
    ),
    max_size=5,
)
EDIT = Edit(1, 2, 3, b"key", b"value")


@given(EDITS)
def test_records_are_read_back(edits: list[Edit]) -> None:
    data = b"".join(map(encode, edits))
    assert decode(data) == (edits, len(data))


@given(EDITS, st.data())
def test_a_cut_leaves_the_records_before_it(edits: list[Edit], data: st.DataObject) -> None:
    whole = b"".join(map(encode, edits))
    cut = data.draw(st.integers(0, len(whole)))
    found, end = decode(whole[:cut])
    assert found == edits[: len(found)]
    assert end == sum(len(encode(edit)) for edit in found) <= cut
    assert len(found) == len(edits) or cut - end < len(encode(edits[len(found)]))


def test_each_changed_bit_is_noticed() -> None:
    record = encode(EDIT)
    for bit in range(len(record) * 8):
        changed = bytearray(record)
        changed[bit // 8] ^= 1 << bit % 8
        assert decode(bytes(changed) + record) == ([], 0), bit


def test_zeros_are_no_records() -> None:
    record = encode(EDIT)
    assert decode(record + bytes(3 * HEAD.size)) == ([EDIT], len(record))
