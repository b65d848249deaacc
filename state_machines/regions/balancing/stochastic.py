"""Balances regions by all their costs (HBase ``StochasticLoadBalancer``): one greedy pass, then random steps.

HBase begins with random steps, and needs many times as many of them to come as far. The greedy pass looks at tables and
servers one after the other, so not all that it moves is worth it: what is not is left out in the end.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from state_machines.regions.balancing.cluster import MOVES_MAX, BalancePlan, Cluster, Move
from state_machines.regions.balancing.costs import WHY, framed, judged, mean
from state_machines.regions.balancing.greedy import spread
from state_machines.regions.balancing.ordering import Ordering
from state_machines.regions.balancing.placing import Placing
from state_machines.regions.balancing.steps import walk

STEPS_MAX: Final = 200_000
STEPS_OF_PAIR: Final = 100
"""Steps for each pair of a region and a server: a few regions need fewer."""
GAIN_MIN: Final = 0.001
"""By how much a plan lowers the mean of the costs: loads never stand still, and regions must not move for ever."""


class Stochastic(Struct, tag=True, frozen=True, gc=False):
    """Makes plans with at most ``moves_max`` moves, after at most ``steps_max`` random steps.

    ``gain_min``: a plan that lowers the mean of the costs by less has no moves.
    """

    steps_max: int = STEPS_MAX
    moves_max: int = MOVES_MAX
    gain_min: float = GAIN_MIN

    def plan(self, cluster: Cluster, seed: int) -> BalancePlan:
        """Returns moves that lower the total of the costs; the same arguments give the same plan."""
        frame = framed(cluster)
        before = judged(cluster, frame, frame.home)
        placing = Placing(cluster, frame, frame.home)
        if placing.servers < 2 or not placing.free:
            return BalancePlan((), before, before)
        spread(placing)
        walk(placing, min(self.steps_max, STEPS_OF_PAIR * len(placing.free) * placing.servers), seed)
        wanted = placing.where[:]
        placing.go_home()
        order = Ordering(placing, wanted, self.moves_max)
        order.run()
        names = [cluster.servers[one] for one in frame.targets]
        where = frame.home[:]
        moves = list[Move]()
        for one, cause in order.made:
            where[one] = wanted[one]
            moves.append(Move(cluster.ids[frame.rows[one]], names[frame.home[one]], names[where[one]], WHY[cause]))
        after = judged(cluster, frame, where)
        if mean(before) - mean(after) < self.gain_min:
            return BalancePlan((), before, before)
        return BalancePlan(tuple(moves), before, after)
