"""Converts regions, tables and servers of the model into items of the HTTP surface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from controller.http.procedures import Procedure, record_item, time_of
from controller.procedures.kinds import Kind
from controller.regions.environment import RegionsEnv
from controller.regions.http.models import Region as RegionItem
from controller.regions.http.models import RegionServer
from controller.regions.http.models import RegionTransition as TransitionItem
from controller.regions.http.models import Table as TableItem
from controller.regions.in_transition import Aged, wait_of
from controller.regions.operator.counts import OfTables, owned_by_state
from controller.regions.operator.unmet import shown_state, unmet_of
from controller.regions.procedures.every import KINDS
from controller.regions.procedures.messages import (
    CRASH,
    LOG_TASK,
    MANY,
    MOVE,
    TABLE_TASK,
    TRANSIT,
    Crash,
    LogTask,
    Many,
    Move,
    TableTask,
    Transit,
)
from controller.regions.procedures.namespaces import NAMESPACE_TASK, NamespaceTask
from controller.regions.procedures.servers import MARK_TASK, MarkTask
from state_machines.procedures.record import Record
from state_machines.regions.changes import awaits_crash
from state_machines.regions.damage import Damages
from state_machines.regions.layout import count_of, key_text
from state_machines.regions.model import Region, Server, Table
from state_machines.regions.states import IN_TRANSITION, RegionState, ServerState

BY_NAME: Final[Mapping[str, Kind[RegionsEnv]]] = {kind.name: kind for kind in KINDS}
CODECS: Final[Mapping[str, Any]] = {
    "assign": TRANSIT,
    "close": TRANSIT,
    "close_stray": TRANSIT,
    "move": MOVE,
    "assign_many": MANY,
    "close_many": MANY,
    "crash": CRASH,
    "drain_server": CRASH,
    "forget_server": CRASH,
    "fence_log": LOG_TASK,
    "split_log": LOG_TASK,
    "create_table": TABLE_TASK,
    "enable_table": TABLE_TASK,
    "disable_table": TABLE_TASK,
    "delete_table": TABLE_TASK,
    "mark": MARK_TASK,
    "unmark": MARK_TASK,
    "create_namespace": NAMESPACE_TASK,
    "delete_namespace": NAMESPACE_TASK,
}
S = RegionState
GAPS_SHOWN_MAX: Final = 3
"""Gaps in the keys of a table that its item describes; the others are counted."""
WAITING: Final = "WAITING"
"""State that operators see of a region that is stored as open, and waits for the crash of its server."""


def region_item(region: Region, env: RegionsEnv) -> RegionItem:
    """Describes a region."""
    return RegionItem(**_fields(region, env))


def _fields(region: Region, env: RegionsEnv) -> dict[str, Any]:
    server = region.server
    return {
        "id": region.id,
        "table": region.table.name,
        "start": key_text(region.start),
        "end": key_text(region.end),
        "state": WAITING if awaits_crash(region) else region.state.name,
        "server": server.name if server is not None else None,
        "incarnation": server.incarnation if server is not None else None,
        "address": server.address if server is not None else None,
        "token": region.token,
        "sequence": region.sequence,
        "pid": region.pid or None,
        "state_age_s": max(0, env.now_ms() - region.changed_ms) / 1000,
        "pinned": env.model.marks.pinned(region.id) or None,
        "waits_for": _waits_for(region, env),
    }


def _waits_for(region: Region, env: RegionsEnv) -> str:
    """Returns what a region in transition, or of a crashed process, waits for; empty for others."""
    if awaits_crash(region):
        return f"the crash of server {region.server}"
    return wait_of(region, env).what if region.pid or region.state in IN_TRANSITION else ""


def transition_item(aged: Aged, env: RegionsEnv, *, overdue: bool) -> TransitionItem:
    """Describes a region in transition with its procedure."""
    region, age_ms, record = aged
    return TransitionItem(
        **(_fields(region, env) | {"waits_for": wait_of(region, env).what}),
        age_s=age_ms / 1000,
        overdue=overdue,
        kind=record.kind if record is not None else "",
        step=step_of(record) if record is not None else "",
        attempts=record.attempts if record is not None else 0,
        reason=why_of(record) if record is not None else "",
        cause=cause_of(record, env) if record is not None else "",
    )


def table_item(table: Table, counts: OfTables, damages: Damages) -> TableItem:
    """Describes a table."""
    waiting = counts.waiting[table.name]
    gaps = damages.of_keys(table.name)
    rows = [why] if (why := damages.of_table(table.name)) else []
    return TableItem(
        name=table.name,
        namespace=table.namespace,
        kind=table.kind.name.lower(),
        state=table.state.name.lower(),
        regions=len(table.regions),
        open_regions=table.count(S.OPEN) - waiting,
        waiting_regions=waiting,
        in_transition=counts.moving[table.name],
        failed_regions=table.count(S.FAILED_OPEN),
        stranded_regions=counts.stranded[table.name],
        gaps=len(gaps),
        damage="; ".join([*rows, *map(str, gaps[:GAPS_SHOWN_MAX])]),
        options=table.options,
    )


def server_item(server: Server, env: RegionsEnv) -> RegionServer:
    """Describes a process of a server."""
    states = owned_by_state(env.model, server.key)
    leaving = server.leaving and server.state is ServerState.ONLINE
    return RegionServer(
        name=server.name,
        incarnation=server.incarnation,
        state="leaving" if leaving else server.state.name.lower(),
        address=server.address,
        software=server.software,
        lease_left_s=max(0.0, server.deadline_s - env.clock()),
        regions=len(server.regions),
        opening=states[S.OPENING],
        closing=states[S.CLOSING],
        cordoned=env.model.marks.is_cordoned(server.name),
        held_until=time_of(env.shown_ms(env.model.marks.held_until_ms(server.name, env.wall_ms()))),
        load=server.load,
    )


# -- procedures


def procedure_item(record: Record, unusable: str = "") -> Procedure:
    """Describes a procedure."""
    unmet = unmet_of(record)
    found = record_item(record, step_of(record), detail_of(record), (), unusable, unmet)
    return found.model_copy(update={"state": shown_state(record, unmet)})


def step_of(record: Record) -> str:
    """Returns the name of a record's step; its number where this daemon lacks the kind."""
    kind = BY_NAME.get(record.kind)
    return kind.steps[record.step].name if kind is not None and record.step < len(kind.steps) else str(record.step)


def message_of(record: Record) -> Any:
    """Returns the decoded message of a record; None where it cannot be read."""
    codec = CODECS.get(record.kind)
    try:
        return codec.decode(record.data) if codec is not None else None
    except msgspec.DecodeError:
        return None


def subject_of(record: Record) -> str:
    """Returns the region, table, namespace, server or mark that a procedure of an operator is about."""
    match message_of(record):
        case Transit() | Move() as task:
            return str(task.region)
        case TableTask() as task:
            return task.table
        case NamespaceTask() as task:
            return task.namespace
        case MarkTask() as task:
            return f"{task.kind.value} of {task.subject}"
        case Crash() as task:
            return task.server
        case _:
            return ""


def why_of(record: Record) -> str:
    """Returns the reason of a procedure: its caller's, or the one that its parent gave it."""
    return record.caller.reason or getattr(message_of(record), "why", "")


def cause_of(record: Record, env: RegionsEnv) -> str:
    """Returns why the latest attempt of a procedure on one region failed, as far as this term or its record knows."""
    return env.causes.of(record.pid) or getattr(message_of(record), "failed", "")


def detail_of(record: Record) -> str:
    """Returns what a procedure is about, and how far it is."""
    match message_of(record):
        case Transit() as task:
            to = f" to {task.server},{task.incarnation}" if task.server else ""
            failed = f", {task.retries} attempts failed" if task.retries else ""
            last = f"; {task.failed}" if task.failed else ""
            return f"region {task.table}#{task.region}{to}{failed}{last}"
        case Move() as task:
            where = "opened again" if task.reopens else f"to {task.to or 'another server'}"
            return f"region {task.table}#{task.region} {where}"
        case Many() as task:
            count = len(task.ids) or task.count
            return f"up to {count} regions of {task.table}"
        case Crash() as task:
            return f"server {task.server},{task.incarnation}" + (f": {task.why}" if task.why else "")
        case LogTask() as task:
            at = f" at {task.worker},{task.worker_incarnation}" if task.worker else ""
            part = f", part {task.part}" if task.part else ""
            failed = f"; {task.failed}" if task.failed else ""
            return f"log of {task.server},{task.incarnation}{part}{at}{failed}"
        case TableTask() as task:
            made = f", {task.made} of {count_of(task.splits, task.uniform)} regions stored" if task.made else ""
            return f"table {task.table}{made}"
        case MarkTask() as task:
            return f"{task.kind.value} of {task.subject}" + (f" to {task.value}" if task.value else "")
        case NamespaceTask() as task:
            return f"namespace {task.namespace}"
        case _:
            return ""
