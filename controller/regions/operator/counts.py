"""Counts the regions of a model by their states, without a look at each one where that is possible."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from controller.regions.environment import RegionsEnv
from controller.regions.kinds import tables
from controller.regions.kinds.messages import TABLE_TASK, TableTask
from controller.regions.overdue import age_ms
from state_machines.procedures.record import Record
from state_machines.regions.changes import SETTLED, is_stranded
from state_machines.regions.model import Regions
from state_machines.regions.states import OWNED, RegionState, ServerState, TableState

KEPT_S: Final = 1.0
"""Shortest time between two looks at each region."""
KEPT_FACTOR: Final = 50
"""The same as a multiple of the time that the last look took: at most 2 % of the loop's time goes into it."""

MAY_BE_STRANDED: Final = frozenset({RegionState.OFFLINE, RegionState.CLOSED})
"""States of regions without an owner that are stranded where their table is enabled, and that are not in transition."""
STATE_OF: Final = attrgetter("state")
CHANGES: Final = frozenset(one.name for one in (tables.CREATE, tables.ENABLE, tables.DISABLE, tables.DELETE))
"""Kinds of procedures that change a table's state."""


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
        self._stranded = 0
        self._again_s = 0.0
        self._model: Regions | None = None

    def by_state(self, model: Regions) -> Counter[RegionState]:
        """Returns the number of regions in each state; without the open ones that wait for the crash of a server."""
        found = Counter(one.state for one in model.transit.values())
        owned = sum(len(server.regions) for server in model.servers.values())
        moving = sum(one.server is not None for one in model.transit.values())
        found[RegionState.OPEN] += owned - moving - self.waiting(model)
        self._look(model)
        return found + self._resting

    def waiting(self, model: Regions) -> int:
        """Returns the number of regions that wait for the crash of their server, see :func:`awaits_crash`."""
        left = sum(len(one.regions) for one in model.servers.values() if one.state is not ServerState.ONLINE)
        if not left:
            return 0
        return left - sum(
            one.server is not None and one.server.state is not ServerState.ONLINE and one.state is not RegionState.OPEN
            for one in model.transit.values()
        )

    def stranded(self, model: Regions) -> int:
        """Returns the number of regions of enabled tables that are not open, and for which nothing goes on."""
        self._look(model)
        return self._stranded + sum(map(is_stranded, model.transit.values()))

    def _look(self, model: Regions) -> None:
        """Looks at regions without an owner and without a procedure: of disabled tables, FAILED_OPEN, or stranded."""
        owned = sum(len(server.regions) for server in model.servers.values())
        moving = sum(one.server is not None for one in model.transit.values())
        if len(model.regions) - owned - (len(model.transit) - moving) <= 0:
            self._resting, self._stranded = Counter(), 0
            return
        now_s = self._clock()
        if model is not self._model or now_s >= self._again_s:
            transit = model.transit
            rest = [one for one in model.regions.values() if one.server is None and one.id not in transit]
            self._resting = Counter(map(STATE_OF, rest))
            self._stranded = stranded_at_rest(model) if any(self._resting[one] for one in MAY_BE_STRANDED) else 0
            self._model = model
            self._again_s = self._clock() + max(KEPT_S, KEPT_FACTOR * (self._clock() - now_s))


def stranded_at_rest(model: Regions) -> int:
    """Counts stranded regions without an owner; tables that are not enabled cost nothing."""
    tables = [one.regions for one in model.tables.values() if one.state is TableState.ENABLED]
    offline, closed = RegionState.OFFLINE, RegionState.CLOSED
    resting = ([one for one in some if one.server is None and not one.pid] for some in tables)
    return sum(one.state is closed or one.state is offline for some in resting for one in some)


def halted(model: Regions, records: Iterable[Record]) -> list[str]:
    """Returns the tables that are on their way to another state, and that no procedure takes there."""
    found = {table.name for table in model.tables.values() if table.state not in SETTLED}
    if not found:
        return []
    for record in records:
        if record.kind in CHANGES and not record.state.is_final:
            task: TableTask = TABLE_TASK.decode(record.data)
            found.discard(task.table)
    return sorted(found)


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
