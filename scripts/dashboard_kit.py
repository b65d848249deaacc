"""Parts of the tables of Grafana's dashboards: panels, thresholds, and queries of the chosen daemons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

CONTROLLER: Final = "kafka_controller_kafkacontroller"
STATS: Final = "kafka_controller_controllerstats"
QUANTILES_OVER: Final = "5m"
"""Events are rare in a quiet cluster, so a shorter time would leave holes between them."""
ALL: Final = '{job="$job", instance=~"$instance"}'


Steps = tuple[tuple[float | None, str], ...]
"""Thresholds of a panel: each value from which a colour holds, the first without."""
Values = Mapping[int, str]
"""Words that stand for single values of a panel."""
NEUTRAL: Final[Steps] = ((None, "blue"),)
"""Of a panel without a bad value."""
TROUBLE: Final[Steps] = ((None, "green"), (1, "red"))
CARE: Final[Steps] = ((None, "green"), (1, "orange"))
FEW: Final[Steps] = ((None, "red"), (1, "green"))
"""Of a number that is bad at 0."""
WAITS: Final[Steps] = ((None, "green"), (300, "orange"), (900, "red"))
"""Of waits: RegentProceduresWithoutProgress fires after 15 minutes."""
WELL: Final[Values] = {0: "none"}
NO_VALUES: Final[Values] = {}
UNWANTED: Final = 'cause=~"vain|other"'
"""Causes of waits that no operator and no queue explains."""


@dataclass(frozen=True)
class Panel:
    """A panel: its queries by legend. ``kind`` is Grafana's name of the visualisation.

    ``names``: a number shows the legends of its series instead of their values.
    """

    title: str
    text: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 7
    steps: Steps = NEUTRAL
    values: Values = field(default_factory=dict)
    names: bool = False


@dataclass(frozen=True)
class Dashboard:
    """A page: panels by the title of their row."""

    uid: str
    title: str
    text: str
    rows: dict[str, list[Panel]] = field(default_factory=dict)


def of(metric: str, labels: str = "") -> str:
    """Returns the metric of the chosen daemons."""
    return metric + (ALL if not labels else f'{{job="$job", instance=~"$instance", {labels}}}')


def largest(metric: str) -> str:
    """Returns a number of the cluster, which only the active daemon has."""
    return f"max({of(metric)})"


def rate(metric: str, by: str = "instance") -> str:
    """Returns the rate per second."""
    return f"sum by ({by}) (rate({of(metric)}[$__rate_interval]))"


def by_broker(metric: str) -> str:
    """Returns the metric of each broker, with the label ``broker`` in words."""
    return f'label_replace(max by (broker_id) ({of(metric)}), "broker", "broker $1", "broker_id", "(.+)")'


def none_of(label: str, value: int = 0) -> str:
    """Returns a zero line for events that have no series before the first one."""
    return f'label_replace(vector({value}), "{label}", "none", "", "")'


def quantiles(metric: str, by: str = "") -> dict[str, str]:
    """Returns median and 99 % of a histogram."""
    labels = f"le, {by}" if by else "le"
    suffix = f" {{{{{by}}}}}" if by else ""
    found = f"sum by ({labels}) (rate({of(f'{metric}_bucket')}[{QUANTILES_OVER}]))"
    return {f"{name}{suffix}": f"histogram_quantile({q}, {found})" for name, q in (("median", 0.5), ("99 %", 0.99))}


def stat(
    title: str,
    text: str,
    query: str,
    steps: Steps = NEUTRAL,
    values: Values = NO_VALUES,
    *,
    unit: str = "short",
    width: int = 3,
) -> Panel:
    """Makes a panel with one number."""
    return Panel(title, text, {"": query}, unit, "stat", width, 4, steps, values)


def named(title: str, text: str, queries: dict[str, str], width: int, steps: Steps = TROUBLE) -> Panel:
    """Makes a panel with the names of series, or "none"."""
    return Panel(title, text, queries, "short", "stat", width, 4, steps, names=True)
