"""Decodes JSON of other writers: any fault in it is one kind of error."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decoded(data: bytes, kind: type[T]) -> T:
    """Decodes a value of ``kind``; raises ``msgspec.DecodeError`` for any other bytes, however deep or broken."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None
