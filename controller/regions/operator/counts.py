"""Counts the regions of a model by their states, without a look at each one where that is possible."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from controller.regions.environment import RegionsEnv
from controller.regions.overdue import age_ms
from state_machines.procedures.record import Record
from state_machines.regions.model import Regions
from state_machines.regions.states import OWNED, RegionState, ServerState

KEPT_S: Final = 1.0
"""Shortest time between two looks at each region."""
KEPT_FACTOR: Final = 50
"""The same as a multiple of the time that the last look took: at most 2 % of the loop's time goes into it."""


class Transit(NamedTuple):
    """Regions in transition. ``overdue``: those that are in it for too long; ``oldest_ms``: age of the oldest."""

    regions: int
    overdue: int
    oldest_ms: int


class RegionCounts:
    """Counts a model's regions. Those in transition and those with an owner are known; the rest rarely exists."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._resting: Counter[RegionState] = Counter()
        self._again_s = 0.0
        self._model: Regions | None = None

    def by_state(self, model: Regions) -> Counter[RegionState]:
        """Returns the number of regions in each state."""
        found = Counter(one.state for one in model.transit.values())
        owned = sum(len(server.regions) for server in model.servers.values())
        moving = sum(one.server is not None for one in model.transit.values())
        found[RegionState.OPEN] += owned - moving
        rest = len(model.regions) - owned - (len(model.transit) - moving)
        return found + self._at_rest(model) if rest > 0 else found

    def _at_rest(self, model: Regions) -> Counter[RegionState]:
        """Counts regions without an owner and without a procedure: of disabled tables, or FAILED_OPEN."""
        now_s = self._clock()
        if model is not self._model or now_s >= self._again_s:
            transit = model.transit
            self._resting = Counter(
                one.state for one in model.regions.values() if one.server is None and one.id not in transit
            )
            self._model = model
            self._again_s = self._clock() + max(KEPT_S, KEPT_FACTOR * (self._clock() - now_s))
        return self._resting


def transit_of(env: RegionsEnv, records: Mapping[int, Record], overdue_ms: int) -> Transit:
    """Counts the regions in transition by age."""
    ages = [age_ms(one, records.get(one.pid), env) for one in env.model.transit.values()]
    return Transit(len(ages), sum(age > overdue_ms for age in ages), max(ages, default=0))


def servers_of(model: Regions) -> Counter[str]:
    """Counts processes of servers by state."""
    return Counter(
        "leaving" if one.leaving and one.state is ServerState.ONLINE else one.state.name.lower()
        for one in model.servers.values()
    )


def owned_by_state(model: Regions, server: tuple[str, int]) -> Counter[RegionState]:
    """Counts the regions that a process has or may have."""
    return Counter(one.state for one in model.servers[server].regions.values() if one.state in OWNED)
