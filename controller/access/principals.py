"""Who may change the cluster through the admin endpoint: on a secured cluster only who is named, nobody by default."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

ANONYMOUS: Final = "User:ANONYMOUS"
"""Who connects to a cluster without authentication; an endpoint names nobody so on a secured one."""


class Principals(Struct, frozen=True):
    """``super_users``: as Kafka's ``super.users``, which knows no wildcard."""

    super_users: frozenset[str] = frozenset()

    def may(self, principal: str) -> bool:
        """Whether ``principal`` may ask for changes."""
        return principal == ANONYMOUS or principal in self.super_users


def principals(names: str) -> Principals:
    """Of the setting: names between semicolons."""
    return Principals(frozenset(_names(names)))


def _names(names: str) -> Iterable[str]:
    return (name.strip() for name in names.split(";") if name.strip())
