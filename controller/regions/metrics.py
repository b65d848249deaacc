"""Counts and measures regions and their servers, and exposes that to Prometheus.

No metric has a label for a region or a table.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.metrics import Timer, by_label, counter, gauge, histogram
from state_machines.procedures.states import State
from state_machines.procedures.transition import Transition
from state_machines.regions.growth import Bar
from state_machines.regions.states import RegionState

log = logging.getLogger("regent.metrics")

CRASH: Final = "crash"
"""Kind of the procedures that deal with crashed servers."""
WAITING: Final = "waiting"
"""Label of regions that are stored as open, and wait for the crash of their server."""
STATES: Final = (*(state.name.lower() for state in RegionState), WAITING)
BARS: Final = tuple(bar.value for bar in Bar)
SERVER_STATES: Final = ("online", "leaving", "crashed", "fenced")


@dataclass
class RegionCounters:
    """Counts that only grow, over all terms of the process."""

    terms: int = 0
    batches: int = 0
    operations: int = 0
    reports: int = 0
    results: int = 0
    journal_rows: int = 0
    journal_rows_lost: int = 0
    journal_bytes: int = 0
    journal_failing: str = ""
    refusals: Counter[str] = field(default_factory=Counter)
    hellos_refused: Counter[str] = field(default_factory=Counter)
    loads_ignored: int = 0
    """Loads that came of regions which their server does not have open."""
    node_faults: Counter[str] = field(default_factory=Counter)
    """Znodes of regions in transition that did not go as they should, by the cause.

    *timed_out*: one was taken from its server; *refused*: ZooKeeper does not take or show it; *late*: a server was
    faster than a write of the daemon, or may be; *unreadable*: it holds something else.
    """
    grown: Counter[str] = field(default_factory=Counter)
    """Splits and merges that began by themselves, by their cause."""
    balances: int = 0
    balance_cost: float = 0.0
    """Cost of the placement that the latest balance of this process found."""
    balance_moves: int = 0
    balance_moves_left_out: Counter[str] = field(default_factory=Counter)
    """Planned moves that were of no use any more, by their cause."""
    balance_refusals: Counter[str] = field(default_factory=Counter)
    """Balances that could not begin, by what kept them."""
    submitted: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    times: defaultdict[str, Timer] = field(default_factory=lambda: defaultdict(Timer))

    @property
    def crashes(self) -> Timer:
        """Returns the times of crash handling, from the start of a procedure to its end."""
        return self.times[CRASH]

    def moved(self, moved: Sequence[Transition]) -> None:
        """Counts durable changes of procedures."""
        for before, after in moved:
            if before is None:
                self.submitted[after.kind] += 1
            if after.state.is_final and (before is None or not before.state.is_final):
                self.times[after.kind].record(max(0, after.updated_ms - after.submitted_ms) / 1000)
                if after.state is not State.SUCCESS:
                    self.failed[after.kind] += 1


@dataclass(frozen=True, slots=True)
class RegionGauges:
    """The state at one moment; numbers are zero on a daemon that is not active."""

    active: bool = False
    suspended: bool = False
    """Whether the lease on the store ran out, and the term waits."""
    epoch: int = 0
    level: int = 0
    places: bool = False
    connections: int = 0
    tables: int = 0
    regions: Mapping[str, int] = field(default_factory=dict)
    """Those in each state."""
    in_transition: int = 0
    overdue: int = 0
    stranded: int = 0
    """Those of enabled tables that are not open, and that no procedure moves."""
    tables_halted: int = 0
    damaged_rows: int = 0
    """Stored rows that cannot be used."""
    gaps: int = 0
    """Ranges of keys that no region has, or several."""
    oldest_transition_s: float = 0.0
    unplaced: int = 0
    servers: Mapping[str, int] = field(default_factory=dict)
    """Processes in each state."""
    procedures: int = 0
    procedures_unusable: int = 0
    procedures_parked: int = 0
    unsplit: Mapping[str, int] = field(default_factory=dict)
    """Regions that are to be split, and are not, by what is in the way."""
    parents: int = 0
    """Regions that were split or merged, and whose data is not discarded yet."""
    oldest_parent_s: float = 0.0
    snapshots: int = 0
    work: int = 0
    """Pieces of work on regions that are under way."""
    work_failing: int = 0
    """Those whose latest attempt failed."""
    balancer_off: bool = False
    uneven: bool = False
    """A server misses its share of regions by more than the slop."""
    fewest: int = 0
    most: int = 0
    """Regions of the servers with the fewest and the most, of those that may get regions."""


class RegionsCollector(Collector):
    """Collects all metrics of the domain.

    ``gauges``: returns the present values on the event loop, without a wait. Its failure costs the gauges, never the
    scrape.
    """

    def __init__(self, counters: RegionCounters, gauges: Callable[[], RegionGauges]) -> None:
        self._counters = counters
        self._values = gauges

    def describe(self) -> Iterable[Metric]:
        """Yields nothing, because the registration of the collector must not scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics of one scrape."""
        try:
            found = self._values()
        except Exception:
            log.exception("a scrape shows zeros because the regions' state could not be read")
            found = RegionGauges()
        yield from _gauges(found)
        yield from _counters(self._counters)


def _gauges(g: RegionGauges) -> Iterator[Metric]:
    yield gauge("regent_regions_active", "1 on the daemon that assigns regions", float(g.active))
    yield gauge(
        "regent_regions_suspended",
        "1 while the active daemon stores and grants nothing, because ZooKeeper does not answer it",
        float(g.suspended),
    )
    yield gauge("regent_regions_epoch", "Epoch of the current term, 0 outside", g.epoch)
    yield gauge("regent_regions_level", "Level of the store, which operators raise after an upgrade", g.level)
    yield gauge("regent_regions_placing", "1 once enough servers have come", float(g.places))
    yield gauge("regent_regions_connections", "Open connections of servers and clients", g.connections)
    yield gauge("regent_regions_tables", "Tables", g.tables)
    yield _by_state("regent_regions", "Regions by state", STATES, g.regions)
    yield gauge("regent_regions_in_transition", "Regions in transition", g.in_transition)
    yield gauge("regent_regions_overdue", "Those in it longer than regions.transit_warning_ms", g.overdue)
    yield gauge("regent_regions_stranded", "Those of enabled tables that are not open and not moved", g.stranded)
    yield gauge("regent_regions_tables_halted", "Tables on their way that no procedure takes there", g.tables_halted)
    yield gauge("regent_regions_damaged_rows", "Stored rows that cannot be used, and are left out", g.damaged_rows)
    yield gauge("regent_regions_gaps", "Ranges of keys that no region has, or several", g.gaps)
    yield gauge("regent_regions_transition_age_seconds", "Age of the oldest transition", g.oldest_transition_s)
    yield gauge("regent_regions_unplaced", "Procedures that wait for a server that may get regions", g.unplaced)
    yield _by_state("regent_region_servers", "Processes of servers by state", SERVER_STATES, g.servers)
    yield gauge("regent_region_procedures", "Procedures that have not ended", g.procedures)
    yield gauge("regent_region_procedures_unusable", "Those that cannot go on", g.procedures_unusable)
    yield gauge("regent_region_procedures_parked", "Those that ended terms, and are not run", g.procedures_parked)
    yield _by_state("regent_regions_unsplit", "Regions that are to be split, and are not", BARS, g.unsplit, "why")
    yield gauge("regent_region_parents", "Regions that were split or merged, until their data is discarded", g.parents)
    yield gauge("regent_region_parents_age_seconds", "Age of the oldest, of this term at most", g.oldest_parent_s)
    yield gauge("regent_region_snapshots", "Snapshots of tables", g.snapshots)
    yield gauge("regent_region_work", "Pieces of work on regions that are under way", g.work)
    yield gauge("regent_region_balancer_off", "1 while operators have switched balances off", float(g.balancer_off))
    yield gauge("regent_regions_uneven", "1 while a server misses its share by more than the slop", float(g.uneven))
    yield gauge("regent_region_server_regions_min", "Regions of the server with the fewest", g.fewest)
    yield gauge("regent_region_server_regions_max", "Regions of the server with the most", g.most)
    yield gauge("regent_region_work_failing", "Those whose latest attempt failed", g.work_failing)


def _by_state(name: str, text: str, states: Iterable[str], counts: Mapping[str, int], label: str = "state") -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for state in states:
        family.add_metric([state], counts.get(state, 0))
    return family


def _counters(c: RegionCounters) -> Iterator[Metric]:
    yield counter("regent_regions_terms", "Terms this process began", c.terms)
    yield counter("regent_region_batches", "Batches of operations that were sent to servers", c.batches)
    yield counter("regent_region_operations", "Operations in them", c.operations)
    yield counter("regent_region_reports", "Reports of servers", c.reports)
    yield counter("regent_region_results", "Results in them", c.results)
    yield counter("regent_region_journal_rows", "Rows written to the regions' journal", c.journal_rows)
    yield counter("regent_region_journal_rows_lost", "Rows that are missing in it", c.journal_rows_lost)
    yield gauge("regent_region_journal_bytes", "Size of the regions' journal on disk", c.journal_bytes)
    yield gauge("regent_region_journal_failing", "1 while it cannot be written", float(bool(c.journal_failing)))
    yield by_label("regent_region_refusals", "Refused requests of servers and clients", "code", c.refusals)
    yield by_label("regent_region_hellos_refused", "Connections that ended at their Hello", "cause", c.hellos_refused)
    yield counter("regent_region_loads_ignored", "Loads of regions that their server does not have", c.loads_ignored)
    yield by_label("regent_region_node_faults", "Znodes that did not go as they should", "cause", c.node_faults)
    yield by_label("regent_region_reshapes", "Splits and merges that began by themselves", "cause", c.grown)
    yield counter("regent_region_balances", "Balances that have made a plan", c.balances)
    yield gauge("regent_region_balance_cost", "Cost that the latest of them found, 0 is even", c.balance_cost)
    yield counter("regent_region_balance_moves", "Moves of regions that balances have begun", c.balance_moves)
    yield by_label(
        "regent_region_balance_moves_left_out",
        "Planned moves that were of no use any more",
        "cause",
        c.balance_moves_left_out,
    )
    yield by_label("regent_region_balance_refusals", "Balances that could not begin", "cause", c.balance_refusals)
    yield by_label("regent_region_procedures_submitted", "Procedures that began", "kind", c.submitted)
    yield by_label("regent_region_procedures_failed", "Those that were rolled back", "kind", c.failed)
    yield histogram("regent_region_procedure_seconds", "From begin to end of a procedure", dict(c.times), "kind")
    yield histogram("regent_region_crash_seconds", "From a crash's begin to its regions' owners", {"": c.crashes})
