"""Balances leaders automatically (S4-83; Kafka ``checkAndTriggerAutoLeaderRebalance``)."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Final

from controller.kafka.journal.report import Reason
from controller.kafka.path.controller import Controller, carry_out_portions
from controller.kafka.path.events import EventKind, EventQueue
from state_machines.decisions.leader_election import ElectionType, Imbalance, elect, imbalance, to_balance

FIRST_LOOK_S: Final = 5.0
"""From taking office to the first look, as in Kafka."""
BUDGET_S: Final = 60.0
"""The period of the budget."""
LOOK_S_MIN: Final = 1.0
"""Shortest time between two looks, however clocks round."""
TURN_ROWS: Final = 20_000
"""Partitions that are counted between two turns of the loop: some 10 ms."""


class Budget:
    """Counts the moved leaders of the last minute."""

    def __init__(self, moves_per_minute: int) -> None:
        self._moves_per_minute = moves_per_minute
        self._spent: deque[tuple[float, int]] = deque()

    def left(self, now_s: float) -> int:
        """Returns how many leaders may be moved now."""
        while self._spent and self._spent[0][0] + BUDGET_S <= now_s:
            self._spent.popleft()
        return self._moves_per_minute - sum(moves for _, moves in self._spent)

    def spend(self, now_s: float, moves: int) -> None:
        """Notes moved leaders."""
        if moves:
            self._spent.append((now_s, moves))

    def next_look_s(self, now_s: float, interval_s: float, *, left: bool) -> float:
        """Returns the seconds until the next look: where moves are ``left``, until the budget allows more."""
        if not left or not self._spent:
            return interval_s
        return min(interval_s, max(LOOK_S_MIN, self._spent[0][0] + BUDGET_S - now_s))


class AutoBalance:
    """Looks at the leaders of a term from time to time. Its settings are those in force at each look."""

    def __init__(self, c: Controller, moves_per_minute: int) -> None:
        self._c = c
        self._budget = Budget(moves_per_minute)

    def begin(self) -> None:
        """Schedules the first look of a term."""
        self._look_after(FIRST_LOOK_S)

    async def look(self) -> None:
        """Moves the leaders that the budget allows, the worst brokers first, and schedules the next look."""
        c, values = self._c, self._c.adoption.values
        if not values.balances or c.pauses.in_force is not None:
            self._look_after(values.balance_interval_s)
            return
        clock = asyncio.get_running_loop().time
        counted: dict[int, Imbalance] = {}
        for at in range(0, len(c.cluster.rows), TURN_ROWS):
            imbalance(c.cluster, range(at, min(at + TURN_ROWS, len(c.cluster.rows))), counted)
            await asyncio.sleep(0)
        budget, percentage_max = self._budget.left(clock()), values.balance_percentage_max
        await c.reread_isrs(to_balance(c.cluster, percentage_max, budget, counted, behind=True))
        found = to_balance(c.cluster, percentage_max, budget + 1, counted)
        moves = found[:budget]
        if moves:
            decide, why = partial(elect, kind=ElectionType.PREFERRED), "automatic balance of leaders"
            await carry_out_portions(c, decide, moves, Reason.ELECTION, why, rows_max=TURN_ROWS)
            self._budget.spend(clock(), len(moves))
        left = len(found) > budget
        self._look_after(self._budget.next_look_s(clock(), values.balance_interval_s, left=left))

    def _look_after(self, seconds: float) -> None:
        self._c.spawn(_signal_after(self._c.queue, seconds))


async def _signal_after(queue: EventQueue, seconds: float) -> None:
    await asyncio.sleep(seconds)
    queue.signal(EventKind.AUTO_BALANCE)
