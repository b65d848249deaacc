"""Decodes JSON files of operators within a bound; any fault in them is one kind of error."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

FILE_BYTES_MAX: Final = 64 * 2**20
"""Bytes of a file that is read or written: some 500,000 moves."""


class UnusableFile(ValueError):
    """The file is no plan that can be used; the text names the field, the value and the remedy."""


def decoded(data: bytes, decoder: msgspec.json.Decoder[T], bytes_max: int) -> T:
    """Decodes a file of at most ``bytes_max`` bytes; raises :class:`UnusableFile`."""
    check_size(data, bytes_max)
    if not data.strip():
        raise UnusableFile("the file is empty: write the plan again")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UnusableFile(f"the file is not as expected: {error}") from None


def check_size(data: bytes, bytes_max: int) -> None:
    """Raises :class:`UnusableFile` where a file has more than ``bytes_max`` bytes."""
    if len(data) > bytes_max:
        raise UnusableFile(f"the file has {len(data)} bytes, more than {bytes_max}: limit the plan to some topics")
