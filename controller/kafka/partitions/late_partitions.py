"""Handles partitions with a history that a term finds late: restored by hand, or not readable before."""

from __future__ import annotations

from functools import partial
from typing import Final

from controller.kafka.journal.report import Reason
from controller.kafka.path.controller import Controller
from controller.kafka.reassignments.reassignment import go_on
from controller.process.wording import abbreviate
from state_machines.decisions.failover import take_up

TURN_ROWS: Final = 10_000
"""Rows in one decision, which is one turn of the loop."""


async def late_partitions(c: Controller) -> None:
    """Writes another leader epoch for each, or a new leader where its own is gone, and sends that to brokers.

    Reassignments of these partitions go on from the present ISR.
    """
    rows = sorted(c.late)
    c.late.clear()
    for at in range(0, len(rows), TURN_ROWS):
        some = rows[at : at + TURN_ROWS]
        names = abbreviate(sorted({c.cluster.name(i).topic for i in some}))
        decide = partial(take_up, rows=some, unclean=c.unclean)
        await c.carry_out(decide, Reason.TAKEN_UP, f"{len(some)} partitions of {names} are taken up")
    moving = [i for i in rows if i in c.cluster.reassigning]
    await go_on(c, moving, f"{len(moving)} reassignments go on", again=True)
