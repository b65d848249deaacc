"""Sums what each broker is loaded with, for the counts of goals; shares no code with the search."""

from __future__ import annotations

from pipeline.planner.arrays import Array, np
from pipeline.planner.goals import Goal
from pipeline.planner.problem import Problem


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
