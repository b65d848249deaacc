"""Describes a run as a script: its cluster, and its actions with their times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from tests.kit.simulation.script import Action, read


@dataclass(frozen=True)
class RegionPlan:
    """A whole run. ``servers``: the behaviour of each; ``fence``: how a dead server is kept from writing.

    ``old_servers``: so many of the first servers are of a version without features, until their second process.
    ``delay_ms``: how long the first operation of a batch waits; ``network_ms``, ``write_ms``: longest times of bytes on
    their way, and of each half of a write. ``balancer_period_ms``: 0 where daemons balance nothing by themselves.
    ``level``: of the store at its begin. ``transport``: how servers answer.
    """

    seed: int
    servers: tuple[str, ...] = ("good", "good", "good")
    daemons: int = 1
    fence: str = "lease"
    placement: str = "retain"
    servers_min: int = 1
    open_attempts_max: int = 0
    delay_ms: int = 50
    network_ms: int = 20
    write_ms: int = 20
    old_servers: int = 0
    balancer_period_ms: int = 0
    level: int = 2
    transport: str = "poll"
    actions: tuple[Action, ...] = field(default=())

    def with_actions(self, actions: Iterable[Action]) -> RegionPlan:
        """Returns the same cluster, with another script."""
        return replace(self, actions=tuple(actions))

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}",
            f"servers {' '.join(self.servers)}",
            f"daemons {self.daemons}",
            f"fence {self.fence}",
            f"placement {self.placement}",
            f"servers_min {self.servers_min}",
            f"open_attempts_max {self.open_attempts_max}",
            f"delay_ms {self.delay_ms}",
            f"network_ms {self.network_ms}",
            f"write_ms {self.write_ms}",
            f"old_servers {self.old_servers}",
            f"balancer_period_ms {self.balancer_period_ms}",
            f"level {self.level}",
            f"transport {self.transport}",
            *map(str, self.actions),
        ]
        return "\n".join(lines) + "\n"


def parse(text: str) -> RegionPlan:
    """Parses the text that ``str`` of a plan gives; raises ValueError."""
    settings, actions = read(text, ["seed"])
    first = {name: words[0] for name, words in settings.items() if words}
    numbers = (
        *("seed", "daemons", "servers_min", "open_attempts_max", "delay_ms", "network_ms", "write_ms"),
        *("old_servers", "balancer_period_ms", "level"),
    )
    known: dict[str, object] = {name: int(first[name]) for name in numbers if name in first}
    known |= {name: first[name] for name in ("fence", "placement", "transport") if name in first}
    if "servers" in settings:
        known["servers"] = tuple(settings["servers"])
    return RegionPlan(actions=actions, **known)  # type: ignore[arg-type]


UNRECORDED: Final = frozenset({"copy-store", "restore-store", "ignore-locks", "spoil", "lose-row", "double-row"})
"""Faults after which a store is not what the daemons' journals say: it went back, was written by two, or damaged."""


def audible(plan: RegionPlan) -> RegionPlan:
    """Returns a plan without the faults that no journal knows of."""
    return plan.with_actions(one for one in plan.actions if one.verb not in UNRECORDED)
