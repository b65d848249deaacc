"""Keeps the results of operations until the daemon accepts them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from regent_agent.protocol import BUSY, FAILED, NOT_RUNNING, PARTS_MAX, RESULTS_MAX, Result

log = logging.getLogger("regent_agent")

AGAIN_MS: Final = 100
AGAIN_MS_MAX: Final = 5_000
REPORT_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of the results of one report, far below the bound of a frame."""
TEXT_CHARACTERS_MAX: Final = 1_000
REPEATED: Final = frozenset({BUSY, NOT_RUNNING, FAILED})
"""Outcomes after which the daemon sends the operation again, to be done."""


class _Kept(msgspec.Struct):
    """A result. ``due_s``: when it is sent; None while it is in a report whose response has not come."""

    result: Result
    size: int
    due_s: float | None
    pause_ms: int = AGAIN_MS


class Outbox:
    """Holds results by pid, and says which are sent now."""

    def __init__(self, clock: Callable[[], float], wake: Callable[[], None]) -> None:
        self._clock, self._wake = clock, wake
        self._kept: dict[int, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, result: Result) -> None:
        """Keeps a result, to be sent at once."""
        result, size = _bounded(result)
        self._kept[result.pid] = _Kept(result, size, self._clock())
        self._wake()

    def repeat(self, pid: int) -> bool:
        """Sends the result of an operation that arrived again; returns False where it is to be done.

        A result that is in a report now is sent once more: the daemon may have requested it after that report.
        """
        kept = self._kept.get(pid)
        if kept is None:
            return False
        if kept.result.outcome in REPEATED:
            del self._kept[pid]
            return False
        kept.due_s = self._clock()
        self._wake()
        return True

    def repeat_all(self) -> None:
        """Sends all results again, at once."""
        now_s = self._clock()
        for kept in self._kept.values():
            kept.due_s = now_s
        self._wake()

    def due(self) -> list[Result]:
        """Returns the results of the next report."""
        now_s, chosen, size, parts = self._clock(), list[Result](), 0, 0
        for kept in self._kept.values():
            if kept.due_s is None or kept.due_s > now_s:
                continue
            size += kept.size
            parts += len(kept.result.parts)
            if chosen and (size > REPORT_BYTES_MAX or parts > PARTS_MAX or len(chosen) == RESULTS_MAX):
                break
            kept.due_s = None
            chosen.append(kept.result)
        return chosen

    def wait_s(self) -> float | None:
        """Returns the time until a result is due, None without one."""
        due = [kept.due_s for kept in self._kept.values() if kept.due_s is not None]
        return max(min(due) - self._clock(), 0.0) if due else None

    def accepted(self, sent: Collection[Result], again: Collection[int]) -> None:
        """Forgets the results of a report, except those to be sent again after a pause."""
        for result in sent:
            kept = self._kept.get(result.pid)
            if kept is None or kept.due_s is not None:
                continue  # the operation arrived again while the report was on its way
            if result.pid not in again:
                del self._kept[result.pid]
                continue
            kept.due_s = self._clock() + kept.pause_ms / 1000
            kept.pause_ms = min(kept.pause_ms * 2, AGAIN_MS_MAX)

    def not_sent(self, sent: Collection[Result]) -> None:
        """Sends the results of a report that got no response again."""
        for result in sent:
            kept = self._kept.get(result.pid)
            if kept is not None and kept.due_s is None:
                kept.due_s = self._clock()


def _bounded(result: Result) -> tuple[Result, int]:
    """Returns a result that fits into a report, and its size; a failure instead of one that cannot be sent."""
    result = msgspec.structs.replace(result, text=result.text[:TEXT_CHARACTERS_MAX])
    try:
        size = len(msgspec.msgpack.encode(result))
        cause = f"its result has {size} bytes, at most {REPORT_BYTES_MAX} are sent"
    except (TypeError, ValueError, OverflowError) as error:
        size, cause = REPORT_BYTES_MAX + 1, f"its result cannot be encoded: {error}"
    if len(result.parts) > PARTS_MAX:
        size, cause = REPORT_BYTES_MAX + 1, f"its log has {len(result.parts)} parts, at most {PARTS_MAX} are sent"
    if size <= REPORT_BYTES_MAX:
        return result, size
    log.error("operation pid=%d failed: %s; the service must return less", result.pid, cause)
    return Result(result.pid, FAILED, text=cause), len(cause)
