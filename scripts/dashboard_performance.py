"""Panels of the dashboard of performance: propagation to brokers, decisions, and the process."""

from __future__ import annotations

from typing import Final

from scripts.dashboard_kit import (
    CARE,
    QUANTILES_OVER,
    WELL,
    Panel,
    none_of,
    of,
    quantiles,
    rate,
)

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
        steps=((None, "green"), (5, "orange"), (30, "red")),
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
        steps=((None, "green"), (0.01, "orange")),
        values=WELL,
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
        steps=CARE,
        values=WELL,
    ),
    Panel("Heartbeats", "Until ZooKeeper responds.", quantiles("regent_heartbeat_seconds"), "s"),
    Panel(
        "Lag of the event loop",
        "Delay of due callbacks.",
        quantiles("regent_loop_lag_seconds"),
        "s",
        steps=((None, "green"), (0.5, "orange"), (2.5, "red")),
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
        steps=((None, "green"), (0.8, "orange"), (0.95, "red")),
    ),
    Panel("Open files", "Sockets included.", {"{{instance}}": of("process_open_fds")}),
]
