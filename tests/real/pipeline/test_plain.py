"""Lines that the compiled loop reads: the tables are those of Arrow's own parser, and all others are left to that."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.real.pipeline.logs import sound
from tests.real.pipeline.region_logs import sound_regions

pytest.importorskip("pyarrow", reason="the extra pipeline is not installed")
pytest.importorskip("numba", reason="the extra pipeline is not installed")

import pyarrow as pa

from pipeline.layout import with_nulls
from pipeline.lines import Lines
from pipeline.plain import Plain
from pipeline.schema import COLUMNS, REQUIRED

PLAIN = Plain()
TEXTS = st.text(st.sampled_from(list('abΩ𝄞"\\/\n\t\x7f')), max_size=6)
BYTES = b'",:{}[]\\0-9.eEtfnu \x00\x1fa\xce'


COMPILED = Lines(compiled=True)


def parsed(block: bytes) -> Any:
    """Returns the table that the loop makes, with all columns; None where it leaves the block to Arrow."""
    found = PLAIN.read(block)
    return None if found is None else with_nulls(found, COLUMNS)


def by_arrow(block: bytes) -> Any:
    rows, bad = Lines().parsed(block)
    assert not bad
    return rows


def lines_of(rows: list[dict[str, Any]]) -> bytes:
    """Writes rows as the daemon does."""
    return b"".join(msgspec.json.encode({k: v for k, v in row.items() if v is not None}) + b"\n" for row in rows)


def value_of(of: Any) -> st.SearchStrategy[Any]:
    if pa.types.is_list(of):
        return st.lists(value_of(of.value_type), max_size=3)
    if pa.types.is_integer(of):
        bits = of.bit_width - 1 if of.bit_width == 32 else 59
        return st.integers(-(1 << bits), (1 << bits) - 1) | st.integers(0, 9)
    return st.booleans() if pa.types.is_boolean(of) else TEXTS


HEAD = {"v": 1, "cluster": "c", "ctl_id": 1, "ctl_epoch": 3, "seq": 1, "ts_us": 2, "mono_us": 3, "kind": "ISR"}
ROWS = st.fixed_dictionaries(
    {name: st.just(value) for name, value in HEAD.items()},
    optional={field.name: value_of(field.type) for field in COLUMNS if field.name not in REQUIRED},
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROWS, min_size=1, max_size=5), chance=st.randoms())
def test_rows_in_any_order_of_their_fields_are_those_of_arrow(
    rows: list[dict[str, Any]], chance: random.Random
) -> None:
    mixed = [dict(chance.sample(list(row.items()), len(row))) for row in rows]
    found = parsed(lines_of(mixed))
    assert found is not None
    found.validate(full=True)
    assert found.equals(by_arrow(lines_of(mixed)))


def test_the_journals_of_daemons_are_plain() -> None:
    block = lines_of([*sound("c"), *sound_regions("regions")])
    assert parsed(block).equals(by_arrow(block))
    assert parsed(block.removesuffix(b"\n")) is not None


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_changed_byte_is_judged_as_by_arrow(data: st.DataObject) -> None:
    """One byte of a sound journal is another one, is doubled or is gone."""
    block = bytearray(lines_of([row for row in sound("c") if row["seq"] > 8]))
    at = data.draw(st.integers(0, len(block) - 1))
    block[at : at + 1] = data.draw(
        st.sampled_from([bytes([byte]) for byte in BYTES] + [b"", bytes(block[at : at + 1] * 2)])
    )
    (rows, bad), (rows_of_arrow, bad_of_arrow) = COMPILED.parsed(bytes(block)), Lines().parsed(bytes(block))
    assert rows.equals(rows_of_arrow)
    assert bad == bad_of_arrow


@pytest.mark.parametrize(
    "spoilt",
    [
        b'"pid":1,"pid":2', b'"pid":null', b'"pid":1.5', b'"pid":1e3', b'"pid":01', b'"pid":-', b'"pid": 1',
        b'"pid":9223372036854775808', b'"partition":2147483648', b'"of_later":1', b'"pid":"1"', b'"why":1',
        b'"why":"\\u0041"', b'"why":"\\x"', b'"why":"\x01"', b'"why":"', b'"unclean":tru', b'"isr0":[1,]', b'"isr0":[1',
        b'"isr0":1', b'"steps":[1]', b'"isr0":[[1]]', b'"pid"1', b'"pid":1,', b'\'pid\':1', b'"p\\u0069d":1',
    ],
)  # fmt: skip
def test_a_line_that_is_not_plain_is_left_to_arrow(spoilt: bytes) -> None:
    good = lines_of([HEAD])
    assert parsed(good) is not None
    assert parsed(good + good[:-2] + b"," + spoilt + b"}\n") is None
