"""Holds the automatic balance's settings and budget (S4-83; ``auto.leader.rebalance.enable``)."""

from __future__ import annotations

from collections import deque
from typing import Final

from configs.sections import ControllerSettings

FIRST_LOOK_S: Final = 5.0
"""From taking office to the first look, as in Kafka."""
BUDGET_S: Final = 60.0
"""The period of the budget."""
LOOK_S_MIN: Final = 1.0
"""Shortest time between two looks, however clocks round."""


class LeaderBalance:
    """Counts the moved leaders of the last minute, beside the settings of the balance.

    ``enabled``: whether it moves any; it may be switched on in the midst of a term.
    """

    def __init__(self, interval_s: float, percentage_max: int, moves_per_minute: int, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self.interval_s = interval_s
        self.percentage_max = percentage_max
        self._moves_per_minute = moves_per_minute
        self._spent: deque[tuple[float, int]] = deque()

    @classmethod
    def of(cls, settings: ControllerSettings) -> LeaderBalance:
        """Takes over the settings."""
        return cls(
            settings.leader_imbalance_check_interval_seconds,
            settings.leader_imbalance_per_broker_percentage,
            settings.leader_rebalance_moves_per_minute,
            enabled=settings.auto_leader_rebalance_enable,
        )

    def budget(self, now_s: float) -> int:
        """Returns how many leaders may be moved now."""
        while self._spent and self._spent[0][0] + BUDGET_S <= now_s:
            self._spent.popleft()
        return self._moves_per_minute - sum(moves for _, moves in self._spent)

    def spend(self, now_s: float, moves: int) -> None:
        """Notes moved leaders."""
        if moves:
            self._spent.append((now_s, moves))

    def next_look_s(self, now_s: float, *, left: bool) -> float:
        """Returns the seconds until the next look: where moves are ``left``, until the budget allows more."""
        if not left or not self._spent:
            return self.interval_s
        return min(self.interval_s, max(LOOK_S_MIN, self._spent[0][0] + BUDGET_S - now_s))
