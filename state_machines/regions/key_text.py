r"""Writes keys as text that people can read and type: printable ASCII as it is, any other byte as ``\xNN``."""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = re.compile(r"\\x([0-9A-Fa-f]{2})")
_BACKSLASH: Final = 0x5C


class NotAKey(ValueError):
    """A text that is no key; the message says what is wrong with it."""


def key_text(key: bytes) -> str:
    """Returns a key as text; :func:`key_of` gives the key back."""
    if key.isalnum():
        return key.decode("ascii")
    return "".join(chr(one) if 0x20 <= one < 0x7F and one != _BACKSLASH else f"\\x{one:02X}" for one in key)


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
