"""Shows snapshots to operators, and requests them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from controller.http.errors import NotFound
from controller.http.snapshot_models import SnapshotItem, SnapshotRequest
from controller.kafka.snapshots.keeper import Attempt, SnapshotKeeper
from controller.kafka.term.term import Term


class SnapshotView:
    """The last snapshots of this process as operators see them. ``active``: raises where the daemon is not active."""

    def __init__(self, keeper: SnapshotKeeper, active: Callable[[], Term]) -> None:
        self._keeper = keeper
        self._active = active

    def listed(self) -> list[SnapshotItem]:
        """Lists the last snapshots, oldest first."""
        return [self._item(attempt) for attempt in self._keeper.attempts]

    def described(self, number: int) -> SnapshotItem:
        """Describes one; raises :class:`NotFound`."""
        for attempt in self._keeper.attempts:
            if attempt.number == number:
                return self._item(attempt)
        raise NotFound(
            f"snapshot {number} is none of the last ones of this process",
            "see 'regent list snapshots', or take another",
        )

    def requested(self, request: SnapshotRequest, principal: str) -> SnapshotItem:
        """Requests one of the active term; returns the one that waits already where there is one."""
        self._active()
        return self._item(self._keeper.request(request.reason, principal))

    def _item(self, attempt: Attempt) -> SnapshotItem:
        taken = attempt.taken
        found = SnapshotItem(
            number=attempt.number,
            state=attempt.state.value,
            cause=attempt.cause.value,
            reason=attempt.reason,
            principal=attempt.principal,
            since=datetime.fromtimestamp(attempt.began_s, UTC),
            took_ms=attempt.took_ms,
            error=attempt.err,
        )
        if taken is None:
            return found
        written = taken.written
        end = {
            "file": str(self._keeper.folder / written.name),
            "partitions": written.partitions,
            "brokers": written.brokers,
            "file_bytes": written.file_bytes,
            "seq_first": taken.seq_first,
            "seq_last": taken.seq_last,
        }
        return found.model_copy(update=end)
