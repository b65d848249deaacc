"""Counts the goals of an assignment anew, from replicas and loads alone; shares no code with the search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pipeline.planner.arrays import Array, np
from pipeline.planner.broker_sets import astray, by_set
from pipeline.planner.goals import HARD, WORDS, Goal
from pipeline.planner.problem import Disks, Problem


def sums_of(problem: Problem, replicas: Array) -> dict[str, Array]:
    """Returns what each broker is loaded with, by kind."""
    count, size = len(problem.brokers.ids), problem.size
    there = replicas >= 0
    members = there.sum(axis=1)
    sends = problem.bytes_out + problem.bytes_in * (members - 1)
    all_at, first_at, led = replicas[there], replicas[there[:, 0], 0], there[:, 0]

    def everywhere(values: Array) -> Array:
        return np.bincount(all_at, np.repeat(values, members), count)

    def leading(values: Array) -> Array:
        return np.bincount(first_at, values[led], count)

    ins, led_in = everywhere(problem.bytes_in), leading(problem.bytes_in)
    follows = problem.limits.follower_cpu
    return {
        "count": np.bincount(all_at, minlength=count).astype(np.float64),
        "disk": everywhere(size),
        "in": ins,
        "potential": everywhere(sends),
        "leaders": np.bincount(first_at, minlength=count).astype(np.float64),
        "out": leading(sends),
        "leader_in": led_in,
        "cpu": led_in + follows * (ins - led_in),
    }


def hard_bounds(problem: Problem) -> dict[Goal, tuple[str, Array]]:
    """Returns the bounds of brokers by goal, with the kind of sum that each is for."""
    brokers, limits = problem.brokers, problem.limits
    return {
        Goal.REPLICAS_MAX: ("count", np.full(len(brokers.ids), limits.replicas_max)),
        Goal.DISK_MAX: ("disk", brokers.disk * limits.disk),
        Goal.IN_MAX: ("in", brokers.bytes_in * limits.bytes_in),
        Goal.OUT_MAX: ("out", brokers.bytes_out * limits.bytes_out),
        Goal.CPU_MAX: ("cpu", brokers.cpu * limits.cpu),
    }


NAMED_MAX: Final = 10
"""Partitions or brokers that a count names."""
ROUNDING: Final = 1e-6
"""Rounding that a sum of loads may have, as a share of its bound."""
TABLE_MAX: Final = 2**23
"""Cells of a table of topics and brokers that is counted at once; a larger one is sorted."""

BY_SET: Final = frozenset(Goal) - frozenset(range(Goal.REPLICAS)) - {Goal.POTENTIAL_OUT}
"""Goals of which a set of brokers has bounds of its own, beside that of racks."""


class Count(NamedTuple):
    """How far a goal is from being reached.

    ``broken``: partitions, brokers or pairs of topic and broker that break it. ``worst``: the furthest, as a share of
    its bound (1: just reached); 0 where the goal has none. ``at``: places of the first ones that break it.
    """

    goal: Goal
    broken: int
    worst: float
    at: tuple[int, ...] = ()

    @property
    def hard(self) -> bool:
        """Returns whether a plan has to reach it."""
        return self.goal in HARD

    @property
    def words(self) -> str:
        """Returns the goal in words."""
        return WORDS[self.goal]


@dataclass(frozen=True)
class Certificate:
    """The counts of all goals, in their order."""

    counts: tuple[Count, ...]

    def of(self, goal: Goal) -> Count:
        """Returns the count of one goal."""
        return self.counts[goal]

    @property
    def hard_broken(self) -> int:
        """Returns how often a hard goal is broken."""
        return sum(count.broken for count in self.counts if count.hard)

    @property
    def soft_broken(self) -> int:
        """Returns how often a soft goal is broken."""
        return sum(count.broken for count in self.counts if not count.hard)


def certified(problem: Problem, replicas: Array) -> Certificate:
    """Returns the counts for ``replicas`` (int32, P x R, places of brokers); raises ``ValueError`` for no assignment.

    ``problem`` has no unknown load.
    """
    _check_form(problem, replicas)
    whole = _counts(problem, replicas)
    if problem.sets is None:
        return Certificate(whole)
    # What is even, and which racks there are, is a matter of one set; what a broker has comes from all.
    each = [(one, _counts(one.problem, replicas[one.rows])) for one in by_set(problem)]
    racks = [
        _moved(_racks(one.problem.only(one.own), replicas[one.rows[one.own]]), one.rows[one.own]) for one, _ in each
    ]
    by_goal = {Goal.RACKS: racks} | {goal: [counts[goal] for _, counts in each] for goal in BY_SET}
    return Certificate(tuple(_joined(by_goal[one.goal]) if by_goal.get(one.goal) else one for one in whole))


def _moved(count: Count, rows: Array) -> Count:
    """Returns a count whose places are those of the whole problem."""
    return count._replace(at=tuple(rows[list(count.at)].tolist()))


def _joined(counts: Sequence[Count]) -> Count:
    at = [place for count in counts for place in count.at]
    worst = max(count.worst for count in counts)
    return Count(counts[0].goal, sum(count.broken for count in counts), worst, tuple(at[:NAMED_MAX]))


def _counts(problem: Problem, replicas: Array) -> tuple[Count, ...]:
    brokers, limits = problem.brokers, problem.limits
    sums = sums_of(problem, replicas)
    hosts = brokers.live & ~brokers.retiring & ~brokers.excluded
    cpu, outs = sums["cpu"], sums["out"]
    spread = limits.spread
    return (
        _alive(problem, replicas),
        _racks(problem, replicas),
        _in_sets(problem, replicas),
        *(_below(goal, sums[kind], bound, brokers.live) for goal, (kind, bound) in hard_bounds(problem).items()),
        _even(Goal.REPLICAS, problem, sums["count"], None, spread, whole=True),
        _below(Goal.POTENTIAL_OUT, sums["potential"], brokers.bytes_out * limits.bytes_out, hosts),
        _even(Goal.DISK, problem, sums["disk"], brokers.disk, spread, brokers.disk * limits.disk),
        _even(Goal.IN, problem, sums["in"], brokers.bytes_in, spread, brokers.bytes_in * limits.bytes_in),
        _even(Goal.OUT, problem, outs, brokers.bytes_out, spread, brokers.bytes_out * limits.bytes_out),
        _even(Goal.CPU, problem, cpu, brokers.cpu, spread, brokers.cpu * limits.cpu),
        _topics(problem, replicas),
        _even(Goal.LEADERS, problem, sums["leaders"], None, spread, whole=True),
        _even(Goal.LEADER_IN, problem, sums["leader_in"], None, spread, upper_only=True),
    )


class Worse(NamedTuple):
    """A hard goal that is worse after a part of a plan than before the first one.

    ``part``: from 1. ``at``: places of brokers, or of partitions, as the goal is about.
    """

    part: int
    goal: Goal
    at: tuple[int, ...]


def worse_between(problem: Problem, replicas: Array, parts: Sequence[Array]) -> Iterator[Worse]:
    """Counts the hard goals after each part; yields those that are worse than at the begin.

    A broker is worse where it is above a bound, and further than before the first part. ``parts``: places of the
    partitions that get ``replicas`` with each part.
    """
    sums, bounds = sums_of(problem, problem.replicas), hard_bounds(problem)
    allowed = {goal: np.maximum(bound, sums[kind]) * (1 + ROUNDING) for goal, (kind, bound) in bounds.items()}
    for number, rows in enumerate(parts, start=1):
        some, new = problem.only(rows), replicas[rows]
        gone, come = sums_of(some, some.replicas), sums_of(some, new)
        for goal, (kind, _) in bounds.items():
            sums[kind] += come[kind] - gone[kind]
            if len(bad := np.nonzero(problem.brokers.live & (sums[kind] > allowed[goal]))[0]):
                yield Worse(number, goal, tuple(bad.tolist()))
        for goal, count in ((Goal.ALIVE, _alive), (Goal.RACKS, _racks)):
            if (found := count(some, new)).broken > count(some, some.replicas).broken:
                yield Worse(number, goal, tuple(rows[list(found.at)].tolist()))


def _check_form(problem: Problem, replicas: Array) -> None:
    if replicas.shape != problem.replicas.shape:
        raise ValueError(f"replicas have the shape {replicas.shape}, the problem {problem.replicas.shape}")
    if not ((replicas >= 0) == (problem.replicas >= 0)).all():
        raise ValueError("a partition has another number of replicas than before")
    ordered = np.sort(replicas, axis=1)
    twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1)
    if twice.any():
        raise ValueError(f"{problem.name(int(np.argmax(twice)))} has two replicas on one broker")


def _alive(problem: Problem, replicas: Array) -> Count:
    gone = ~problem.brokers.live | problem.brokers.retiring
    bad = (gone[replicas] & (replicas >= 0)).sum(axis=1)
    rows = np.nonzero(bad)[0]
    return Count(Goal.ALIVE, int(bad.sum()), 0.0, tuple(rows[:NAMED_MAX].tolist()))


def _in_sets(problem: Problem, replicas: Array) -> Count:
    """Counts replicas on brokers that are not of the set of their topic."""
    bad = astray(problem, replicas)
    return Count(Goal.SETS, int(bad.sum()), 0.0, tuple(np.nonzero(bad)[0][:NAMED_MAX].tolist()))


def _racks(problem: Problem, replicas: Array) -> Count:
    """Counts partitions of which a rack has more replicas than it must, for the brokers of the racks."""
    brokers, there = problem.brokers, replicas >= 0
    members, racks = there.sum(axis=1), np.where(there, brokers.rack[replicas], -1)
    together = (racks[:, :, None] == racks[:, None, :]).sum(axis=2)
    hosts = np.bincount(brokers.rack[brokers.live & ~brokers.retiring & ~brokers.excluded], minlength=1)
    bad = np.zeros(len(replicas), bool)
    for factor in np.unique(members):
        if factor == 0:
            continue
        rows = members == factor
        level = next((n for n in range(1, factor + 1) if np.minimum(hosts, n).sum() >= factor), factor)
        full = max(1, factor - np.minimum(hosts, level - 1).sum())
        mine, valid = together[rows], there[rows]
        at_level = (valid & (mine >= level)) / np.maximum(mine, 1)
        bad[rows] = ((mine > level) & valid).any(axis=1) | (at_level.sum(axis=1) > full + 0.5)
    found = np.nonzero(bad)[0]
    return Count(Goal.RACKS, len(found), 0.0, tuple(found[:NAMED_MAX].tolist()))


def _below(goal: Goal, sums: Array, bound: Array, judged: Array) -> Count:
    """Counts brokers above a bound; ``judged``: the brokers that the goal is about."""
    shares = np.where(judged & np.isfinite(bound), sums / np.maximum(bound, 1e-300), 0.0)
    return _count(goal, shares > 1 + ROUNDING, float(shares.max(initial=0.0)))


def _even(
    goal: Goal,
    problem: Problem,
    sums: Array,
    capacity: Array | None,
    spread: float,
    most: Array | None = None,
    *,
    whole: bool = False,
    upper_only: bool = False,
) -> Count:
    """Counts hosts that are further from their share of the mean than ``spread`` allows.

    ``whole``: counts, whose bounds are rounded outwards. ``most``: the hard bound, which narrows the bounds.
    """
    brokers = problem.brokers
    hosts = brokers.live & ~brokers.retiring & ~brokers.excluded
    counted = ~(brokers.live & ~brokers.retiring & brokers.excluded)
    total = sums[counted].sum()
    if not hosts.any() or total <= 0:
        return Count(goal, 0, 0.0)
    known = capacity is not None and bool(np.isfinite(capacity[hosts]).all()) and capacity[hosts].sum() > 0
    weight = capacity[hosts] if known and capacity is not None else np.ones(int(hosts.sum()))
    mean = total * weight / weight.sum()
    high, low = mean * (1 + spread), mean * (1 - spread)
    if whole:
        high, low = np.ceil(high), np.floor(low)
    if most is not None:
        high = np.minimum(high, most[hosts])
        low = np.minimum(low, high)
    mine = sums[hosts]
    bad = np.zeros(len(hosts), bool)
    bad[hosts] = mine > high + ROUNDING * mean
    if not upper_only:
        bad[hosts] |= mine < low - ROUNDING * mean
    return _count(goal, bad, float((mine / np.maximum(mean, 1e-300)).max()))


def _topics(problem: Problem, replicas: Array) -> Count:
    """Counts replicas of a topic on one host above what the topic may have there; ``at`` has places of topics."""
    brokers, limits, there = problem.brokers, problem.limits, replicas >= 0
    hosts = brokers.live & ~brokers.retiring & ~brokers.excluded
    width, members = len(brokers.ids), there.sum(axis=1)
    topic = np.repeat(problem.topic, members).astype(np.int64)
    keys = topic * width + replicas[there]
    if width * len(problem.topics) <= TABLE_MAX:
        table = np.bincount(keys, minlength=width * len(problem.topics))
        used = np.nonzero(table)[0]
        counts = table[used]
    else:
        used, counts = np.unique(keys, return_counts=True)
    mean = np.bincount(problem.topic, members, len(problem.topics)) / max(1, int(hosts.sum()))
    gap_max = np.minimum(np.ceil(mean * limits.topic_factor), np.ceil(mean) + limits.topic_gap_max)
    upper = np.maximum(np.ceil(mean) + limits.topic_gap_min, gap_max)[used // width]
    over = np.where(hosts[used % width], np.maximum(counts - upper, 0), 0)
    at = np.unique(used[over > 0] // width)
    return Count(Goal.TOPICS, int(over.sum()), 0.0, tuple(at[:NAMED_MAX].tolist()))


def _count(goal: Goal, bad: Array, worst: float) -> Count:
    found = np.nonzero(bad)[0]
    return Count(goal, len(found), worst, tuple(found[:NAMED_MAX].tolist()))


class DiskCount(NamedTuple):
    """How full log directories are, beside their bounds.

    ``full``: places of those above the share that may be full. ``uneven``: how many are further from the share of
    their broker than the spread. ``highest``: the fullest one, as a share of what may be full (1: just reached).
    """

    full: tuple[int, ...]
    uneven: int
    highest: float


def counted(problem: Problem, disks: Disks, at: Array) -> DiskCount:
    """Counts the directories for replicas on ``at`` (int32, P x R, -1: unknown)."""
    count, known = len(disks.paths), at >= 0
    used = np.bincount(at[known], np.repeat(problem.size, known.sum(axis=1)), count)
    of_broker = np.bincount(disks.broker, used, len(problem.brokers.ids))[disks.broker]
    room = np.bincount(disks.broker, disks.capacity, len(problem.brokers.ids))[disks.broker]
    mean, share, spread = of_broker / room, used / disks.capacity, problem.limits.spread
    uneven = (share > mean * (1 + spread) + ROUNDING) | (share < mean * (1 - spread) - ROUNDING)
    full = np.nonzero(share > problem.limits.disk * (1 + ROUNDING))[0]
    return DiskCount(tuple(full.tolist()), int(uneven.sum()), float(share.max(initial=0.0) / problem.limits.disk))
