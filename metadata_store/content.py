"""JSON that somebody else may have written: whatever is wrong with it is one error."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decoded(data: bytes, kind: type[T]) -> T:
    """The value of ``kind``; raises ``msgspec.DecodeError`` for any other bytes, however deep or broken."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None
