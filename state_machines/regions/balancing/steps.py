"""Improves a placement by random steps: a region moves, or two change places, wherever that lowers the total."""

from __future__ import annotations

from typing import Final

from state_machines.regions.balancing.placing import LEAST_GAIN, Placing

PRIME: Final = 0x7FFFFFFF
FACTOR: Final = 48_271
"""Of the draws (Lehmer): the core has no randomness of its own, and the same seed gives the same steps."""
COIN_BITS: Final = 11


def walk(placing: Placing, steps: int, seed: int) -> int:
    """Tries so many steps, each of which has to lower the total; returns how many did.

    A half of them are moves, the others swaps: once all servers have as many regions as they are to have, loads change
    by swaps alone.
    """
    free, where, servers, bound = placing.free, placing.where, placing.servers, placing.bound
    if not free or servers < 2:
        return 0
    taken, count, draw = 0, len(free), seed % (PRIME - 1) + 1
    for _ in range(steps):
        draw = draw * FACTOR % PRIME
        one = free[draw % count]
        draw = draw * FACTOR % PRIME
        if draw & 1:
            to = (draw >> COIN_BITS) % servers
            if to == where[one]:
                continue
            gain = placing.fixed(one, to)
            if gain < bound[one] and gain + placing.by_load(one, to) < -LEAST_GAIN:
                placing.move(one, to)
                taken += 1
        else:
            other = free[(draw >> COIN_BITS) % count]
            to = where[other]
            if to == where[one]:
                continue
            gain = placing.fixed_of_swap(one, other)
            if gain < bound[one] + bound[other] and gain + placing.by_load(one, to, other) < -LEAST_GAIN:
                placing.swap(one, other)
                taken += 1
    return taken
