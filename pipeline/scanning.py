"""Scans plain lines of a journal in a compiled loop: where each field's value is, and what its number is.

A plain line is one object as the daemon writes it: no blanks, no null, no code points as numbers, no field twice, and
none that the schema lacks. The loop stops at anything else, and Arrow's parser decides (:mod:`pipeline.lines`). No
bounds are checked: the NUL behind a block is part of no plain line, and so each loop stops there.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pipeline.compiling import compiled, kept

Bytes = Any
"""An array of uint8."""
Ints = Any
"""An array of int64, or int32 where it says so."""

# Constants are in this file: Numba keeps what it compiled until this file changes, and has them as literals.
WORD, LONG, TRUTH, TEXT, WORDS, LONGS, TEXTS = range(7)
"""What a field has: a number of 32 or 64 bits, a truth value, a text, or a list of the first two or of texts."""
SLOTS: Final = 4096
"""Of the table of names; a power of two."""
FACTORS: Final = range(33, 4_001, 2)
WORD_MIN, WORD_MAX = -(1 << 31), (1 << 31) - 1
DIGITS_MAX: Final = 18
"""Of a number that cannot be too large for 64 bits."""
QUOTE, COMMA, COLON, BACKSLASH, BLANK, MINUS, ZERO, NINE = b'",:\\ -09'
OPEN, CLOSE, FIRST, LAST, END, T, F = b"{}[]\ntf"
STOPS: Final = np.array([byte < BLANK or byte in (QUOTE, BACKSLASH) for byte in range(256)])
"""Bytes at which a text ends, or is not plain."""
ESCAPED: Final[Bytes] = np.zeros(256, np.uint8)
"""What a byte behind a backslash stands for, but for a code point's."""
ESCAPED[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
TRUE, FALSE = np.frombuffer(b"true", np.uint8), np.frombuffer(b"false", np.uint8)


@compiled
def spot(text: Bytes, first: int, end: int, factor: int) -> int:
    """Returns the slot of a name."""
    value = 0
    for at in range(first, end):
        value = (value * factor + text[at]) & 0xFFFFFFFF
    return (value ^ (value >> 12)) & (SLOTS - 1)


@compiled
def quoted(text: Bytes, at: int) -> int:
    """Returns where the text that begins after the quote at ``at`` ends, at its quote; -1 if it is not plain."""
    if text[at] != QUOTE:
        return -1
    at += 1
    while True:
        if not STOPS[text[at]]:
            at += 1
        elif text[at] == BACKSLASH and ESCAPED[text[at + 1]]:
            at += 2
        else:
            return at if text[at] == QUOTE else -1


@compiled
def number(text: Bytes, at: int, into: Ints, place: int) -> int:
    """Puts a number into ``into``, and returns where it ends; -1 if it is not plain."""
    negative = text[at] == MINUS
    if negative:
        at += 1
    first, value = at, 0
    while ZERO <= text[at] <= NINE:
        value = value * 10 + (text[at] - ZERO)
        at += 1
        if at - first > DIGITS_MAX:
            return -1
    if at == first or (text[first] == ZERO and at - first > 1):
        return -1
    into[place] = -value if negative else value
    return at


@compiled
def word(text: Bytes, at: int, wanted: Bytes) -> int:
    """Returns where a word ends; -1 if it is another one."""
    for place in range(wanted.size):
        if text[at + place] != wanted[place]:
            return -1
    return at + int(wanted.size)


@compiled
def item(text: Bytes, at: int, kind: int, into: Ints, place: int) -> int:
    """Puts a value of no list into two places of ``into``: a number, or begin and end of a text. Returns its end."""
    if kind in (TEXT, TEXTS):
        end = quoted(text, at)
        into[place], into[place + 1] = at + 1, end
        return end + 1 if end >= 0 else -1
    if kind == TRUTH:
        into[place] = text[at] == T
        return word(text, at, TRUE) if text[at] == T else word(text, at, FALSE)
    end = number(text, at, into, place)
    if kind in (WORD, WORDS) and not WORD_MIN <= into[place] <= WORD_MAX:
        return -1
    return end


@compiled
def listed(text: Bytes, at: int, kind: int, into: Ints, used: int) -> tuple[int, int]:
    """Puts the items of a list behind ``used`` places of ``into``; returns where the list ends, and the places then."""
    if text[at] != FIRST:
        return -1, used
    at += 1
    if text[at] == LAST:
        return at + 1, used
    while True:
        at = item(text, at, kind, into, used)
        if at < 0:
            return -1, used
        used += 2
        if text[at] == LAST:
            return at + 1, used
        if text[at] != COMMA:
            return -1, used
        at += 1


@compiled
def named(text: Bytes, at: int, names: Bytes, first: int, end: int) -> bool:
    """Checks whether a name and the quote behind it are at a place."""
    for place in range(first, end):
        if names[place] != text[at + place - first]:
            return False
    return bool(text[at + end - first] == QUOTE)


@compiled
def field_at(text: Bytes, first: int, names: Bytes, begins: Ints, table: Ints, factor: int) -> int:
    """Returns the field whose name begins at a place, or -1."""
    end = quoted(text, first - 1)
    if end < 0:
        return -1
    field = table[spot(text, first, end, factor)]
    return field if field >= 0 and named(text, first, names, begins[field], begins[field + 1]) else -1


@compiled
def scan_field(text: Bytes, at: int, kind: int, into: Ints, items: Ints, used: int) -> tuple[int, int]:
    """Puts the value of a field into two places of ``into``; returns its end, or -1, and the places used of items."""
    if kind < WORDS:
        return item(text, at, kind, into, 0), used
    into[0] = used
    at, used = listed(text, at, kind, items, used)
    into[1] = used
    return at, used


@kept
def scan(
    text: Bytes,
    names: Bytes,
    begins: Ints,
    kinds: Ints,
    table: Ints,
    factor: int,
    values: Ints,
    ends: Ints,
    there: Bytes,
    items: Ints,
) -> bool:
    """Scans all lines; returns whether they are plain. Each has its end, and a NUL follows the last one.

    ``names``: of all fields, those of field f from ``begins[f]`` to ``begins[f + 1]``. ``kinds``: of fields. ``table``:
    fields by slot. Of row r and field f it sets ``there[f, r]``, ``values[f, r]`` to a number, the begin of a text, or
    that of a list in ``items``, and ``ends[f, r]`` to the end of the text or list. An item has two places there.
    """  # fmt: skip
    at, row, used, before = 0, 0, 0, kinds.size
    pair: Ints = np.zeros(2, np.int64)
    follows = np.zeros(kinds.size + 1, np.int64)  # the field that came last after another one: most often it does again
    while text[at] != 0:
        # Within a line a field follows a comma, and the first one the brace.
        if text[at] != (OPEN if before == kinds.size else COMMA) or text[at + 1] != QUOTE:
            return False
        field, first = follows[before], at + 2
        if not named(text, first, names, begins[field], begins[field + 1]):
            field = field_at(text, first, names, begins, table, factor)
            if field < 0:
                return False
            follows[before] = field
        at = first + begins[field + 1] - begins[field] + 1
        if there[field, row] or text[at] != COLON:
            return False
        at, used = scan_field(text, at + 1, kinds[field], pair, items, used)
        if at < 0:
            return False
        values[field, row], ends[field, row], there[field, row], before = pair[0], pair[1], 1, field
        if text[at] == CLOSE:
            if text[at + 1] != END:
                return False
            at, row, before = at + 2, row + 1, kinds.size
    return bool(before == kinds.size and at == text.size - 1)


@kept
def copied(text: Bytes, begins: Ints, ends: Ints, there: Bytes, offsets: Ints, into: Bytes) -> int:
    """Copies texts behind each other; returns their bytes. ``offsets`` (int32) gets where each begins, and the end."""
    used = 0
    for place in range(there.size):
        offsets[place] = used
        if there[place]:
            at = begins[place]
            while at < ends[place]:
                if text[at] == BACKSLASH:
                    at += 1
                    into[used] = ESCAPED[text[at]]
                else:
                    into[used] = text[at]
                at, used = at + 1, used + 1
    offsets[there.size] = used
    return used


@kept
def gathered(items: Ints, begins: Ints, ends: Ints, there: Bytes, offsets: Ints, first: Ints, second: Ints) -> int:
    """Copies items of lists behind each other, their two places apart; returns how many there are."""
    used = 0
    for place in range(there.size):
        offsets[place] = used
        if there[place]:
            for at in range(begins[place], ends[place], 2):
                first[used], second[used] = items[at], items[at + 1]
                used += 1
    offsets[there.size] = used
    return used
