"""What a state znode says against what we decided: pure functions of values.

Every write of a controller raises the leader epoch by one, every ISR change of a leader leaves it alone, and both
raise the znode's version by one. So the two steps of version and leader epoch between two reads tell how many writes
of each sort happened, even where the writes between were never seen: our decisions are replayed up to the leader
epoch that was read, and leader and ISR are compared there. The version is not compared by itself: where Kafka writes
each step of a decision, regent writes their sum.
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
"""Replicas of a partition whose possible ISRs (at most 2 to the power of it) are tried one by one."""


class Seen(Struct, frozen=True, gc=False):
    """A state znode as read: the zxid of its last write, and in which reading of the shadow it was read."""

    leadership: Leadership
    zxid: int
    reading: int


class Step(Struct, frozen=True, gc=False):
    """One decision of ours about one partition: the leadership it leads to, and how many leader epochs it raises.

    ``event`` is the number of what it answers; another controller can have done the same in epoch ``controller``
    or later, after zxid ``after``. ``why`` is the constant reason of the rule.
    """

    event: int
    controller: int
    after: int
    leader: int
    isr: tuple[int, ...]
    epochs: int
    why: str


class Outcome(StrEnum):
    """What a read state znode is to the last explained one and our decisions since."""

    UNCHANGED = "unchanged"
    ISR_CHANGES = "only leaders changed the ISR"
    AGREES = "agrees"
    DIFFERS = "leader or ISR differ"
    UNDER_WAY = "part of a decision is written"
    BEYOND = "more leader epochs than we decided"
    WENT_BACK = "leader epoch or version went back"


class Judgement(NamedTuple):
    """The outcome, how many of our decisions it covers, and how many ISR changes of leaders happened meanwhile."""

    outcome: Outcome
    steps: int = 0
    isr_changes: int = 0


def version_of(base: Leadership | None) -> int:
    """Version of a state znode, or what comes before version 0."""
    return base.version if base is not None else NO_VERSION


def epoch_of(base: Leadership | None) -> int:
    """Leader epoch of a state znode, or what comes before epoch 0."""
    return base.leader_epoch if base is not None else NO_EPOCH


def same_isr(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two ISRs have the same members: their order means nothing."""
    return sorted(one) == sorted(other)


def covered(steps: Sequence[Step], epochs: int) -> int | None:
    """How many of ``steps`` raise ``epochs`` leader epochs together; None where no number of them does."""
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
    """A leader may change its ISR, of which it stays a member; nobody changes a leader without a new epoch."""
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
    """Whether ISR changes of a leader that were never read could lead from ``base`` to ``seen`` under our rules.

    ``decide`` gives our decisions on any base; ``within``: to lie inside one of them is enough. Leaders' changes may
    lie before or after a decision: every ISR that the partition could have had before is tried. True means that
    nothing contradicts our rules, not that they were confirmed: such a znode cannot be compared.
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
    """Whether ``steps`` and then ``left`` ISR changes can end as ``seen``; changes between two steps hide their ISR."""
    count = covered(steps, epochs)
    if count is None:
        return False
    if count > 1 and left:
        return True
    last = steps[count - 1]
    return last.leader == seen.leader and (same_isr(last.isr, seen.isr) or (left > 0 and seen.leader in seen.isr))


def possible_bases(base: Leadership | None, replicas: Sequence[int]) -> Iterator[tuple[Leadership | None, int]]:
    """The base as it was read, and with each other ISR that its leader could have written, with the changes it took."""
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
    """The same leadership with another ISR."""
    return Leadership(base.leader, base.leader_epoch, isr, base.controller_epoch, base.version, base.recovering)


def after(base: Leadership | None, steps: Sequence[Step]) -> Leadership | None:
    """The leadership that ``steps`` lead to from ``base``, as far as it is compared."""
    if not steps:
        return base
    epochs = sum(step.epochs for step in steps)
    last, epoch = steps[-1], base.controller_epoch if base is not None else 0
    return Leadership(last.leader, epoch_of(base) + epochs, last.isr, epoch, version_of(base) + epochs)


def lost_members(base: Leadership | None, seen: Leadership) -> frozenset[int]:
    """Who led or was in sync in ``base`` and is neither in ``seen``: the mark of a broker that was moved off."""
    if base is None:
        return frozenset()
    return frozenset((*base.isr, base.leader)) - {NO_LEADER, seen.leader, *seen.isr}


def is_preferred_election(base: Leadership | None, seen: Leadership, replicas: Sequence[int]) -> bool:
    """Whether a controller wrote once, and exactly a preferred election: the first replica leads, the ISR stays.

    Leaders may have changed the ISR besides; the leader before is still in it, so nothing was moved off it.
    """
    if base is None or seen.leader_epoch - base.leader_epoch != 1 or seen.version <= base.version:
        return False
    if seen.leader != replicas[0] or seen.leader == base.leader or base.leader not in seen.isr:
        return False
    return seen.version - base.version > 1 or (seen.leader in base.isr and same_isr(base.isr, seen.isr))


def bare_epochs(base: Leadership | None, steps: Sequence[Step], seen: Leadership) -> int:
    """How many epochs were only raised, beyond our decisions: of a partition without a leader and one ISR member."""
    end = after(base, steps)
    if end is None or not seen.leader == end.leader == NO_LEADER or seen.isr != end.isr or len(end.isr) > 1:
        return 0
    return max(0, seen.leader_epoch - end.leader_epoch)
