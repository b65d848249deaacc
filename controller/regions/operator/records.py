"""Describes procedures by their records: step, subject and reason, and what an ended one did not bring about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from controller.http.procedures import Procedure, record_item
from controller.procedures.kinds import Kind
from controller.process.wording import counted
from controller.regions.environment import RegionsEnv
from controller.regions.operator.results import labelled
from controller.regions.procedures import assign, by_ids
from controller.regions.procedures.balance import SWITCH
from controller.regions.procedures.balance_plan import BALANCE_TASK, BalanceTask, skips
from controller.regions.procedures.by_ids import BY_IDS, ByIds
from controller.regions.procedures.every import KINDS
from controller.regions.procedures.messages import (
    CRASH,
    LOG_TASK,
    MANY,
    MOVE,
    REGION_WORK,
    SHAPE,
    SNAPSHOT_TASK,
    TABLE_TASK,
    TABLE_WORK,
    TRANSIT,
    Crash,
    LogTask,
    Many,
    Move,
    RegionWork,
    Shape,
    SnapshotTask,
    TableTask,
    TableWork,
    Transit,
)
from controller.regions.procedures.namespaces import NAMESPACE_TASK, NamespaceTask
from controller.regions.procedures.publish import PUBLISH_TASK, PublishTask
from controller.regions.procedures.repair import REPAIR, Repair
from controller.regions.procedures.rows import ROW_TASK, RowTask
from controller.regions.procedures.servers import CRASHED, MARK_TASK, MarkTask
from controller.regions.procedures.stopping import STOP_TASK, StopTask
from controller.regions.procedures.tables import SUPERSEDED
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.adopted_keys import said
from state_machines.regions.layout import count_of, key_text
from state_machines.regions.repairs import Forgotten

BY_NAME: Final[Mapping[str, Kind[RegionsEnv]]] = {kind.name: kind for kind in KINDS}
CODECS: Final[Mapping[str, Any]] = {
    "assign": TRANSIT,
    "close": TRANSIT,
    "close_stray": TRANSIT,
    "move": MOVE,
    "region_work": REGION_WORK,
    "table_work": TABLE_WORK,
    "publish": PUBLISH_TASK,
    "unpublish": PUBLISH_TASK,
    "split": SHAPE,
    "merge": SHAPE,
    "discard_parent": TRANSIT,
    "assign_many": MANY,
    "close_many": MANY,
    "assign_regions": BY_IDS,
    "close_regions": BY_IDS,
    "crash": CRASH,
    "balance": BALANCE_TASK,
    "drain_server": CRASH,
    "forget_server": CRASH,
    "recover_server": CRASH,
    "fence_log": LOG_TASK,
    "split_log": LOG_TASK,
    "create_table": TABLE_TASK,
    "enable_table": TABLE_TASK,
    "disable_table": TABLE_TASK,
    "delete_table": TABLE_TASK,
    "stop_tables": STOP_TASK,
    "start_tables": STOP_TASK,
    "truncate_table": TABLE_TASK,
    "modify_table": TABLE_TASK,
    "fix_keys": TABLE_TASK,
    "adopt": REPAIR,
    "forget_region": REPAIR,
    "remove_row": ROW_TASK,
    "adopt_table": TABLE_TASK,
    "clone_table": TABLE_TASK,
    "restore_snapshot": TABLE_TASK,
    "snapshot_table": SNAPSHOT_TASK,
    "delete_snapshot": SNAPSHOT_TASK,
    "mark": MARK_TASK,
    "unmark": MARK_TASK,
    "create_namespace": NAMESPACE_TASK,
    "delete_namespace": NAMESPACE_TASK,
}
WHAT: Final[Mapping[Forgotten, str]] = {
    Forgotten.REGION: "its row, others have its keys; what was written to it is not served any more",
    Forgotten.PARENT: "its row as a region whose heirs are lost",
    Forgotten.SOURCES: "the row that says where its data begins",
    Forgotten.DAMAGED: "its rows that are left out",
}
"""What the catalog forgets of a region."""
MET: Final = frozenset({"", "open", "it is open already", "it is there already"})
"""Results of an assign or a move after which the region is where it was wanted."""
CLOSED: Final = frozenset({"", "the region is gone", "it is closed already", "it is failed_open already"})
"""Results of a close after which no server has the region."""
WHERE: Final = "see 'regent regions transitions' and 'regent regions list --state failed_open'"
STRANDED: Final = "'regent regions list --stranded' lists regions that it has left"
LEFT: Final[Mapping[str, str]] = {
    "crash": "it begins anew: 'regent regions procedures list --kind crash --live' has its pid",
    "balance": "regions that have moved stay where they are: 'regent balancer run' begins another one",
    "drain_server": "the server may have regions still, and gets some again: 'regent servers list' counts them",
    "create_table": f"'regent tables list' shows the state of the table, and {STRANDED}",
    "enable_table": f"'regent tables list' shows the state of the table, and {STRANDED}",
    "disable_table": f"'regent tables list' shows the state of the table, and {STRANDED}",
    "delete_table": "'regent tables list' shows whether the table is there, and its state",
    "stop_tables": "'regent regions marks' lists the tables that were stopped, 'regent regions start' enables these",
    "start_tables": "'regent regions marks' lists the tables that are stopped still",
    "truncate_table": "'regent tables list' shows the state of the table: it is truncated again, or deleted",
    "clone_table": f"'regent tables list' shows the state of the table, and {STRANDED}",
    "restore_snapshot": "'regent tables list' shows the state of the table: it is restored again, or deleted",
    "snapshot_table": "'regent snapshots list' shows whether it is there; servers keep what they have staged",
    "delete_snapshot": "'regent snapshots list' shows whether it is there; servers may have its data",
    "modify_table": "'regent tables describe' shows its options, and how many regions were opened before it had them",
    "fix_keys": f"'regent regions report --table' lists keys that have no region still, and {STRANDED}",
    "adopt": f"'regent regions explain' shows whether the region is there, and {STRANDED}",
    "forget_region": "'regent regions report' lists it still where it is there; it may be closed",
    "remove_row": "'regent regions report' lists it still where it is there: the command may be repeated",
    "adopt_table": "the row of the table may be stored: the command may be repeated",
    "assign": STRANDED,
    "close": STRANDED,
    "move": STRANDED,
    "assign_regions": f"regions that have begun go on, and {STRANDED}",
    "close_regions": "regions that have begun go on: 'regent regions list --state open' shows those that are open",
    "region_work": "the server may do the work still",
    "table_work": "servers may do the work still",
    "publish": "some servers may have the value, and others not: publish it again",
    "unpublish": "'regent published list' shows whether it is there",
    "split": STRANDED,
    "merge": STRANDED,
    "discard_parent": "it begins anew: 'regent regions parents' lists what waits for it",
    "forget_server": "the name may be remembered still: the command may be repeated",
    "recover_server": "the row of the server may be stored: the command may be repeated",
    "mark": "'regent regions marks' shows whether the mark is there",
    "unmark": "'regent regions marks' shows whether the mark is there",
    "create_namespace": "'regent namespaces list' shows whether it is there",
    "delete_namespace": "'regent namespaces list' shows whether it is there",
}
"""By kind, the end of a sentence about a procedure that was ended as it is: where its effect is to be seen."""


def procedure_item(record: Record, unusable: str = "") -> Procedure:
    """Describes a procedure."""
    unmet = unmet_of(record)
    found = record_item(record, step_of(record), detail_of(record), (), unusable, unmet)
    result = labelled(record, message_of(record), found.result)
    return found.model_copy(update={"state": shown_state(record, unmet), "result": result})


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
        case Transit() | Move() | RegionWork() | Repair() as task:
            return str(task.region)
        case Shape() as task:
            return " ".join(map(str, sorted(task.parents)))
        case ByIds() as task:
            return f"{task.count} regions {task.digest}"
        case BalanceTask():
            return SWITCH
        case TableTask() as task:
            return task.table
        case TableWork() as task:
            return task.table
        case PublishTask() | SnapshotTask() as task:
            return task.name
        case NamespaceTask() as task:
            return task.namespace
        case MarkTask() as task:
            return f"{task.kind.value} of {task.subject}"
        case Crash() as task:
            return task.server
        case RowTask() as task:
            return task.place
        case _:
            return ""


def why_of(record: Record) -> str:
    """Returns the reason of a procedure: its caller's, or the one that its parent gave it."""
    return record.caller.reason or getattr(message_of(record), "why", "")


def cause_of(record: Record, env: RegionsEnv) -> str:
    """Returns why the latest attempt of a procedure on one region failed, as far as this term or its record knows."""
    return env.causes.of(record.pid) or getattr(message_of(record), "failed", "")


def _detail_of_many(task: TableTask | SnapshotTask | StopTask | Repair | ByIds) -> str:
    match task:
        case ByIds():
            return by_ids.detail(task)
        case TableTask():
            count = task.count or count_of(task.splits, task.uniform)
            made = f", {task.made} of {count} regions stored" if task.made else ""
            return f"table {task.table}{made}"
        case SnapshotTask():
            return f"snapshot {task.name}" + (f" of table {task.table}" if task.table else "")
        case Repair():
            return _detail_of_repair(task)
        case StopTask():
            return f"all tables, {task.done} done"


def detail_of(record: Record) -> str:
    """Returns what a procedure is about, and how far it is."""
    match message_of(record):
        case Transit() as task:
            to = "to" if record.kind == assign.NAME else "at"
            where = f" {to} {task.server},{task.incarnation}" if task.server else ""
            failed = f", {task.retries} attempts failed" if task.retries else ""
            return f"region {task.table}#{task.region}{where}{failed}{_last(task.failed)}"
        case Move() as task:
            where = "opened again" if task.reopens else f"to {task.to or 'another server'}"
            return f"region {task.table}#{task.region} {where}"
        case RegionWork() | TableWork() | PublishTask() as task:
            return _work(task, ended=record.state.is_final)
        case Shape() as task:
            parents, heirs = ("+".join(f"#{one}" for one in some) for some in (task.parents, task.heirs))
            at = f" at {key_text(task.key)!r}" if task.key else ""
            return f"regions {parents} of {task.table}{at}, heirs {heirs}"
        case BalanceTask() as task:
            return _detail_of_balance(task)
        case Many() as task:
            count = len(task.ids) or task.count
            return f"up to {count} regions of {task.table}"
        case Crash() as task:
            return f"server {task.server},{task.incarnation}" + (f": {task.why}" if task.why else "")
        case LogTask() as task:
            at = f" at {task.worker},{task.worker_incarnation}" if task.worker else ""
            part = f", part {task.part}" if task.part else ""
            return f"log of {task.server},{task.incarnation}{part}{at}{_last(task.failed)}"
        case TableTask() | SnapshotTask() | StopTask() | Repair() | ByIds() as task:
            return _detail_of_many(task)
        case MarkTask() | NamespaceTask() | RowTask() as task:
            return _detail_of_row(task)
        case _:
            return ""


def _detail_of_row(task: MarkTask | NamespaceTask | RowTask) -> str:
    match task:
        case MarkTask():
            return f"{task.kind.value} of {task.subject}" + (f" to {task.value}" if task.value else "")
        case NamespaceTask():
            return f"namespace {task.namespace}"
        case RowTask():
            return task.fault


def _detail_of_repair(task: Repair) -> str:
    """Returns which region a repair stores again, with its keys, or what it removes of one."""
    region = f"region {task.table}#{task.region}" if task.table else f"region #{task.region}"
    if task.what:
        return f"{region}: {WHAT[Forgotten(task.what)]}"
    return f"{region} with the keys {said((task.start, task.end))}" + (", stored" if task.made else "")


def _detail_of_balance(task: BalanceTask) -> str:
    """Returns how many moves a plan has, and how many of these have begun."""
    if not task.servers:
        return "a plan is made"
    out = skips(task).total()
    left_out = f", {out} left out" if out else ""
    return (
        f"{task.begun - out} of {len(task.moves)} moves begun{left_out}, cost {task.before:.3f}, then {task.after:.3f}"
    )


def _work(task: RegionWork | TableWork | PublishTask, *, ended: bool) -> str:
    """Returns what servers are to do, and how far that is; the message of a publish that has ended does not say it."""
    match task:
        case RegionWork():
            failed = f", {task.failures} attempts failed" if task.failures else ""
            return f"work {task.what!r} on region {task.table}#{task.region}{failed}{_last(task.failed)}"
        case TableWork():
            return f"work {task.what!r} on {task.regions} regions of {task.table}"
        case _:
            done = sum(one.ok for one in task.sent.results)
            of = f", {done} of {counted(len(task.sent.servers), 'server')}" if task.sent.servers and not ended else ""
            return f"value {task.name}{of}"


def _last(failed: str) -> str:
    return f"; {failed}" if failed else ""


# -- what an ended procedure did not bring about


def unmet_of(record: Record) -> str:
    """Returns one sentence, empty where all is done, or where the procedure has not ended, or was undone."""
    if record.state is not State.SUCCESS:
        return ""
    if record.bypassed:
        by = f" by {record.ending.principal}" if record.ending.principal else ""
        left = LEFT.get(record.kind, "")
        return f"it was ended as it is{by}, before it was done" + (f"; {left}" if left else "")
    if isinstance(task := message_of(record), ByIds):
        return by_ids.unmet(record.kind, task)
    judge = _JUDGES.get(record.kind)
    return "" if judge is None else judge(record.result.decode("utf-8", "replace"))


def shown_state(record: Record, unmet: str) -> str:
    """Returns the state that operators see: success is for a procedure that an operator or a later one did not end."""
    if record.state is State.SUCCESS and record.bypassed:
        return "bypassed"
    return "superseded" if is_superseded(unmet) else record.state.name.lower()


def is_superseded(result: str) -> bool:
    """Checks whether a later change of the same table has ended a change with this result."""
    return result.startswith(SUPERSEDED.decode())


def _of_region(result: str) -> str:
    return "" if result in MET else f"the region is not where it was wanted: {result}"


def _of_shape(result: str) -> str:
    return f"not all heirs are open: {result}, {WHERE}" if " " in result.replace(", ", "") else ""


def _of_close(result: str) -> str:
    return "" if result in CLOSED else f"the region may not be closed: {result}"


def _of_drain(result: str) -> str:
    return result if result.startswith(CRASHED.decode()) else ""


def _of_table(result: str) -> str:
    if is_superseded(result):
        return result
    count = int(result) if result.isdigit() else 0
    if not count:
        return ""
    return f"{counted(count, 'region')} not open: {WHERE}"


_JUDGES: Final[Mapping[str, Callable[[str], str]]] = {
    "assign": _of_region,
    "close": _of_close,
    "move": _of_region,
    "split": _of_shape,
    "merge": _of_shape,
    "drain_server": _of_drain,
    "create_table": _of_table,
    "enable_table": _of_table,
    "truncate_table": _of_table,
    "modify_table": _of_table,
    "fix_keys": _of_table,
    "adopt": _of_table,
    "clone_table": _of_table,
    "restore_snapshot": _of_table,
}
