"""Judges whether regions are to be split or merged now: by the policy of their table, their load, and all else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from controller.procedures.engine import Engine
from controller.process.wording import counted, named
from controller.regions.environment import RegionsEnv
from controller.regions.loads import Load
from controller.regions.manager import Manager
from controller.regions.procedures.every import NAMES
from controller.regions.procedures.reshaping import METADATA, SPLIT
from regent_agent.protocol import INHERIT, SPLIT_KEY
from state_machines.regions.entities import Region, Table
from state_machines.regions.growth import Policy, Seen, policy_of
from state_machines.regions.levels import lacking
from state_machines.regions.placement import Cooldown
from state_machines.regions.states import RegionState, ServerState, TableState

FAILURES_MAX: Final = 1_000
"""Regions of which the latest failure is remembered; the oldest are forgotten first."""


class Judge:
    """Knows what keeps splits and merges from beginning by themselves, of the domain, a table and a region.

    ``suspended``: returns why nothing can be stored for now.
    """

    def __init__(
        self, env: RegionsEnv, engine: Engine[RegionsEnv], manager: Manager, suspended: Callable[[], str]
    ) -> None:
        self._env, self._engine, self._manager, self._suspended = env, engine, manager, suspended
        wanted = env.options
        self._default = Policy(
            wanted.split_size_bytes, wanted.split_requests_per_s, wanted.merge_size_bytes, wanted.split_regions_max
        )
        self._rests = Cooldown(wanted.split_rest_ms)
        self._all_rest_until_ms = env.now_ms() + wanted.split_rest_ms
        self._failures: dict[int, str] = {}

    def policy(self, table: Table) -> Policy:
        """Returns the policy of a table: its options go before the settings."""
        return policy_of(table.options, self._default)

    # -- what is in the way

    def of_domain(self) -> str:
        """Returns why nothing begins now, in any table; empty where it may."""
        env, model = self._env, self._env.model
        if why := self._suspended():
            return why
        if (lacks := lacking(model.marks.level, SPLIT)) is not None:
            return str(lacks)
        if not env.places:
            return "too few servers have come since the daemon became active (regions.servers_min)"
        if gone := [one for one in model.servers.values() if one.state is not ServerState.ONLINE]:
            return f"the crash of {named(gone)} is dealt with"
        if absent := [one for one in model.servers.values() if not one.here]:
            return f"{named(absent)} have not come to this daemon yet"
        if (online := len(model.servers)) < env.options.servers_min:
            return f"{counted(online, 'server')} online, and regions.servers_min is {env.options.servers_min}"
        if self._manager.silence.doubt(env.clock()) is not None:
            return "most servers do not poll"
        if (moving := len(model.transit)) >= (most := env.options.transit_max):
            return f"{counted(moving, 'region')} in transition, and regions.transit_max is {most}"
        return ""

    def changing(self) -> Mapping[str, int]:
        """Returns the tables that procedures work on as a whole, each with the pid of one."""
        return {NAMES.members(one).table: one.pid for one in self._engine.live() if one.kind.endswith("_table")}

    def of_table(self, table: Table, changing: Mapping[str, int]) -> str:
        """Returns why no region of a table is split or merged now; empty where one may be."""
        if table.state is not TableState.ENABLED:
            return f"the table is {table.state.name.lower()}"
        if pid := changing.get(table.name):
            return f"procedure {pid} works on the table"
        if self._env.model.damages.of_keys(table.name):
            return "there are gaps in its keys"
        if self._env.options.split != METADATA and (unable := self._env.lacking(INHERIT)):
            return f'servers {named(unable)} lack the feature "{INHERIT}"'
        return ""

    def seen(self, region: Region, load: Load | None) -> Seen:
        """Returns a region as it is judged."""
        model, server = self._env.model, region.server
        return Seen(
            *figures(load),
            is_open=region.state is RegionState.OPEN,
            moves=bool(region.pid),
            rests=self.rests_ms(region) > 0,
            inherits=region.id in model.sources,
            pinned=bool(model.marks.pinned(region.id)),
            names_keys=server is not None and SPLIT_KEY in server.features,
        )

    # -- rest

    def rests_ms(self, region: Region) -> int:
        """Returns how long a region rests still. Of one that an earlier term made it is not known when that was."""
        now_ms = self._env.now_ms()
        left_ms = self._rests.left_ms(region.id, now_ms)
        return max(left_ms, self._all_rest_until_ms - now_ms) if region.id <= self._env.former_number else left_ms

    def failure(self, region: Region) -> str:
        """Returns why the latest split or merge of a region failed in this term; empty where none did."""
        return self._failures.get(region.id, "")

    def made(self, regions: Iterable[int]) -> None:
        """Lets regions rest that a split or a merge has made."""
        for one in regions:
            self._rests.moved(one, self._env.now_ms())

    def failed(self, regions: Iterable[int], why: str) -> None:
        """Lets regions rest that were not split or merged, and remembers why."""
        for one in regions:
            self._rests.moved(one, self._env.now_ms())
            self._failures.pop(one, None)
            self._failures[one] = why
        while len(self._failures) > FAILURES_MAX:
            del self._failures[next(iter(self._failures))]


def figures(load: Load | None) -> tuple[int | None, float | None]:
    """Returns the size of a region, and its requests a second, as far as they are known."""
    if load is None:
        return None, None
    requests = None if load.reads_per_s is None else load.reads_per_s + (load.writes_per_s or 0.0)
    return load.size_bytes, requests
