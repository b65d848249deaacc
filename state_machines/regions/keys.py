"""Follows the keys of one table: finds where its regions do not join, also as if one of them was not there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from state_machines.regions.damage import Gap
from state_machines.regions.entities import Region, Table, place_of, start_of
from state_machines.regions.states import TableState

TOGETHER: Final = 2_000
"""Regions of one part."""


class Keys:
    """Follows the regions of one table in the order of their start keys, and finds where these do not join."""

    __slots__ = ("_end", "_ended", "_last", "_table")

    def __init__(self, table: str) -> None:
        self._table = table
        self._end = b""
        self._ended = False
        self._last = 0

    @property
    def joint(self) -> bytes | None:
        """Returns the key at which the next region joins those before; None where they reach to the end."""
        return None if self._ended else self._end

    def reached(self, region: int, end: bytes) -> None:
        """Notes the latest of some regions that joined each other."""
        if not self._ended and (not end or end >= self._end):
            self._end, self._ended, self._last = end, not end, region

    def next(self, region: int, start: bytes, end: bytes) -> Gap | None:
        """Takes the next region; returns what is between it and those before, or what it shares with them."""
        found: Gap | None = None
        if self._ended or start < self._end:
            ends = [one for one in (end, b"" if self._ended else self._end) if one]
            found = Gap(self._table, start, min(ends, default=b""), True, (self._last, region))
        elif start > self._end:
            found = Gap(self._table, self._end, start, False, (self._last, region) if self._last else (region,))
        self.reached(region, end)
        return found

    def over(self) -> Gap | None:
        """Returns the keys behind the last region, where it has an end."""
        return None if self._ended else Gap(self._table, self._end, b"", False, (self._last,))


class Without:
    """Follows the keys of a table as if one of its regions was not there. Take :meth:`parts` first.

    ``gaps``: those that the table has without it, as a daemon that starts finds them. ``missing``: the first of the
    keys of the region that no other one has; None where others have all of them.
    """

    def __init__(self, table: Table, region: Region) -> None:
        self._table, self._region = table, region
        self.gaps: list[Gap] = []
        self.missing: Gap | None = None

    def parts(self) -> Iterator[None]:
        """Looks at the regions of the table; yields after each part, between which they may be split."""
        keys, at = Keys(self._table.name), 0
        before: Region | None = None
        last: Region | None = None
        while True:
            at = behind(self._table, keys, at, last, self._region)
            some, joint = self._table.regions[at : at + TOGETHER], keys.joint
            if not some:
                break
            for one in some:
                if one is self._region:
                    continue
                if one.start == joint:
                    joint = one.end or None
                else:
                    if before is not None:
                        keys.reached(before.id, before.end)
                    self._note(keys.next(one.id, one.start, one.end))
                    joint = keys.joint
                before = one
            if before is not None:
                keys.reached(before.id, before.end)
            at, last = at + len(some), some[-1]
            yield
        self._end(keys, before)

    def _end(self, keys: Keys, before: Region | None) -> None:
        if before is None:
            self._note(Gap(self._table.name, b"", b"", False, ()))
            return
        keys.reached(before.id, before.end)
        over = keys.over()
        self._note(over)
        if over is not None and self._table.state is TableState.DISABLED:
            self.gaps.pop()  # its creation may have ended early

    def _note(self, gap: Gap | None) -> None:
        if gap is None:
            return
        self.gaps.append(gap)
        if self.missing is None and not gap.overlap:
            start, end = max(gap.start, self._region.start), _first_of(gap.end, self._region.end)
            if not end or start < end:
                self.missing = gap._replace(start=start, end=end)


def behind(table: Table, keys: Keys, at: int, last: Region | None, but: Region | None = None) -> int:
    """Returns the position behind ``last``, which was before ``at``: regions may have been replaced since.

    Where it is gone, that is the position behind the keys that were reached. ``but``: a region that counts as gone.
    """
    regions = table.regions
    if last is None or (0 < at <= len(regions) and regions[at - 1] is last):
        return at
    if (found := place_of(last)) is not None:
        return found + 1
    at = bisect_left(regions, last.end, key=start_of) if last.end else len(regions)
    if (before := next((one for one in reversed(regions[max(0, at - 2) : at]) if one is not but), None)) is not None:
        keys.reached(before.id, before.end)
    return at


def _first_of(end: bytes, other: bytes) -> bytes:
    """Returns the first of two ends of keys; an empty one is behind all others."""
    return min(end, other) if end and other else end or other
