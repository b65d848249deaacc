"""Remembers what a term follows in regent's own znodes: the pause of automatic moves, and the admin endpoint."""

from __future__ import annotations

from dataclasses import dataclass

from metadata_store.nodes.endpoint_znode import AdminEndpoint
from metadata_store.nodes.pause_node import Pause


@dataclass(slots=True)
class Pauses:
    """The pause ``in_force``, and the latest one whose time has passed, by a clock that is never set."""

    in_force: Pause | None = None
    over: Pause | None = None


@dataclass(slots=True)
class ShownEndpoint:
    """The admin endpoint that brokers show, and since when its znode is gone, by the loop's clock."""

    found: AdminEndpoint | None = None
    gone_s: float | None = None
