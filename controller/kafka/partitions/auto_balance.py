"""Balances leaders automatically (S4-83; Kafka ``checkAndTriggerAutoLeaderRebalance``)."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from controller.kafka.journal.report import Reason
from controller.kafka.path.controller import Controller, carry_out_portions
from controller.kafka.path.events import EventKind
from controller.kafka.path.leader_balance import FIRST_LOOK_S
from state_machines.decisions.leader_election import ElectionType, Imbalance, elect, imbalance, to_balance

TURN_ROWS: Final = 20_000
"""Partitions that are counted between two turns of the loop: some 10 ms."""


def begin(c: Controller) -> None:
    """Schedules the first look of a term."""
    c.spawn(_look_later(c, FIRST_LOOK_S))


async def _look_later(c: Controller, seconds: float) -> None:
    await asyncio.sleep(seconds)
    c.queue.signal(EventKind.AUTO_BALANCE)


async def auto_balance(c: Controller) -> None:
    """Moves the leaders that the budget allows, the worst brokers first, and schedules the next look."""
    balance = c.balance
    if not balance.enabled or c.pauses.in_force is not None:
        c.spawn(_look_later(c, balance.interval_s))
        return
    clock = asyncio.get_running_loop().time
    counted: dict[int, Imbalance] = {}
    for at in range(0, len(c.cluster.rows), TURN_ROWS):
        imbalance(c.cluster, range(at, min(at + TURN_ROWS, len(c.cluster.rows))), counted)
        await asyncio.sleep(0)
    budget = balance.budget(clock())
    await c.reread_isrs(to_balance(c.cluster, balance.percentage_max, budget, counted, behind=True))
    found = to_balance(c.cluster, balance.percentage_max, budget + 1, counted)
    moves = found[:budget]
    if moves:
        decide, why = partial(elect, kind=ElectionType.PREFERRED), "automatic balance of leaders"
        await carry_out_portions(c, decide, moves, Reason.ELECTION, why, rows_max=TURN_ROWS)
        balance.spend(clock(), len(moves))
    c.spawn(_look_later(c, balance.next_look_s(clock(), left=len(found) > budget)))
