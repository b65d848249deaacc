"""Panels of Grafana's dashboards with their queries, row by row. :mod:`scripts.dashboards` writes the files."""

from __future__ import annotations

from typing import Final

from scripts.dashboard_kit import (
    CARE,
    CONTROLLER,
    FEW,
    NEUTRAL,
    STATS,
    TROUBLE,
    UNWANTED,
    WAITS,
    WELL,
    Dashboard,
    Panel,
    by_broker,
    largest,
    named,
    none_of,
    of,
    stat,
)
from scripts.dashboard_performance import PERFORMANCE, PROCESS, PROPAGATION

FIRING: Final = 'ALERTS{alertstate="firing", alertname=~"Regent.+"}'
NOW: Final = [
    named(
        "Alerts that fire now",
        "docs/how-to/runbook.md has an entry for each.",
        {"{{alertname}}": f"max by (alertname) ({FIRING}) or on() {none_of('alertname')}"},
        6,
    ),
    named(
        "Dead brokers",
        "They host replicas, or a running plan waits for them. regent list brokers has the times of their deaths.",
        {"{{broker}}": f"{by_broker('regent_dead_broker_replicas')} or on() {none_of('broker', -1)}"},
        4,
        ((None, "green"), (0, "red")),
    ),
    stat(
        "Without a leader",
        "They can be neither written nor read.",
        largest(f"{CONTROLLER}_offlinepartitionscount"),
        TROUBLE,
        WELL,
    ),
    stat("Below min ISR", "Producers with acks=all wait.", largest("regent_under_min_isr_partitions"), TROUBLE, WELL),
    stat("Under-replicated", "The ISR lacks a replica.", largest("regent_under_replicated_partitions"), CARE, WELL),
    stat("Procedures", "That have not ended.", largest("regent_procedures"), NEUTRAL, WELL, width=2),
    stat(
        "Longest wait of a procedure",
        "Without progress, and not by an operator's wish. RegentProceduresWithoutProgress fires after 15 minutes.",
        f"max({of('regent_procedures_without_progress_seconds', UNWANTED)}) or on() vector(0)",
        WAITS,
        WELL,
        unit="s",
    ),
]
ROLE: Final = [
    stat(
        "Active daemons",
        "One, or none while a broker holds the role.",
        f"sum({of(f'{CONTROLLER}_activecontrollercount')})",
        ((None, "red"), (1, "green"), (2, "red")),
        WELL,
    ),
    stat("Controller epoch", "Of the current term.", largest("regent_term_epoch")),
    stat(
        "Role flag",
        "The kind of process that should hold the role.",
        largest("regent_role_wanted"),
        ((None, "orange"), (1, "green")),
        {0: "brokers", 1: "regent"},
    ),
    stat("Live brokers", "Registered in ZooKeeper.", largest(f"{CONTROLLER}_activebrokercount"), FEW, WELL),
    stat("Partitions", "Of present topics.", largest(f"{CONTROLLER}_globalpartitioncount"), values=WELL),
    stat(
        "Paused",
        "Automatic moves, by an operator.",
        largest("regent_moves_paused"),
        CARE,
        {0: "no", 1: "moves are paused"},
    ),
    Panel(
        "Terms begun and given up",
        "In the last 10 minutes.",
        {
            "{{instance}} begun": f"increase({of('regent_terms_total')}[10m])",
            "{{instance}} given up": f"sum by (instance) (increase({of('regent_resignations_total')}[10m]))"
            f" or 0 * sum by (instance) ({of('regent_terms_total')})",
        },
        width=6,
        height=4,
        steps=((None, "green"), (2, "orange"), (4, "red")),
    ),
    Panel(
        "Mode of each daemon",
        "Exactly one is active; the others are standbys.",
        {"{{instance}}: {{mode}}": f"{of('regent_role')} == 1"},
        kind="state-timeline",
        width=12,
        values={1: "yes"},
    ),
    Panel(
        "Holder of the role, as each daemon sees it",
        "The kind of process in /controller.",
        {"{{instance}}: {{by}}": f"{of('regent_role_held')} == 1"},
        kind="state-timeline",
        width=12,
        values={1: "yes"},
    ),
]
HEARTBEATS: Final = [
    Panel(
        "Lease, remaining part",
        "At 0 the daemon neither writes nor sends.",
        {"{{instance}}": of("regent_lease_remaining_ratio")},
        "percentunit",
        width=12,
        steps=((None, "red"), (0.1, "orange"), (0.4, "green")),
    ),
    Panel(
        "Time since the last successful heartbeat",
        "Since it was sent. Grows while ZooKeeper does not respond.",
        {"{{instance}}": of("regent_heartbeat_age_seconds")},
        "s",
        width=12,
        steps=((None, "green"), (5, "orange"), (15, "red")),
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
        steps=TROUBLE,
        values=WELL,
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
        steps=TROUBLE,
        values=WELL,
    ),
    Panel(
        "Partitions that brokers refuse",
        "By broker. A refused replica neither leads nor follows. RegentPartitionsRefused fires for them.",
        {"{{broker}}": f"{by_broker('regent_broker_refused_partitions')} or on() {none_of('broker')}"},
        steps=TROUBLE,
        values=WELL,
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
        steps=CARE,
        values=WELL,
    ),
    Panel(
        "Alerts that fire",
        "docs/how-to/runbook.md has an entry for each.",
        {"{{alertname}}": f"max by (alertname) ({FIRING}) or on() {none_of('alertname')}"},
        kind="state-timeline",
        width=24,
        height=8,
        steps=TROUBLE,
        values={0: "none", 1: "fires"},
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
        steps=CARE,
        values=WELL,
    ),
    Panel(
        "Procedures without progress",
        "The longest time, by kind and cause: an operator's wish, a queue, attempts in vain, or anything else.",
        {
            "{{kind}}: {{cause}}": f"max by (kind, cause) ({of('regent_procedures_without_progress_seconds')})"
            f" or on() {none_of('kind')}"
        },
        "s",
        steps=WAITS,
        values=WELL,
    ),
    Panel(
        "Bytes that plans copy",
        "Copied so far, and in all, of the plans that copy now.",
        {"copied": largest("regent_plan_copied_bytes"), "in all": largest("regent_plan_bytes")},
        "bytes",
    ),
    Panel(
        "Throttle in force",
        "Bytes a second, in each direction, by the broker. 0: no throttle.",
        {"{{broker}}": f"{by_broker('regent_broker_throttle_bytes_per_second')} or on() {none_of('broker')}"},
        "Bps",
        values={0: "no throttle"},
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
DASHBOARDS: Final = (
    Dashboard(
        "regent-cluster",
        "regent: cluster and role",
        "The holder of the controller role, and the state of the cluster.",
        {
            "What is wrong now": NOW,
            "Role": ROLE,
            "Cluster": CLUSTER,
            "Procedures": PROCEDURES,
            "Heartbeats": HEARTBEATS,
        },
    ),
    Dashboard(
        "regent-performance",
        "regent: performance and propagation",
        "The times in which decisions are made, written and propagated to the brokers.",
        {"Propagation": PROPAGATION, "Decisions": PERFORMANCE, "Process": PROCESS},
    ),
)
