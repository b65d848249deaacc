"""Lists all kinds of procedures of the regions' domain."""

from __future__ import annotations

from typing import Final

from controller.procedures.kinds import Kind, Kinds
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import (
    assign,
    balance,
    by_ids,
    clones,
    close,
    crash,
    creation,
    discard,
    fixing,
    log_task,
    many,
    merge,
    modification,
    move,
    namespaces,
    publish,
    region_work,
    servers,
    snapshots,
    split,
    stopping,
    table_work,
    tables,
    truncation,
)

KINDS: Final[tuple[Kind[RegionsEnv], ...]] = (
    assign.ASSIGN,
    close.CLOSE,
    move.MOVE_REGION,
    region_work.REGION_WORKS,
    table_work.TABLE_WORKS,
    publish.PUBLISH,
    publish.UNPUBLISH,
    split.SPLIT_REGION,
    merge.MERGE_REGIONS,
    discard.DISCARD_PARENT,
    many.ASSIGN_REGIONS,
    many.CLOSE_REGIONS,
    by_ids.ASSIGN_BY_IDS,
    by_ids.CLOSE_BY_IDS,
    crash.CRASH_OF_SERVER,
    log_task.FENCE_LOG,
    log_task.SPLIT_LOG,
    creation.CREATE_TABLE,
    tables.ENABLE,
    tables.DISABLE,
    tables.DELETE,
    truncation.TRUNCATE_TABLE,
    modification.MODIFY_TABLE,
    fixing.FIX_KEYS,
    clones.CLONE_TABLE,
    clones.RESTORE_SNAPSHOT,
    snapshots.SNAPSHOT_TABLE,
    snapshots.DELETE_SNAPSHOT,
    stopping.STOP_TABLES,
    stopping.START_TABLES,
    balance.BALANCE,
    servers.DRAIN_SERVER,
    servers.CLOSE_STRAY,
    servers.FORGET_SERVER,
    servers.RECOVER_SERVER,
    servers.MARK_SUBJECT,
    servers.UNMARK_SUBJECT,
    namespaces.CREATE,
    namespaces.DELETE,
)
NAMES: Final = Kinds(KINDS)
"""Names of steps, locks and subjects of procedures, for the journal."""
