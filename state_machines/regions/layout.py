"""Lays a table out: the key ranges of its regions, without holes or overlaps; and writes keys as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

KEY_BYTES_MAX: Final = 1_024
NAME_CHARS_MAX: Final = 200
UNIFORM_MAX: Final = 1_000_000
SPACE: Final = 1 << 32
"""Number of keys of eight hexadecimal digits, over which uniform regions are spread."""


def count_of(splits: Sequence[bytes], uniform: int) -> int:
    """Returns the number of regions."""
    return uniform or len(splits) + 1


def ranges(splits: Sequence[bytes], uniform: int, first: int = 0) -> Iterator[tuple[bytes, bytes]]:
    """Yields start and end of each region in order, from number ``first`` on; the first of all has number 0."""
    return pairwise(_keys(splits, uniform, first))


def _keys(splits: Sequence[bytes], uniform: int, first: int) -> Iterator[bytes]:
    """Yields the start of a region and of those behind it, and the end of the last one."""
    count = count_of(splits, uniform)
    for number in range(first, count + 1):
        if not 0 < number < count:
            yield b""
        else:
            yield b"%08x" % (number * SPACE // count) if uniform else splits[number - 1]


def layout_problem(splits: Sequence[bytes], uniform: int) -> str | None:
    """Returns why a layout cannot be; the text names the key and what is expected."""
    if uniform and splits:
        return "splits and uniform: give one of them"
    if not 0 <= uniform <= UNIFORM_MAX:
        return f"uniform: {uniform} regions, at most {UNIFORM_MAX:,}"
    for before, key in zip((b"", *splits), splits, strict=False):
        if not key:
            return "splits: an empty key splits nothing"
        if len(key) > KEY_BYTES_MAX:
            return f"splits: a key of {len(key)} bytes, at most {KEY_BYTES_MAX}"
        if key == before:
            return f"splits: {key_text(key)!r} is given twice"
        if key < before:
            return f"splits: {key_text(key)!r} comes after {key_text(before)!r}, keys must ascend"
    return None


def name_problem(name: str) -> str | None:
    """Returns why a table cannot have this name: letters, digits, ``_ - .``, and a namespace before one colon.

    ``.`` and ``..`` are folders, and steps of a path, wherever a service or a client makes one of the name.
    """
    namespace, colon, table = name.rpartition(":")
    for part in (namespace, table) if colon else (table,):
        if part in {".", ".."}:
            return f"name {name[:80]!r}: '.' and '..' are no names"
        if not part or not all(c.isascii() and (c.isalnum() or c in "_-.") for c in part):
            return f"name {name[:80]!r}: letters, digits, '_', '-' and '.', with a namespace before one colon"
    if len(name) > NAME_CHARS_MAX:
        return f"name: {len(name)} characters, at most {NAME_CHARS_MAX}"
    return None


_ESCAPE: Final = re.compile(r"\\x([0-9A-Fa-f]{2})")
_BACKSLASH: Final = 0x5C


class NotAKey(ValueError):
    """A text that is no key; the message says what is wrong with it."""


def key_text(key: bytes) -> str:
    """Returns a key as text; :func:`key_of` gives the key back."""
    if key.isalnum():
        return key.decode("ascii")
    return "".join(chr(one) if 0x20 <= one < 0x7F and one != _BACKSLASH else f"\\x{one:02X}" for one in key)


def key_word(key: bytes) -> str:
    """Returns a key as a word of a command that stands in single quotes; :func:`key_of` gives the key back."""
    if key.isalnum():
        return key.decode("ascii")
    return '"' + "".join(chr(one) if chr(one).isalnum() and one < 0x80 else f"\\x{one:02X}" for one in key) + '"'


def key_of(text: str) -> bytes:
    """Returns the key that a text stands for; other characters than ASCII count as UTF-8. Raises NotAKey."""
    found = bytearray()
    at = 0
    while at < len(text):
        if text[at] != "\\":
            found += text[at].encode("utf-8", "surrogatepass")
            at += 1
            continue
        escape = _ESCAPE.match(text, at)
        if escape is None:
            raise NotAKey(f"{text[:80]!r}: a backslash begins \\xNN with two hexadecimal digits, itself it is \\x5C")
        found.append(int(escape[1], 16))
        at = escape.end()
    return bytes(found)
