"""Describes one kind of attack of hostile peers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

LARGE: Final = 16_000_000
"""Just below the largest request that is taken."""


class Attack(NamedTuple):
    """``said`` is sent, whole or drop by drop, on each of ``at_once`` connections, which begin anew when they end.

    ``again``: it is sent again and again; ``deaf``: no answer is read; ``near``: from the address where brokers are.
    ``handshake``: with TLS, its handshake is made. ``first`` is sent before, each time, and its answer awaited.
    """

    said: Callable[[], bytes]
    at_once: int
    again: bool = False
    deaf: bool = False
    near: bool = False
    drops: bool = False
    handshake: bool = True
    first: Callable[[], bytes] = bytes
