"""Parses lines of a journal into Arrow tables (J1), and says of each other line why it is no row.

Arrow, or a compiled loop, parses whole blocks. Only a block with anything else than rows goes line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from msgspec import Meta, Struct
from pyarrow import ArrowInvalid

from pipeline.layout import filled, with_nulls
from pipeline.schema import COLUMNS, REQUIRED
from state_machines.journal.events import SCHEMA_VERSION

if TYPE_CHECKING:
    from pipeline.plain import Plain

BLOCK_BYTES: Final = 4_000_000
"""Lines that are parsed at once; a bad line costs its neighbours, so many bytes of them, a second look."""
LINE_CHARACTERS_MAX: Final = 1 << 20
"""A longer line is none of the journal's."""
LINE_BYTES_MAX: Final = 4 * LINE_CHARACTERS_MAX
"""Of a line that is read: a longer one is cut."""

TOO_LONG: Final = "it is too long for a row"
TORN: Final = "it is torn"
NO_ROW: Final = "it is no JSON object with the fields of a row"
OUT_OF_RANGE: Final = "its epoch or number is out of range"

_LINE_END: Final = b"\n"
_OPEN, _CLOSE = b"{}"
_MISSING: Final = re.compile(r"missing required field `(\w+)`")
_AT: Final = re.compile(r"(.*) - at `\$\.(\w+)(.*)`")


class Bad(NamedTuple):
    """A line that is no row: its number in the block, from 0, why, and the line."""

    number: int
    why: str
    value: str


class Lines:
    """Parses blocks of lines, and remembers which fields they had: absent ones are half the cost of parsing.

    ``compiled``: reads plain lines in a compiled loop, which is worth its start for many lines.
    """

    def __init__(self, *, compiled: bool = False) -> None:
        self._fields: set[str] = set(REQUIRED)
        self._plain: Plain | None = None
        if compiled:
            from pipeline.plain import Plain

            self._plain = Plain()

    def parsed(self, block: bytes) -> tuple[Any, list[Bad]]:
        """Returns the rows of whole lines as :data:`~pipeline.schema.COLUMNS`, in their order, and the other lines."""
        rows = self._rows(block) if _plain(block) else None
        if rows is not None:
            return rows, []
        lines = lines_of(block)
        bad = [Bad(number, why, _text(line)) for number, line in enumerate(lines) if (why := fault(line))]
        refused = {each.number for each in bad}
        tables, more = self._halved([(number, line) for number, line in enumerate(lines) if number not in refused])
        return pa.concat_tables([COLUMNS.empty_table(), *tables]), sorted(bad + more)

    def _halved(self, lines: Sequence[tuple[int, bytes]]) -> tuple[list[Any], list[Bad]]:
        """Parses numbered lines, and halves what Arrow refuses down to the single lines."""
        rows = self._rows(_LINE_END.join(line for _, line in lines)) if lines else COLUMNS.empty_table()
        if rows is not None:
            return [rows], []
        if len(lines) == 1:
            [(number, line)] = lines
            return [], [Bad(number, NO_ROW, _text(line))]
        half = len(lines) // 2
        (tables, bad), (more_tables, more_bad) = self._halved(lines[:half]), self._halved(lines[half:])
        return tables + more_tables, bad + more_bad

    def _rows(self, block: bytes) -> Any:
        """Returns the rows, or None if any line is not one."""
        lines = count(block)
        found = self._plain.read(block) if self._plain is not None else None
        if found is None:
            try:
                found = self._read(block)
            except (ArrowInvalid, UnicodeDecodeError):
                return None
        if len(found) != lines or not _sound(found):
            return None
        self._fields.update(filled(found))
        return with_nulls(found, COLUMNS)

    def _read(self, block: bytes) -> Any:
        try:
            return _read(block, [name for name in COLUMNS.names if name in self._fields], "error")
        except ArrowInvalid:
            return _read(block, COLUMNS.names, "ignore")


def lines_of(block: bytes) -> list[bytes]:
    """Returns the lines of a block without their ends; the last one need not have an end."""
    return block.removesuffix(_LINE_END).split(_LINE_END) if block else []


def blocks(stream: Any) -> Iterator[bytes]:
    """Yields whole lines, about :data:`BLOCK_BYTES` of them; the end of one that is too long is passed over."""
    kept = b""
    while read := stream.read(BLOCK_BYTES):
        cut = read.rfind(_LINE_END) + 1
        if cut:
            yield kept + read[:cut]
            kept = read[cut:]
        else:
            kept = (kept + read)[: LINE_BYTES_MAX + 1]
    if kept:
        yield kept


def count(block: bytes) -> int:
    """Counts the lines of a block."""
    return block.count(_LINE_END) + (bool(block) and not block.endswith(_LINE_END))


def fault(line: bytes) -> str:
    """Returns why a line is no row; empty if it is one for all that a look at one line shows."""
    try:
        if len(line) > LINE_BYTES_MAX or len(line.decode()) > LINE_CHARACTERS_MAX:
            return TOO_LONG
    except UnicodeDecodeError as error:
        return f"byte {error.start} is no UTF-8"
    if not line.endswith(b"}"):
        return TORN
    try:
        row = _DECODER.decode(line)
    except msgspec.ValidationError as error:
        return _other_version(line) or _reason(str(error))
    except msgspec.DecodeError:
        return NO_ROW
    return _other_version(line) or (OUT_OF_RANGE if row.ctl_epoch < 0 or row.seq < 1 else "")


def _plain(block: bytes) -> bool:
    """Checks that each line looks like one object, is short enough, and is UTF-8, which Arrow does not check."""
    if not block.endswith(_LINE_END):
        block += _LINE_END
    text: Any = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(text == _LINE_END[0])
    begins = np.concatenate(([0], ends[:-1] + 1))
    if (ends - begins).max() > LINE_CHARACTERS_MAX or (ends == begins).any():
        return False
    if (text[begins] != _OPEN).any() or (text[ends - 1] != _CLOSE).any():
        return False
    try:
        return block.isascii() or bool(block.decode())
    except UnicodeDecodeError:
        return False


def _read(block: bytes, names: Sequence[str], of_others: str) -> Any:
    schema = pa.schema([COLUMNS.field(name) for name in names])
    return pj.read_json(
        pa.BufferReader(block),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=of_others),
    )


def _sound(rows: Any) -> bool:
    """Checks that each row has the required fields, a version that is known, and its numbers in range."""
    if any(rows[name].null_count for name in REQUIRED):
        return False
    least, most = (found.as_py() for found in pc.min_max(rows["v"]).values())
    epoch, number = pc.min(rows["ctl_epoch"]).as_py(), pc.min(rows["seq"]).as_py()
    return bool(least == most == SCHEMA_VERSION and epoch >= 0 and number >= 1)


def _other_version(line: bytes) -> str:
    """Returns the reason if the line is of another version, whose fields may have other types, or is no JSON."""
    try:
        found = _VERSION.decode(line).v
    except msgspec.ValidationError:
        return ""
    except msgspec.DecodeError:
        return NO_ROW
    return "" if found is None or found == SCHEMA_VERSION else f"unknown version {found}"


def _text(line: bytes) -> str:
    return line[:LINE_BYTES_MAX].decode(errors="replace")


def _reason(message: str) -> str:
    """Words msgspec's message as a sentence about a field."""
    missing = _MISSING.search(message)
    if missing is not None:
        return f"{missing[1]} is missing"
    at = _AT.fullmatch(message)
    if at is None:
        return NO_ROW
    what, name, inside = at[1], at[2], at[3]
    if name in REQUIRED and what.endswith("got `null`"):
        return f"{name} is missing"
    return f"{name}{inside}: {what[0].lower()}{what[1:]}"


def _annotation(of: Any) -> Any:
    if pa.types.is_list(of):
        return list[_annotation(of.value_type)] | None  # type: ignore[misc]  # made from the schema
    if pa.types.is_integer(of):
        bits = of.bit_width - 1
        return Annotated[int, Meta(ge=-(1 << bits), le=(1 << bits) - 1)]
    return bool if pa.types.is_boolean(of) else str


def _decoder() -> Any:
    """Makes the decoder of a line with the types and ranges of the columns."""
    required = [(name, _annotation(COLUMNS.field(name).type)) for name in REQUIRED]
    others = [(field.name, _annotation(field.type) | None, None) for field in COLUMNS if field.name not in REQUIRED]
    return msgspec.json.Decoder(msgspec.defstruct("Line", [*required, *others], gc=False))


class _Versioned(Struct, gc=False):
    v: int | None = None


_DECODER: Final = _decoder()
_VERSION: Final = msgspec.json.Decoder(_Versioned)
