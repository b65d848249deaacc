"""Declares what all rows of one entry have in common: the term and the time."""

from __future__ import annotations

from msgspec import Struct


class Head(Struct, frozen=True):
    """First fields of all rows of a term."""

    cluster: str
    ctl_id: int
    ctl_epoch: int


class Moment(Struct, frozen=True, gc=False):
    """Wall and monotonic clock in microseconds; begin of the event and of its decision (0: unknown)."""

    ts_us: int
    mono_us: int
    detect_us: int = 0
    decide_us: int = 0
