"""Compares a state znode with our decisions: pure functions of values.

Every write of a controller raises the leader epoch by one, an ISR change of a leader leaves it alone, and both raise
the znode's version by one. So version and leader epoch of two reads give the number of writes of each sort between
them, even where those were never read. Our decisions are replayed up to the leader epoch that was read, and leader and
ISR are compared there. The version itself is not compared: Kafka writes each step of a decision, regent their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import combinations
from typing import Final, NamedTuple

from msgspec import Struct

from state_machines.model.types import NO_LEADER, NO_VERSION, Leadership

NO_EPOCH: Final = -1
"""Leader epoch of a state znode that does not exist: its creation is one step, too."""

HIDDEN_REPLICAS_MAX: Final = 6
"""Most replicas of a partition whose possible ISRs (at most 2 to the power of it) are tried one by one."""


class Seen(Struct, frozen=True, gc=False):
    """A state znode as read, with the zxid of its last write and the number of the shadow's reading."""

    leadership: Leadership
    zxid: int
    reading: int


class Step(Struct, frozen=True, gc=False):
    """One decision of ours on one partition: the resulting leadership, and the number of leader epochs it raises.

    ``event`` is the number of its event; the other controller can have decided the same in epoch ``controller`` or
    later, after zxid ``after``. ``why`` is the constant reason of the rule.
    """

    event: int
    controller: int
    after: int
    leader: int
    isr: tuple[int, ...]
    epochs: int
    why: str


class Outcome(StrEnum):
    """Relation of a read state znode to the last explained one and our decisions since."""

    UNCHANGED = "unchanged"
    ISR_CHANGES = "only leaders changed the ISR"
    AGREES = "agrees"
    DIFFERS = "leader or ISR differ"
    UNDER_WAY = "part of a decision is written"
    BEYOND = "more leader epochs than we decided"
    WENT_BACK = "leader epoch or version went back"


class Judgement(NamedTuple):
    """The outcome, the number of our decisions that it covers, and of ISR changes by leaders meanwhile."""

    outcome: Outcome
    steps: int = 0
    isr_changes: int = 0


def version_of(base: Leadership | None) -> int:
    """Returns the version of a state znode, ``NO_VERSION`` without one."""
    return base.version if base is not None else NO_VERSION


def epoch_of(base: Leadership | None) -> int:
    """Returns the leader epoch of a state znode, ``NO_EPOCH`` without one."""
    return base.leader_epoch if base is not None else NO_EPOCH


def same_isr(one: Sequence[int], other: Sequence[int]) -> bool:
    """Returns whether two ISRs have the same members, in any order."""
    return sorted(one) == sorted(other)


def covered(steps: Sequence[Step], epochs: int) -> int | None:
    """Returns how many of ``steps`` raise ``epochs`` leader epochs together; None where no number of them does."""
    total = 0
    for count, step in enumerate(steps, 1):
        total += step.epochs
        if total >= epochs:
            return count if total == epochs else None
    return None


def judge(base: Leadership | None, steps: Sequence[Step], seen: Leadership) -> Judgement:
    """Compares ``seen`` with the decisions ``steps`` taken on ``base`` (None: no state znode yet)."""
    writes, epochs = seen.version - version_of(base), seen.leader_epoch - epoch_of(base)
    if writes == 0 and seen == base:
        return Judgement(Outcome.UNCHANGED)
    if writes <= 0 or epochs < 0:
        return Judgement(Outcome.WENT_BACK)
    if epochs == 0:
        return _without_controller(base, seen, writes)
    changes = max(0, writes - epochs)
    count = covered(steps, epochs)
    if count is None:
        beyond = epochs > sum(step.epochs for step in steps)
        return Judgement(Outcome.BEYOND if beyond else Outcome.UNDER_WAY, 0, changes)
    last = steps[count - 1]
    agrees = last.leader == seen.leader and same_isr(last.isr, seen.isr) and last.controller <= seen.controller_epoch
    return Judgement(Outcome.AGREES if agrees else Outcome.DIFFERS, count, changes)


def _without_controller(base: Leadership | None, seen: Leadership, writes: int) -> Judgement:
    """Judges writes without a new epoch: a leader may change its ISR, of which it stays a member, and nothing else."""
    leads = base is not None and seen.leader == base.leader != NO_LEADER and seen.leader in seen.isr
    return Judgement(Outcome.ISR_CHANGES if leads else Outcome.DIFFERS, 0, writes)


def hidden_isr_explains(
    base: Leadership | None,
    seen: Leadership,
    replicas: Sequence[int],
    decide: Callable[[Leadership | None], Sequence[Step]],
    *,
    within: bool = False,
) -> bool:
    """Returns whether unread ISR changes of a leader could lead from ``base`` to ``seen`` under our rules.

    ``decide`` returns our decisions on any base; ``within``: a state inside one of them is enough. Leaders' changes may
    precede or follow a decision: every possible earlier ISR is tried. True means that nothing contradicts our rules,
    not that they are confirmed: such a znode cannot be compared.
    """
    epochs = seen.leader_epoch - epoch_of(base)
    changes = seen.version - version_of(base) - epochs
    if changes <= 0 or epochs <= 0:
        return False
    if len(replicas) > HIDDEN_REPLICAS_MAX:
        return True
    for hidden, used in possible_bases(base, replicas):
        steps = decide(hidden)
        if used <= changes and _fits(steps, seen, epochs, changes - used):
            return True
        if within and covered(steps, epochs) is None and epochs < sum(step.epochs for step in steps):
            return True
    return False


def _fits(steps: Sequence[Step], seen: Leadership, epochs: int, left: int) -> bool:
    """Returns whether ``steps`` and ``left`` ISR changes can end as ``seen``; changes between steps hide the ISR."""
    count = covered(steps, epochs)
    if count is None:
        return False
    if count > 1 and left:
        return True
    last = steps[count - 1]
    return last.leader == seen.leader and (same_isr(last.isr, seen.isr) or (left > 0 and seen.leader in seen.isr))


def possible_bases(base: Leadership | None, replicas: Sequence[int]) -> Iterator[tuple[Leadership | None, int]]:
    """Yields the base as read, and with each other ISR that its leader could have written; with the changes needed."""
    yield base, 0
    if base is None or base.leader == NO_LEADER:
        return
    others = [r for r in replicas if r != base.leader]
    for size in range(len(others) + 1):
        for members in combinations(others, size):
            isr = (base.leader, *members)
            if not same_isr(isr, base.isr):
                yield with_isr(base, isr), 1


def with_isr(base: Leadership, isr: tuple[int, ...]) -> Leadership:
    """Returns the same leadership with another ISR."""
    return Leadership(base.leader, base.leader_epoch, isr, base.controller_epoch, base.version, base.recovering)


def after(base: Leadership | None, steps: Sequence[Step]) -> Leadership | None:
    """Returns the leadership that results from ``steps`` on ``base``, as far as it is compared."""
    if not steps:
        return base
    epochs = sum(step.epochs for step in steps)
    last, epoch = steps[-1], base.controller_epoch if base is not None else 0
    return Leadership(last.leader, epoch_of(base) + epochs, last.isr, epoch, version_of(base) + epochs)


def lost_members(base: Leadership | None, seen: Leadership) -> frozenset[int]:
    """Returns brokers that led or were in sync in ``base``, and not in ``seen``: partitions were moved off them."""
    if base is None:
        return frozenset()
    return frozenset((*base.isr, base.leader)) - {NO_LEADER, seen.leader, *seen.isr}


def is_preferred_election(base: Leadership | None, seen: Leadership, replicas: Sequence[int]) -> bool:
    """Returns whether the only write of a controller is a preferred election: the first replica leads, the ISR stays.

    Leaders may also have changed the ISR; the earlier leader is still in it, so nothing was moved off it.
    """
    if base is None or seen.leader_epoch - base.leader_epoch != 1 or seen.version <= base.version:
        return False
    if seen.leader != replicas[0] or seen.leader == base.leader or base.leader not in seen.isr:
        return False
    return seen.version - base.version > 1 or (seen.leader in base.isr and same_isr(base.isr, seen.isr))


def bare_epochs(base: Leadership | None, steps: Sequence[Step], seen: Leadership) -> int:
    """Returns how many epochs were raised alone, beyond our decisions: without a leader, with one ISR member."""
    end = after(base, steps)
    if end is None or not seen.leader == end.leader == NO_LEADER or seen.isr != end.isr or len(end.isr) > 1:
        return 0
    return max(0, seen.leader_epoch - end.leader_epoch)
