"""Remembers regions that were moved, so that no voluntary move takes them again for a while."""

from __future__ import annotations


class Cooldown:
    """Holds until when each region rests after a move. ``length_ms`` 0: none does. Times are the loop's."""

    def __init__(self, length_ms: int) -> None:
        self._length_ms = length_ms
        self._until_ms: dict[int, int] = {}
        """In the order of the times."""

    def moved(self, region: int, now_ms: int) -> None:
        """Enters a region that was moved, and forgets those whose time is over."""
        for one in [*self._over(now_ms), region]:
            self._until_ms.pop(one, None)
        if self._length_ms:
            self._until_ms[region] = now_ms + self._length_ms

    def left_ms(self, region: int, now_ms: int) -> int:
        """Returns how long a region rests still."""
        return max(0, self._until_ms.get(region, 0) - now_ms)

    def __len__(self) -> int:
        return len(self._until_ms)

    def _over(self, now_ms: int) -> list[int]:
        found = []
        for region, until_ms in self._until_ms.items():
            if until_ms > now_ms:
                break
            found.append(region)
        return found
