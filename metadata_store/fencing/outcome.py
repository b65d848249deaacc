"""Declares the outcomes of fenced writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec import Struct, field

from metadata_store import paths
from metadata_store.errors import Code, ZooKeeperError

C = TypeVar("C")
K = TypeVar("K")

FENCE_PATH_BYTES_MAX: Final = 64
"""Longest path of an epoch's znode: multis are packed with room for it."""


class Fenced(ZooKeeperError):
    """The epoch differs from the term's: another controller was elected. Resign."""


class Fence(NamedTuple):
    """The condition of every write of a term.

    ``epoch_version`` is the version that the epoch's znode got by the term's claim. ``open`` is called before every
    submit (term, connection and lease hold); where it returns False, nothing is sent. ``path``: the znode of another
    domain's epoch, of at most ``FENCE_PATH_BYTES_MAX`` bytes.
    """

    epoch_version: int
    open: Callable[[], bool] = lambda: True
    path: str = paths.CONTROLLER_EPOCH


class MultiOutcome(Struct, Generic[C, K]):
    """Outcome of one multi, or of several put together.

    ``applied`` holds changes; the rest names entities: ``conflicts`` (something of the multi was not as expected, and
    nothing of it was written: read again, decide again), ``gone`` (the znode or its topic does not exist), ``refused``
    (no permission, too big: with the code) and ``unknown`` (sent, but the reply was lost).
    """

    applied: list[C] = field(default_factory=list)
    conflicts: list[K] = field(default_factory=list)
    gone: list[K] = field(default_factory=list)
    refused: list[tuple[K, Code]] = field(default_factory=list)
    unknown: list[K] = field(default_factory=list)

    @property
    def unsettled(self) -> set[K]:
        """Entities to read again and decide again."""
        return {*self.conflicts, *self.unknown}

    def add(self, other: MultiOutcome[C, K]) -> None:
        """Adds another multi's outcome."""
        self.applied += other.applied
        self.conflicts += other.conflicts
        self.gone += other.gone
        self.refused += other.refused
        self.unknown += other.unknown
