"""How a message is laid out on the wire in one version, as plain values: what a codec is built from."""

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
"""The kinds of primitive fields and the value of one that a message leaves out."""


class Field(NamedTuple):
    """One field. ``kind`` is a key of :data:`IMPLICIT_DEFAULTS` or the layout of a nested structure.

    ``tag`` is None for a field that is always there. ``default`` is what is written for a field that nobody sets, and
    what a tagged field that is not there means.
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
        """The part before the field ``until``: where a large rest is passed on unread."""
        names = [field.name for field in self.fields]
        return self._replace(fields=self.fields[: names.index(until)], tags=False)
