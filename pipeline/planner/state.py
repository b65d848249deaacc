"""Declares the state of a search, a few wide arrays, and derives the bounds: loads of brokers, replicas of topics."""

from __future__ import annotations

from typing import Final, NamedTuple

from pipeline.planner.arrays import Array, np
from pipeline.planner.problem import Problem

FACTOR: Final = 0
TOPIC: Final = 1
FREE: Final = 2
"""Columns of ``part``: the replication factor, the place of the topic, and 1 for a partition that may move."""
RACK: Final = 0
HOST: Final = 1
LEFT: Final = 2
"""Columns of ``who``: the rack, 1 for a broker that may take replicas, 1 for one that all replicas leave."""
LOAD: Final = 0
LOW: Final = 1
HIGH: Final = 2
CAP: Final = 3
SCALE: Final = 4
WEIGHT: Final = 5
TOP: Final = 6
FLOOR: Final = 7
LAYERS: Final = 8
"""Layers of ``book``: loads, their bounds, 1 divided by the mean, 1 for what binds in this phase, and the highest and
lowest loads that this phase allows (infinite where nothing binds)."""
REASON: Final = 0
ORDER: Final = 1
"""Columns of ``notes``: the goal that first moved the partition, or -1, and the number of its last change."""


class State(NamedTuple):
    """Arrays of the search. P partitions, R replicas at most, B brokers, T topics, 8 kinds of load.

    Changed: ``replicas`` int32 P x R; ``cells`` int32 C x B, replicas by broker of topics that can have too many on
    one; ``book`` float64 8 x B x 8; ``notes`` int64 P x 2; ``ticks`` uint64 2, the state of the random numbers and the
    count of changes.

    Read: ``origin`` int32 P x R; ``part`` int32 P x 3; ``rows`` float64 P x 4, the size (1: the mean), bytes in, bytes
    out of the leader, CPU of a follower; ``who`` int32 B x 3; ``rule`` int32 (R + 1) x 2, by replication factor how
    many replicas a rack may have, and how many racks so many; ``tops`` int32 T x 2, the row of ``cells`` or -1, and
    how many replicas of the topic one broker may have.
    """

    replicas: Array
    cells: Array
    book: Array
    notes: Array
    ticks: Array
    origin: Array
    part: Array
    rows: Array
    who: Array
    rule: Array
    tops: Array


COUNT: Final = 0
DISK: Final = 1
IN: Final = 2
POTENTIAL: Final = 3
LEADERS: Final = 4
CPU: Final = 5
OUT: Final = 6
LEADER_IN: Final = 7
KINDS: Final = 8
"""Kinds of load, the columns of all arrays by broker."""


class Bounds(NamedTuple):
    """Bounds by broker and kind of load (float64, B x 8).

    ``low`` and ``high`` are what the soft goals ask for; ``cap`` is what a hard goal allows. ``scale`` is 1 divided by
    the broker's share of the mean.
    """

    low: Array
    high: Array
    cap: Array
    scale: Array


def loads_of(problem: Problem, replicas: Array) -> Array:
    """Returns the loads of all brokers (float64, B x 8)."""
    rows, places = np.nonzero(replicas >= 0)
    leads = (places == 0).astype(np.float64)
    each = np.empty((len(rows), KINDS))
    outs = leader_out(problem)[rows]
    ins = problem.bytes_in[rows]
    each[:, COUNT], each[:, DISK], each[:, IN], each[:, POTENTIAL] = 1, problem.size[rows], ins, outs
    each[:, LEADERS], each[:, OUT], each[:, LEADER_IN] = leads, leads * outs, leads * ins
    each[:, CPU] = ins * np.where(leads > 0, 1.0, problem.limits.follower_cpu)
    loads = np.zeros((len(problem.brokers.ids), KINDS))
    at = replicas[rows, places]
    for kind in range(KINDS):
        loads[:, kind] = np.bincount(at, each[:, kind], len(loads))
    return loads


def leader_out(problem: Problem) -> Array:
    """Returns what the leader of each partition sends a second, to consumers and to followers (float64, P)."""
    return problem.bytes_out + problem.bytes_in * (problem.factors - 1)


def bounds_of(problem: Problem, loads: Array) -> Bounds:
    """Returns the bounds for loads that only move between brokers.

    Brokers with capacities share a load by them; without, evenly. What is on excluded brokers stays out of the means.
    """
    brokers, limits = problem.brokers, problem.limits
    hosts = brokers.hosts
    outside = brokers.live & brokers.excluded & ~brokers.retiring
    caps = np.full((len(hosts), KINDS), np.inf)
    caps[:, COUNT] = limits.replicas_max
    caps[:, DISK], caps[:, IN] = brokers.disk * limits.disk, brokers.bytes_in * limits.bytes_in
    caps[:, OUT], caps[:, CPU] = brokers.bytes_out * limits.bytes_out, brokers.cpu * limits.cpu
    shares = {DISK: brokers.disk, IN: brokers.bytes_in, OUT: brokers.bytes_out, CPU: brokers.cpu}
    low, high, scale = np.zeros(caps.shape), np.full(caps.shape, np.inf), np.zeros(caps.shape)
    for kind in range(KINDS):
        total = loads[~outside, kind].sum()
        given = shares.get(kind)
        if given is None or not np.isfinite(given[hosts]).all() or given[hosts].sum() <= 0:
            given = np.ones(len(hosts))
        mean = total * given / max(given[hosts].sum(), 1e-300)
        if total <= 0:
            continue
        scale[:, kind] = 1 / np.maximum(mean, 1e-300)
        low[hosts, kind], high[hosts, kind] = (mean * (1 - limits.spread))[hosts], (mean * (1 + limits.spread))[hosts]
    for kind in (COUNT, LEADERS):
        low[:, kind], high[:, kind] = np.floor(low[:, kind]), np.ceil(high[:, kind])
    low[:, [POTENTIAL, LEADER_IN]] = 0
    high[:, POTENTIAL] = brokers.bytes_out * limits.bytes_out
    high[~hosts] = np.inf
    np.minimum(high, caps, out=high, where=hosts[:, None])
    np.minimum(low, high, out=low)
    return Bounds(low, high, caps, scale)


def racks_allowed(problem: Problem) -> tuple[Array, Array]:
    """Returns, by replication factor, how many replicas one rack may have, and how many racks may have so many.

    Both are int32 of length R + 1. They are as even as the brokers of racks allow.
    """
    hosts = problem.brokers.hosts
    by_rack = np.bincount(problem.brokers.rack[hosts], minlength=1)
    factors = problem.replicas.shape[1] + 1
    most, racks = np.ones(factors, np.int32), np.full(factors, factors, np.int32)
    for factor in range(1, factors):
        level = 1
        while level < factor and np.minimum(by_rack, level).sum() < factor:
            level += 1
        most[factor] = level
        racks[factor] = max(1, factor - int(np.minimum(by_rack, level - 1).sum()))
    return most, racks


def topic_bounds(problem: Problem) -> tuple[Array, Array]:
    """Returns how many replicas of each topic one broker may have, and the topics that can be above (int32, T)."""
    limits, count = problem.limits, len(problem.topics)
    replicas = np.bincount(problem.topic, problem.factors, count)
    partitions = np.bincount(problem.topic, minlength=count)
    mean = replicas / max(1, int(problem.brokers.hosts.sum()))
    even = np.ceil(mean)
    wide = np.minimum(np.ceil(mean * limits.topic_factor), even + limits.topic_gap_max)
    upper = np.maximum(even + limits.topic_gap_min, wide).astype(np.int32)
    return upper, np.nonzero(partitions > upper)[0].astype(np.int32)
