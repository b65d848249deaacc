"""Lets a caller's operations go in the multi of its effect: both are applied, or neither.

A companion never holds its effect up. Where its operations fail, or do not fit, the multi is sent without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Final

from metadata_store.errors import Code
from metadata_store.fencing.bounds import write_bytes
from metadata_store.port import Op


class CompanionState(IntEnum):
    """What has become of a companion. WAITING: no multi with it was applied, and none can be any more."""

    WAITING = 0
    APPLIED = 1
    UNKNOWN = 2
    FAILED = 3


class Companion:
    """Operations that go in the multi of the first of their entities; used for one commit.

    ``in_multi``: a multi has it. ``code``: why it failed, where it did.
    """

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops: Final = tuple(ops)
        self.in_multi = False
        self.state = CompanionState.WAITING
        self.code = Code.OK

    @cached_property
    def bytes(self) -> int:
        """Returns the bytes that the operations add to a multi."""
        return write_bytes(self.ops)

    @property
    def waits(self) -> bool:
        """Checks whether the next multi of one of its entities takes it along."""
        return not self.in_multi and self.state is CompanionState.WAITING

    def fail(self, code: Code) -> None:
        """Notes that ZooKeeper refused the operations."""
        self.state, self.code = CompanionState.FAILED, code


def settle(companions: Iterable[Companion], state: CompanionState) -> None:
    """Notes the outcomes of the companions of a multi."""
    for companion in companions:
        companion.state = state
