"""Measures the planner of replicas: ``python -m benchmarks.planner_speed``. It needs NumPy and Numba, and no Spark.

The first table has the CPU seconds of a search, without its compilation, for clusters of the sizes that LinkedIn
published times of Cruise Control for (cruise-control issue 1592), and for its random test cluster. The second table has
the bytes that the best of several seeds moves, over the fewest that any plan can move.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Final, NamedTuple

from pipeline.planner.arrays import Array, np
from pipeline.planner.planning import Planned, attempt, planned
from pipeline.planner.problem import Brokers, PlanLimits, Problem

RACKS: Final = 10
FACTOR: Final = 3
CROWDED_SHARE: Final = 0.006
"""Partitions of the skewed start that have two replicas on one rack."""


class Size(NamedTuple):
    """The size of a cluster, and the goal for the CPU seconds of its search."""

    replicas: int
    brokers: int
    topics: int
    cpu_s_max: float


SIZES: Final = (Size(50_001, 40, 3_000, 0.1), Size(1_300_000, 270, 10_500, 1.0), Size(2_800_000, 215, 3_500, 2.0))
STARTS: Final = ("balanced", "skewed", "full", "two disks")
BYTES_RATIO_MAX: Final = 1.15


def main() -> None:
    """Prints both tables, and one JSON object to standard output."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner_speed", description=__doc__)
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="how many of the sizes, the smallest first")
    parser.add_argument("--seeds", type=int, default=8, help="of the second table")
    parser.add_argument("--bytes-size", type=int, default=0, help="number of the size of the second table")
    chosen = parser.parse_args()
    began = time.process_time()
    attempt(cluster(Size(600, 20, 3, 0), "skewed"), 0)
    compiling_s = round(time.process_time() - began, 1)
    speed = [measured(size) for size in SIZES[: chosen.sizes]]
    costs = [moved(SIZES[chosen.bytes_size], start, chosen.seeds) for start in STARTS]
    print(json.dumps({"compilingCpuS": compiling_s, "speed": speed, "bytes": costs}, indent=2))


def measured(size: Size) -> dict[str, object]:
    """Returns the CPU seconds of one search from a skewed start, and of all around it."""
    problem = cluster(size, "skewed")
    began = time.perf_counter()
    found = planned(problem, 1)
    return {
        "replicas": size.replicas,
        "brokers": size.brokers,
        "searchCpuS": round(found.best.cpu_s, 2),
        "goalCpuS": size.cpu_s_max,
        "wholeS": round(time.perf_counter() - began, 2),
        "partitionsChanged": len(found.rows),
        **broken(found),
    }


def moved(size: Size, start: str, seeds: int) -> dict[str, object]:
    """Returns the bytes of the best seed over the fewest possible; 1 where nothing has to move and nothing does."""
    found = planned(cluster(size, start), seeds)
    ratios = [1.0 if one.bytes_moved == 0 else one.bytes_moved / max(found.bytes_min, 1.0) for one in found.tried]
    total = float((found.problem.size * found.problem.factors).sum())
    return {
        "start": start,
        "best": round(min(ratios), 3),
        "worst": round(max(ratios), 3),
        "goal": BYTES_RATIO_MAX,
        "movedShare": round(found.best.bytes_moved / total, 4),
        "leastShare": round(found.bytes_min / total, 4),
        **broken(found),
    }


def broken(found: Planned) -> dict[str, object]:
    """Returns how often goals are broken before and after."""
    before, after = found.before, found.best.certificate
    return {
        "hardBroken": f"{before.hard_broken} -> {after.hard_broken}",
        "softBroken": f"{before.soft_broken} -> {after.soft_broken}",
    }


def cluster(size: Size, start: str, seed: int = 1) -> Problem:
    """Makes a cluster: a few large topics and many small ones, loads over two orders of magnitude.

    ``start``: ``balanced``, evenly dealt; ``skewed``, brokers at a tenth to three times the mean, one of them dead;
    ``full``, brokers at 0.7 to 1.3 times the mean, and disks that are full to 90 % of what they may be; ``two disks``,
    the same with disks of two sizes, which pull bytes and counts apart.
    """
    rng = np.random.default_rng(seed)
    counts = _topic_sizes(rng, size)
    rows = int(counts.sum())
    topic = np.repeat(np.arange(len(counts)), counts).astype(np.int32)
    weights = 0.7 + 0.6 * rng.random(size.brokers)
    if start == "skewed":
        weights = 0.1 + 3 * rng.random(size.brokers) ** 2
    replicas = _placed(rng, rows, weights, start)
    sizes = rng.lognormal(0, 1, rows) * 1e9
    ins = sizes / 1e5 * rng.lognormal(0, 0.5, rows)
    nothing, unknown = np.zeros(size.brokers, bool), np.full(size.brokers, np.inf)
    live = ~nothing
    disk = unknown
    if start == "skewed":
        live[3] = False
    if start in ("full", "two disks"):
        wide = np.where(np.arange(size.brokers) % 2, 1.2, 0.8) if start == "two disks" else np.ones(size.brokers)
        disk = wide * sizes.sum() * FACTOR / size.brokers / (0.9 * PlanLimits().disk)
    brokers = Brokers(
        np.arange(size.brokers, dtype=np.int32), (np.arange(size.brokers) % RACKS).astype(np.int32), live,
        nothing, nothing, disk, unknown, unknown, unknown,
    )  # fmt: skip
    return Problem(
        "benchmark", tuple(f"t{i}" for i in range(len(counts))), topic,
        (np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)).astype(np.int32), replicas, sizes, ins,
        ins * rng.lognormal(0.5, 0.5, rows), np.zeros(rows, np.int8), brokers,
        replace(PlanLimits(), replicas_max=20_000),
    )  # fmt: skip


def _topic_sizes(rng: Array, size: Size) -> Array:
    """Returns the partitions of each topic, which sum up to those of the cluster."""
    shares = rng.pareto(1.2, size.topics) + 0.2
    counts = np.maximum(1, shares / shares.sum() * (size.replicas // FACTOR - size.topics)).astype(np.int64)
    counts[0] += max(0, size.replicas // FACTOR - counts.sum())
    return counts


def _placed(rng: Array, rows: int, weights: Array, start: str) -> Array:
    """Returns replicas on distinct racks; brokers of a rack get theirs by weight, or one after the other."""
    brokers = len(weights)
    first = np.arange(rows) % RACKS if start == "balanced" else rng.integers(0, RACKS, rows)
    replicas = np.empty((rows, FACTOR), np.int32)
    for place in range(FACTOR):
        racks = (first + place * 3) % RACKS
        for rack in range(RACKS):
            mine, members = np.nonzero(racks == rack)[0], np.arange(rack, brokers, RACKS)
            if start == "balanced":
                replicas[mine, place] = members[(np.arange(len(mine)) + place) % len(members)]
            else:
                share = weights[members] / weights[members].sum()
                replicas[mine, place] = rng.choice(members, len(mine), p=share)
    if start == "skewed":
        crowded = np.nonzero(rng.random(rows) < CROWDED_SHARE)[0]
        beside = (replicas[crowded, 0] + RACKS) % (brokers // RACKS * RACKS)
        replicas[crowded, 1] = np.where(beside == replicas[crowded, 0], replicas[crowded, 1], beside)
    return replicas


if __name__ == "__main__":
    main()
