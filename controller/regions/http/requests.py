"""Defines requests of the HTTP surface that change regions, their tables and servers.

``nonce``: the same caller's same nonce never starts a second procedure; the response describes the first one then. For
another kind of request, or another subject, it is refused.
A dry run checks the request and changes nothing.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from controller.http.models import RequestItem, Words

NAME_MAX: Final = 200
"""Characters of a name."""
SPLITS_MAX: Final = 10_000
"""Split keys of one request."""
KEY_CHARS_MAX: Final = 4_096
"""Characters of a key of 1,024 bytes, all of them escaped."""
OPTIONS_MAX: Final = 100

Name = Annotated[str, Field(min_length=1, max_length=NAME_MAX)]
Key = Annotated[str, Field(max_length=KEY_CHARS_MAX)]
OptionValue = Annotated[str, Field(max_length=1_000)]


class Change(RequestItem):
    """A change that needs nothing but its reason."""

    reason: Words = ""
    nonce: Words = ""
    dry_run: bool = False


class RegionChange(Change):
    """A region to assign, unassign, move or reopen. ``server``: name of the wanted one; empty: by the placement.

    ``force``: a move does not wait until the region has rested after the one before.
    """

    server: Annotated[str, Field(max_length=NAME_MAX)] = ""
    force: bool = False


class ServerChange(Change):
    """A server to drain or expire. ``force``: a drain moves regions, too, that rest after a move."""

    force: bool = False


class TableCreation(Change):
    """A table to create: with ``splits``, its regions begin at these keys; or with ``uniform`` regions.

    Uniform regions divide the keys of eight hexadecimal digits evenly. Without either the table has one region.
    """

    name: Name
    splits: Annotated[list[Key], Field(max_length=SPLITS_MAX)] = []
    uniform: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    kind: Literal["meta", "system", "user"] = "user"
    options: Annotated[dict[Name, OptionValue], Field(max_length=OPTIONS_MAX)] = {}


class NamespaceCreation(Change):
    """A namespace to create."""

    name: Name
