"""Panels of Grafana's dashboards with their queries, row by row. :mod:`scripts.dashboards` writes the files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

CONTROLLER: Final = "kafka_controller_kafkacontroller"
STATS: Final = "kafka_controller_controllerstats"
QUANTILES_OVER: Final = "5m"
"""Events are rare in a quiet cluster, so a shorter time would leave holes between them."""
ALL: Final = '{job="$job", instance=~"$instance"}'


@dataclass(frozen=True)
class Panel:
    """A panel: its queries by legend. ``kind`` is Grafana's name of the visualisation."""

    title: str
    text: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 7


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


def none_of(label: str, value: int = 0) -> str:
    """Returns a zero line for events that have no series before the first one."""
    return f'label_replace(vector({value}), "{label}", "none", "", "")'


def quantiles(metric: str, by: str = "") -> dict[str, str]:
    """Returns median and 99 % of a histogram."""
    labels = f"le, {by}" if by else "le"
    suffix = f" {{{{{by}}}}}" if by else ""
    found = f"sum by ({labels}) (rate({of(f'{metric}_bucket')}[{QUANTILES_OVER}]))"
    return {f"{name}{suffix}": f"histogram_quantile({q}, {found})" for name, q in (("median", 0.5), ("99 %", 0.99))}


def stat(title: str, text: str, query: str, unit: str = "short", width: int = 3) -> Panel:
    """Makes a panel with one number."""
    return Panel(title, text, {"": query}, unit, "stat", width, 4)


ROLE: Final = [
    stat(
        "Active daemons",
        "One, or none while a broker holds the role.",
        f"sum({of(f'{CONTROLLER}_activecontrollercount')})",
    ),
    stat("Controller epoch", "Of the current term.", largest("regent_term_epoch")),
    stat("Role flag", "1: regent should hold the role.", largest("regent_role_wanted")),
    stat("Live brokers", "Registered in ZooKeeper.", largest(f"{CONTROLLER}_activebrokercount")),
    stat("Partitions", "Of present topics.", largest(f"{CONTROLLER}_globalpartitioncount")),
    stat("Without a leader", "They can be neither written nor read.", largest(f"{CONTROLLER}_offlinepartitionscount")),
    stat("Below min ISR", "Producers with acks=all wait.", largest("regent_under_min_isr_partitions")),
    stat("Under-replicated", "The ISR lacks a replica.", largest("regent_under_replicated_partitions")),
    Panel(
        "Mode of each daemon",
        "Exactly one is active; the others are standbys.",
        {"{{instance}}: {{mode}}": f"{of('regent_role')} == 1"},
        kind="state-timeline",
        width=12,
    ),
    Panel(
        "Holder of the role, as each daemon sees it",
        "The kind of process in /controller.",
        {"{{instance}}: {{by}}": f"{of('regent_role_held')} == 1"},
        kind="state-timeline",
        width=12,
    ),
    Panel(
        "Lease, remaining part",
        "At 0 the daemon neither writes nor sends.",
        {"{{instance}}": of("regent_lease_remaining_ratio")},
        "percentunit",
    ),
    Panel(
        "Time since the last successful heartbeat",
        "Since it was sent. Grows while ZooKeeper does not respond.",
        {"{{instance}}": of("regent_heartbeat_age_seconds")},
        "s",
    ),
    Panel(
        "Terms begun and given up",
        "In the last 10 minutes.",
        {
            "{{instance}} begun": f"increase({of('regent_terms_total')}[10m])",
            "{{instance}} given up": f"sum by (instance) (increase({of('regent_resignations_total')}[10m]))"
            f" or 0 * sum by (instance) ({of('regent_terms_total')})",
        },
    ),
]
CLUSTER: Final = [
    Panel(
        "Partitions that need attention",
        "All are 0 in a healthy cluster.",
        {
            "without a leader": largest(f"{CONTROLLER}_offlinepartitionscount"),
            "below min ISR": largest("regent_under_min_isr_partitions"),
            "under-replicated": largest("regent_under_replicated_partitions"),
        },
    ),
    Panel(
        "Partitions in transition",
        "Reassignments, deletions, and leaders that are not the preferred ones.",
        {
            "reassigning": largest("regent_reassigning_partitions"),
            "replicas to delete": largest(f"{CONTROLLER}_replicastodeletecount"),
            "not led by the preferred replica": largest(f"{CONTROLLER}_preferredreplicaimbalancecount"),
        },
    ),
    Panel(
        "Topics and brokers",
        "Of the active daemon's model.",
        {"topics": largest(f"{CONTROLLER}_globaltopiccount"), "brokers": largest(f"{CONTROLLER}_activebrokercount")},
    ),
    Panel(
        "Elections that may lose records",
        "In the last 10 minutes.",
        {"{{instance}}": f"increase({of(f'{STATS}_uncleanleaderelections_total')}[10m])"},
        width=12,
    ),
    Panel(
        "Obstacles",
        "Znodes that cannot be understood, brokers of another IBP, a full journal disk, no endpoint for clients.",
        {
            "malformed znodes": largest("regent_malformed_znodes"),
            "brokers of another IBP": largest("regent_ibp_mismatch_brokers"),
            "journal failing": largest("regent_journal_failing"),
            "endpoint not shown": f"1 - {largest('regent_admin_endpoint_shown')}",
        },
        width=12,
    ),
    Panel(
        "Alerts that fire",
        "docs/how-to/runbook.md has an entry for each.",
        {
            "{{alertname}}": 'sum by (alertname) (ALERTS{alertstate="firing", alertname=~"Regent.+"})'
            f" or on() {none_of('alertname', 1)}"
        },
        kind="state-timeline",
        width=24,
        height=8,
    ),
]
PROCEDURES: Final = [
    Panel(
        "Procedures that run",
        "By kind and state; recorded calls have ended when they begin.",
        {"{{kind}}: {{state}}": f"max by (kind, state) ({of('regent_live_procedures')}) or on() {none_of('kind')}"},
    ),
    Panel(
        "Procedures that need attention",
        "All are 0 unless an operator pauses something. 'regent procedures list --stuck' names those in vain.",
        {
            "stuck": largest("regent_procedures_stuck"),
            "unusable records": largest("regent_procedures_unusable"),
            "all stand still": largest("regent_procedures_stand_still"),
            "paused plans": largest("regent_paused_plans"),
            "moves paused": largest("regent_moves_paused"),
        },
    ),
    Panel(
        "Calls of clients that changed something",
        "In the last 10 minutes.",
        {
            "recorded": f"sum(increase({of('regent_recorded_calls_total')}[10m]))",
            "without a record": f"sum(increase({of('regent_unrecorded_calls_total')}[10m]))",
        },
    ),
]
PROPAGATION: Final = [
    Panel(
        "Propagation lag",
        "From a change to its acknowledgement by a broker.",
        quantiles("regent_propagation_lag_seconds"),
        "s",
    ),
    Panel(
        "Oldest change that a broker has not acknowledged",
        "Grows while a broker acknowledges nothing.",
        {"broker {{broker_id}}": f"max by (broker_id) ({of('regent_broker_propagation_age_seconds')})"},
        "s",
    ),
    Panel(
        "Partitions not acknowledged",
        "Committed, and not acknowledged by a broker yet.",
        {"broker {{broker_id}}": f"max by (broker_id) ({of('regent_broker_unacknowledged_partitions')})"},
    ),
    Panel(
        "Requests to brokers",
        "LeaderAndIsr, UpdateMetadata and StopReplica, a second.",
        {
            "broker {{broker_id}}": rate(
                "kafka_controller_controllerchannelmanager_requestrateandqueuetimems_count", "broker_id"
            )
        },
        "reqps",
    ),
    Panel(
        "Time of a request to a broker, 99 %",
        "Of the last 512 requests.",
        {
            "broker {{broker_id}}": "max by (broker_id) ("
            + of("kafka_controller_controllerchannelmanager_requestrateandqueuetimems", 'quantile="0.99"')
            + ")"
        },
        "ms",
    ),
    Panel(
        "Error responses of brokers",
        "A second, by error.",
        {"{{error}}": f"{rate('regent_broker_answers_total', 'error')} or on() {none_of('error')}"},
        "reqps",
    ),
]
PERFORMANCE: Final = [
    Panel("Wait in the event queue", "Until an event's handler begins.", quantiles("regent_event_queue_seconds"), "s"),
    Panel(
        "Events that wait",
        "Grows while handlers are slow.",
        {"{{instance}}": of("regent_event_queue_size")},
    ),
    Panel(
        "Time of the handlers, 99 %",
        "By event.",
        {
            "{{event}}": "histogram_quantile(0.99, sum by (le, event) (rate("
            + of("regent_event_seconds_bucket")
            + f"[{QUANTILES_OVER}])))"
        },
        "s",
    ),
    Panel("Commit of a decision", "Until all its writes are in ZooKeeper.", quantiles("regent_commit_seconds"), "s"),
    Panel(
        "Writes to ZooKeeper",
        "Transactions, and znode writes in them, a second.",
        {"transactions": rate("regent_commits_total", "job"), "znode writes": rate("regent_writes_total", "job")},
        "ops",
    ),
    Panel(
        "Writes that did not go through at once",
        "In the last 10 minutes.",
        {
            "version conflict": f"sum(increase({of('regent_conflicts_total')}[10m]))",
            "outcome unknown": f"sum(increase({of('regent_unknown_outcomes_total')}[10m]))",
            "given up": f"sum(increase({of('regent_failures_total')}[10m])) or on() vector(0)",
        },
    ),
    Panel("Heartbeats", "Until ZooKeeper responds.", quantiles("regent_heartbeat_seconds"), "s"),
    Panel(
        "Lag of the event loop",
        "Delay of due callbacks.",
        quantiles("regent_loop_lag_seconds"),
        "s",
    ),
    Panel(
        "Rows of the journal",
        "Written and lost, a second.",
        {"written": rate("regent_journal_rows_total", "job"), "lost": rate("regent_journal_rows_lost_total", "job")},
    ),
]
PROCESS: Final = [
    Panel("Memory", "Resident.", {"{{instance}}": of("process_resident_memory_bytes")}, "bytes"),
    Panel(
        "Processor",
        "Seconds of processor time a second.",
        {"{{instance}}": rate("process_cpu_seconds_total")},
        "percentunit",
    ),
    Panel("Open files", "Sockets included.", {"{{instance}}": of("process_open_fds")}),
]
DASHBOARDS: Final = (
    Dashboard(
        "regent-cluster",
        "regent: cluster and role",
        "The holder of the controller role, and the state of the cluster.",
        {"Role": ROLE, "Cluster": CLUSTER, "Procedures": PROCEDURES},
    ),
    Dashboard(
        "regent-performance",
        "regent: performance and propagation",
        "The times in which decisions are made, written and propagated to the brokers.",
        {"Propagation": PROPAGATION, "Decisions": PERFORMANCE, "Process": PROCESS},
    ),
)
