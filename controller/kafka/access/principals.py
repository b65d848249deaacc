"""Names the super users of the admin endpoint: on a secured cluster only the configured ones, none by default."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

ANONYMOUS: Final = "User:ANONYMOUS"
"""Principal of clients of a cluster without authentication; no client of a secured endpoint gets it."""


class Principals(Struct, frozen=True):
    """Holds ``super_users``, as Kafka's ``super.users``, which knows no wildcard."""

    super_users: frozenset[str] = frozenset()

    def may(self, principal: str) -> bool:
        """Checks whether ``principal`` may request changes."""
        return principal == ANONYMOUS or principal in self.super_users


def principals(names: str) -> Principals:
    """Splits the setting: names between semicolons."""
    return Principals(frozenset(_names(names)))


def _names(names: str) -> Iterable[str]:
    return (name.strip() for name in names.split(";") if name.strip())
