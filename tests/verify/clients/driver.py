"""Defines a client of the matrix: operations by name, whose outcomes are one line of text each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

ABSENT = "not in this client"


class Refused(Exception):
    """The call failed with an error of Kafka's protocol, or with one of the client's own."""


class Driver(Protocol):
    """Calls one client library in one version. Names of its topics, users and groups begin with ``prefix``."""

    name: str
    version: str

    async def start(self, bootstrap: str, prefix: str) -> None:
        """Connects."""

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> str:
        """Returns the outcome in words; an error by its name, :data:`ABSENT` where the client has no such call."""

    async def close(self) -> None:
        """Closes its connections."""


def checked(code: int) -> str:
    """Returns ``done``; raises :class:`Refused` for an error code."""
    if code:
        raise Refused(named(code))
    return "done"


def named(code: int) -> str:
    """Returns Kafka's name of an error code."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"ERROR {code}"


def shown(things: Iterable[Any]) -> str:
    """Returns items sorted and separated by blanks; ``none`` where there are none."""
    return " ".join(sorted(map(str, things))) or "none"


def partition_text(number: int, leader: int, replicas: Iterable[int], isr: Iterable[int]) -> str:
    """Returns a partition with its leader, replicas and ISR as text."""
    return f"{number}:{leader}/{','.join(map(str, replicas))}/{','.join(map(str, sorted(isr)))}"
