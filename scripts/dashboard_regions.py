"""Panels of the dashboard about regions. It stands by itself: a daemon may assign regions without a Kafka cluster."""

from __future__ import annotations

from typing import Final

from scripts.dashboard_kit import (
    CARE,
    FEW,
    QUANTILES_OVER,
    TROUBLE,
    WELL,
    Dashboard,
    Panel,
    largest,
    none_of,
    of,
    quantiles,
    rate,
    stat,
)


def most(metric: str, state: str) -> str:
    """Returns the number in one state, which only the active daemon has."""
    labels = f'state="{state}"'
    return f"max({of(metric, labels)})"


def _reshapes(counted: str) -> str:
    """Returns how many splits and merges a counter of procedures had."""
    labels = 'kind=~"split|merge"'
    return f"sum by (kind) (increase({of(f'regent_region_procedures_{counted}_total', labels)}[10m]))"


STATE: Final = [
    stat("Active daemons", "One for each store.", f"sum({of('regent_regions_active')})", FEW, WELL),
    stat("Epoch", "Of the current term.", largest("regent_regions_epoch")),
    stat("Online servers", "They poll.", most("regent_region_servers", "online"), FEW, WELL),
    stat("Tables", "Enabled or not.", largest("regent_regions_tables")),
    stat("Open regions", "Their server serves them.", most("regent_regions", "open")),
    stat("In transition", "On their way to a server, or away.", largest("regent_regions_in_transition"), values=WELL),
    stat("Overdue", "Longer than regions.transit_warning_ms.", largest("regent_regions_overdue"), TROUBLE, WELL),
    stat("Failed to open", "They wait for an operator.", most("regent_regions", "failed_open"), TROUBLE, WELL),
]
REGIONS: Final = [
    Panel(
        "Regions by state",
        "As the active daemon has them.",
        {"{{state}}": f"max by (state) ({of('regent_regions')})"},
    ),
    Panel(
        "Regions in transition",
        "All, those that take too long, those that wait for a server, and those that nothing moves.",
        {
            "in transition": largest("regent_regions_in_transition"),
            "overdue": largest("regent_regions_overdue"),
            "unplaced": largest("regent_regions_unplaced"),
            "stranded": largest("regent_regions_stranded"),
            "tables halted": largest("regent_regions_tables_halted"),
            "damaged rows": largest("regent_regions_damaged_rows"),
            "gaps": largest("regent_regions_gaps"),
        },
        values=WELL,
    ),
    Panel("Oldest transition", "Its age.", {"age": largest("regent_regions_transition_age_seconds")}, "s"),
    Panel(
        "Servers by state",
        "A crashed one may still write; of a fenced one the regions go elsewhere.",
        {"{{state}}": f"max by (state) ({of('regent_region_servers')})"},
    ),
    Panel(
        "Handling of crashes",
        "From a crash's begin to its regions' owners.",
        quantiles("regent_region_crash_seconds"),
        "s",
    ),
    Panel("Connections", "Of servers and clients.", {"{{instance}}": of("regent_regions_connections")}),
]
WORK: Final = [
    Panel(
        "Procedures that began",
        "A second, by kind.",
        {"{{kind}}": f"{rate('regent_region_procedures_submitted_total', 'kind')} or {none_of('kind')}"},
        "ops",
    ),
    Panel(
        "Procedures that were rolled back",
        "In the last 10 minutes, by kind.",
        {
            "{{kind}}": f"sum by (kind) (increase({of('regent_region_procedures_failed_total')}[10m])) "
            f"or {none_of('kind')}"
        },
        steps=CARE,
        values=WELL,
    ),
    Panel(
        "Slowest procedures by kind",
        "99 % of them end sooner.",
        {
            "{{kind}}": "histogram_quantile(0.99, sum by (le, kind) (rate("
            + of("regent_region_procedure_seconds_bucket")
            + f"[{QUANTILES_OVER}])))"
        },
        "s",
    ),
    Panel(
        "Sent to servers",
        "Batches, and operations in them, a second.",
        {
            "batches": rate("regent_region_batches_total", "job"),
            "operations": rate("regent_region_operations_total", "job"),
        },
        "ops",
    ),
    Panel(
        "Reported by servers",
        "Reports, and results in them, a second.",
        {"reports": rate("regent_region_reports_total", "job"), "results": rate("regent_region_results_total", "job")},
        "ops",
    ),
    Panel(
        "Refused requests",
        "Of servers and clients, in the last 10 minutes.",
        {"{{code}}": f"sum by (code) (increase({of('regent_region_refusals_total')}[10m])) or {none_of('code')}"},
        steps=CARE,
        values=WELL,
    ),
    Panel(
        "Connections refused at their Hello",
        "In the last 10 minutes, by cause: an unknown version, another secret, a short proof, or no Hello.",
        {
            "{{cause}}": f"sum by (cause) (increase({of('regent_region_hellos_refused_total')}[10m])) "
            f"or {none_of('cause')}"
        },
        steps=CARE,
        values=WELL,
    ),
]
GROWTH: Final = [
    Panel(
        "Splits and merges",
        "That began and that were undone, in the last 10 minutes.",
        {
            "{{kind}}": f"{_reshapes('submitted')} or {none_of('kind')}",
            "{{kind}} undone": f"{_reshapes('failed')} or {none_of('kind')}",
        },
        values=WELL,
    ),
    Panel(
        "Begun by themselves",
        "In the last 10 minutes, by cause.",
        {
            "{{cause}}": f"sum by (cause) (increase({of('regent_region_reshapes_total')}[10m])) or {none_of('cause')}",
        },
        values=WELL,
    ),
    Panel(
        "To be split, and not split",
        "Regions by what is in the way.",
        {"{{why}}": f"max by (why) ({of('regent_regions_unsplit')})"},
        values=WELL,
    ),
    Panel(
        "Former regions, snapshots and work",
        "Former regions stay until no region needs their data.",
        {
            "former regions": largest("regent_region_parents"),
            "snapshots": largest("regent_region_snapshots"),
            "work": largest("regent_region_work"),
            "work that fails": largest("regent_region_work_failing"),
            "loads ignored": rate("regent_region_loads_ignored_total", "job"),
        },
        values=WELL,
    ),
    Panel(
        "Znodes of regions in transition",
        "Those that did not go as they should, in the last 10 minutes (regions.transport).",
        {"{{cause}}": f"sum by (cause) (increase({of('regent_region_node_faults_total')}[10m])) or {none_of('cause')}"},
        values=WELL,
    ),
    Panel("Oldest former region", "Its age.", {"age": largest("regent_region_parents_age_seconds")}, "s"),
]
BALANCE: Final = [
    Panel(
        "Regions of a server",
        "Of the one with the fewest and the one with the most; uneven: one misses its share by more than the slop.",
        {
            "fewest": largest("regent_region_server_regions_min"),
            "most": largest("regent_region_server_regions_max"),
            "uneven": largest("regent_regions_uneven"),
        },
    ),
    Panel(
        "Moves of balances",
        "In the last 10 minutes: begun, and planned but left out, with the cause.",
        {
            "begun": f"sum(increase({of('regent_region_balance_moves_total')}[10m]))",
            "left out: {{cause}}": "sum by (cause) "
            f"(increase({of('regent_region_balance_moves_left_out_total')}[10m])) or {none_of('cause')}",
            "switched off": largest("regent_region_balancer_off"),
        },
        values=WELL,
    ),
    Panel(
        "Cost at the last balance",
        "Of the placement that it found: 0 is as even as it can be, 1 the worst.",
        {"cost": largest("regent_region_balance_cost")},
    ),
]
DASHBOARD: Final = Dashboard(
    "regent-regions",
    "regent: regions",
    "Which regions are open, which are on their way, and how long that takes.",
    {"State": STATE, "Regions and servers": REGIONS, "Growth": GROWTH, "Balance": BALANCE, "Work": WORK},
)
