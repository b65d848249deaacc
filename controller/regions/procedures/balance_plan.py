"""Declares the stored message of a balance: its plan, how much of that is judged, and what it says of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from controller.process.wording import counted
from controller.regions.planner import Made
from controller.regions.procedures.messages import Codec, Message
from state_machines.regions.balancing.checks import SKIPPED, Skip
from state_machines.regions.balancing.cluster import MOVES_MAX
from state_machines.regions.balancing.costs import mean

PLAN_BYTES_MAX: Final = 128 * 1024
"""Bytes of a plan as it is stored: each wave stores it again, and a request to ZooKeeper has a bound."""


class PlannedMove(Message, frozen=True):
    """A region that is to move. ``source``, ``to``, ``why``: positions in the names of the plan.

    ``skip``: why it was not moved, empty where it was, or is to be.
    """

    region: int
    source: int
    to: int
    why: int
    skip: str = ""


class BalanceTask(Message, frozen=True):
    """A balance. ``force``: it was begun while regions were in transition.

    ``names``: of servers; ``whys``: causes of moves. ``moves``: the plan, in its order; ``begun``: how many of these
    are judged. ``left``: further moves that did not fit. ``before``, ``after``: costs, with all moves.
    ``regions``, ``servers``: how many the plan is about. ``not_before_ms``: time of the next wave. ``off``: it ended
    early, because the balancer was switched off.
    """

    why: str = ""
    force: bool = False
    names: tuple[str, ...] = ()
    whys: tuple[str, ...] = ()
    moves: tuple[PlannedMove, ...] = ()
    begun: int = 0
    left: int = 0
    before: float = 0.0
    after: float = 0.0
    regions: int = 0
    servers: int = 0
    not_before_ms: int = 0
    off: bool = False

    def __post_init__(self) -> None:
        """Checks positions, so that a damaged record cannot be used; nothing that reads a usable one raises then."""
        names, whys = len(self.names), len(self.whys)
        for one in self.moves:
            if not (0 <= one.source < names and 0 <= one.to < names and 0 <= one.why < whys):
                raise ValueError(f"the move of region {one.region} names no server or no cause of the plan")


BALANCE_TASK = Codec(BalanceTask)


def planned(task: BalanceTask, made: Made) -> BalanceTask:
    """Returns the message with a plan, as much of it as may be stored."""
    names, whys, moves = dict[str, int](), dict[str, int](), list[PlannedMove]()
    size = 0
    for one in islice(made.plan.moves, MOVES_MAX):
        size += sum(len(name.encode()) + 5 for name in {one.source, one.to} - names.keys()) + 40
        if moves and size > PLAN_BYTES_MAX:
            break
        source, to = (names.setdefault(name, len(names)) for name in (one.source, one.to))
        moves.append(PlannedMove(one.region, source, to, whys.setdefault(one.why, len(whys))))
    return replace(
        task,
        names=tuple(names),
        whys=tuple(whys),
        moves=tuple(moves),
        left=made.plan.left + len(made.plan.moves) - len(moves),
        before=mean(made.plan.before),
        after=mean(made.plan.after),
        regions=made.regions,
        servers=made.servers,
    )


def judged(task: BalanceTask, some: Sequence[PlannedMove]) -> bytes:
    """Returns the message after some further moves were judged."""
    begun = task.begun + len(some)
    moves = (*task.moves[: task.begun], *some, *task.moves[begun:])
    return BALANCE_TASK.encode(replace(task, moves=moves, begun=begun))


def skips(task: BalanceTask) -> Counter[str]:
    """Counts the moves that were left out, by their cause."""
    return Counter(one.skip for one in task.moves if one.skip)


def result_text(task: BalanceTask, there: int) -> str:
    """Returns the result of a balance in words."""
    if not task.moves:
        return f"nothing to move: {counted(task.regions, 'region')} at {counted(task.servers, 'server')}"
    found = [f"{there} of {counted(len(task.moves), 'region')} moved"]
    found += [f"{count} left out: {SKIPPED[Skip(cause)]}" for cause, count in sorted(skips(task).items())]
    if task.off:
        found.append(f"{len(task.moves) - task.begun} not begun: the balancer was switched off")
    if task.left:
        found.append(f"{task.left} further moves are left to the next balance")
    return "; ".join(found)
