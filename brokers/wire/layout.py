"""Describes the layout of a message on the wire in one version, as plain values from which a codec is built."""

from __future__ import annotations

from typing import Final, NamedTuple

from brokers.wire.primitives import ZERO_ID

IMPLICIT_DEFAULTS: Final[dict[str, object]] = {
    "bool": False,
    "bytes": b"",
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "string": "",
    "uuid": ZERO_ID,
}
"""The kinds of primitive fields, with the value of an omitted field of each."""


class Field(NamedTuple):
    """One field. ``kind`` is a key of :data:`IMPLICIT_DEFAULTS` or the layout of a nested structure.

    ``tag`` is None for a field that is always present. ``default`` is the value of a field that no struct sets, and of
    an absent tagged field.
    """

    name: str
    kind: str | Layout
    array: bool
    nullable: bool
    tag: int | None
    default: object


class Layout(NamedTuple):
    """A structure. ``flexible``: its lengths are compact (KIP-482). ``tags``: a section of tagged fields ends it."""

    name: str
    flexible: bool
    tags: bool
    fields: tuple[Field, ...]

    def head(self, until: str) -> Layout:
        """Returns the part before the field ``until``, for messages whose large rest is forwarded unread."""
        names = [field.name for field in self.fields]
        return self._replace(fields=self.fields[: names.index(until)], tags=False)
