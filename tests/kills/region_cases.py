"""Which stories of regions the daemon is killed in, and what stands before each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from controller.regions.procedures import by_ids
from controller.regions.procedures.balance import SWITCH
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from regent_agent import protocol
from state_machines.regions.marks import MarkKind
from tests.kills.region_daemons import Story
from tests.kills.region_stories import (
    TABLE,
    aborts,
    adds_a_row,
    adds_sources,
    adopts,
    adopts_a_table,
    all_tables,
    assigns,
    balances,
    balances_and_aborts,
    balances_while_a_target_dies,
    changed,
    changes,
    cloned,
    closes,
    crashes,
    crashes_while,
    create,
    create_and_abort,
    discards,
    drains,
    fails_once,
    fixes_keys,
    forgets,
    forgets_a_region,
    forgets_sources,
    has_a_stray,
    is_staging,
    kills_owner,
    leaves,
    loses_a_row,
    marked,
    merges,
    moves,
    namespace,
    nothing,
    of_ids,
    publishes,
    publishes_and_aborts,
    publishes_what_one_rejects,
    recovers,
    removes_a_row,
    restarts,
    snapshot,
    splits,
    unpublishes,
    unstaged,
    works,
    works_and_aborts,
    works_on_all,
)


class Case(NamedTuple):
    """A story whose daemon is killed, the stories before it, settings, and answers of the first open of a region.

    ``pieces``: one region for each step and batch, and two batches at a time. ``takes``: a step takes an answer from
    memory, so that a second run in the same memory waits for another one. ``whole``: a write of it has no parts.
    """

    story: Story
    before: tuple[Story, ...] = ()
    options: Mapping[str, Any] = {}
    failing: tuple[str, ...] = ()
    pieces: bool = False
    takes: bool = False
    whole: bool = False


CREATED: Final = (nothing, create)
CLOSED: Final = (*CREATED, of_ids(by_ids.CLOSE))
DISABLED: Final = (*CREATED, changes("disable_table"))
FAILED: Final = (protocol.FAILED_OPEN,)
SNAPSHOT: Final = (*CREATED, snapshot("snapshot_table", TABLE))
LOPSIDED: Final = (nothing, changed("create_table", uniform=9), drains)
"""One server of three has no region."""
RESTORABLE: Final = (*SNAPSHOT, changes("disable_table"))

CASES: dict[str, Case] = {
    "create": Case(create, (nothing,)),
    "create in pieces": Case(create, (nothing,), pieces=True),
    "create in pieces and abort": Case(create_and_abort, (nothing,), pieces=True),
    "disable in pieces": Case(changes("disable_table"), CREATED, pieces=True),
    "enable in pieces": Case(changes("enable_table"), DISABLED, pieces=True),
    "delete in pieces": Case(changes("delete_table"), DISABLED, pieces=True),
    "create a table that exists": Case(
        lambda life: life.run("create_table", TABLE_TASK.encode(TableTask(TABLE, uniform=2))), CREATED
    ),
    "create and no server comes at first": Case(create),
    "disable": Case(changes("disable_table"), CREATED),
    "enable": Case(changes("enable_table"), DISABLED),
    "delete": Case(changes("delete_table"), DISABLED),
    "truncate": Case(changed("truncate_table", enables=True), DISABLED),
    "truncate in pieces": Case(changed("truncate_table", enables=True), DISABLED, pieces=True),
    "truncate to one region": Case(changed("truncate_table", drops_splits=True), DISABLED),
    "truncate to one region in pieces": Case(changed("truncate_table", drops_splits=True), DISABLED, pieces=True),
    "truncate an enabled table": Case(changed("truncate_table"), CREATED),
    "modify": Case(changed("modify_table", options={"ttl": "60"}), CREATED),
    "modify in pieces": Case(changed("modify_table", options={"ttl": "60"}, together=1), CREATED),
    "modify a disabled table": Case(changed("modify_table", options={"ttl": "60"}), DISABLED),
    "fix keys": Case(fixes_keys, (*CREATED, loses_a_row)),
    "fix keys of a disabled table": Case(fixes_keys, (*CREATED, loses_a_row, changes("disable_table"))),
    "fix keys that have regions": Case(fixes_keys, CREATED),
    "adopt": Case(adopts, (*CREATED, loses_a_row)),
    "adopt a region with sources": Case(adopts, (*CREATED, loses_a_row, adds_sources), whole=True),
    "adopt a region of a disabled table": Case(adopts, (*CREATED, loses_a_row, changes("disable_table"))),
    "adopt a region whose keys another one has": Case(adopts, CREATED),
    "forget a region": Case(forgets_a_region, (*CREATED, adds_a_row)),
    "forget a region that is not there": Case(forgets_a_region, CREATED),
    "forget sources": Case(forgets_sources, (*CREATED, adds_sources)),
    "snapshot": Case(snapshot("snapshot_table", TABLE), CREATED),
    "snapshot in pieces": Case(snapshot("snapshot_table", TABLE), CREATED, pieces=True),
    "snapshot and abort": Case(unstaged(is_staging), (nothing, changed("create_table", uniform=12)), pieces=True),
    "snapshot whose work fails": Case(unstaged(), CREATED, failing=3 * (protocol.FAILED,), takes=True),
    "delete a snapshot": Case(snapshot("delete_snapshot"), SNAPSHOT),
    "clone a snapshot": Case(cloned(snapshot="s"), SNAPSHOT, whole=True),
    "clone a snapshot in pieces": Case(cloned(snapshot="s"), SNAPSHOT, pieces=True, whole=True),
    "clone a table": Case(cloned(source=TABLE), DISABLED, whole=True),
    "clone an enabled table": Case(cloned(source=TABLE), CREATED),
    "restore a snapshot": Case(changed("restore_snapshot", snapshot="s", enables=True), RESTORABLE),
    "restore a snapshot in pieces": Case(
        changed("restore_snapshot", snapshot="s"), RESTORABLE, pieces=True, whole=True
    ),
    "stop all": Case(all_tables("stop_tables"), CREATED),
    "start all": Case(all_tables("start_tables"), (*CREATED, all_tables("stop_tables"))),
    "delete a stopped table": Case(changes("delete_table"), (*CREATED, all_tables("stop_tables"))),
    "delete an enabled table": Case(changes("delete_table"), CREATED),
    "assign": Case(assigns, (*CREATED, closes)),
    "assign after three failures": Case(assigns, (*CREATED, closes), failing=3 * FAILED),
    "assign that nobody can": Case(assigns, (*CREATED, closes), {"open_attempts_max": 2}, failing=2 * FAILED),
    "assign what failed before": Case(assigns, (*CREATED, closes, fails_once), {"open_attempts_max": 1}),
    "assign to busy servers": Case(
        assigns, (*CREATED, closes), failing=(protocol.BUSY, protocol.NOT_RUNNING), takes=True
    ),
    "assign what is open": Case(assigns, CREATED),
    "assign by ids": Case(of_ids(by_ids.ASSIGN), CLOSED),
    "assign by ids in pieces": Case(of_ids(by_ids.ASSIGN), CLOSED, pieces=True),
    "assign by ids of which one is open": Case(of_ids(by_ids.ASSIGN), (*CLOSED, assigns)),
    "close by ids": Case(of_ids(by_ids.CLOSE), CREATED),
    "close by ids in pieces": Case(of_ids(by_ids.CLOSE), (*CREATED, closes), pieces=True),
    "close": Case(closes, CREATED),
    "close what is closed": Case(closes, (*CREATED, closes)),
    "move": Case(moves(), CREATED),
    "move what is closed": Case(moves(), (*CREATED, closes)),
    "reopen": Case(moves(reopens=True), CREATED),
    "work": Case(works(), CREATED),
    "work that fails twice": Case(works(), CREATED, failing=2 * (protocol.FAILED,), takes=True),
    "work at a server that is busy": Case(
        works(tries_max=1), CREATED, failing=(protocol.BUSY, protocol.NOT_RUNNING), takes=True
    ),
    "work that fails too often": Case(works(tries_max=1), CREATED, failing=1_000 * (protocol.FAILED,), takes=True),
    "work on a table": Case(works_on_all, CREATED),
    "work on a table whose regions fail": Case(works_on_all, CREATED, failing=2 * (protocol.FAILED,), takes=True),
    "work on a table in pieces": Case(works_on_all, CREATED, pieces=True),
    "work and abort": Case(works_and_aborts, CREATED, takes=True),
    "work on a closed region": Case(works(), (*CREATED, closes)),
    "publish": Case(publishes, CREATED, takes=True),
    "publish another value": Case(publishes, (*CREATED, publishes), takes=True),
    "publish what one server rejects": Case(publishes_what_one_rejects, CREATED, takes=True),
    "publish and abort": Case(publishes_and_aborts, CREATED, takes=True),
    "unpublish": Case(unpublishes, (*CREATED, publishes), takes=True),
    "unpublish what is not there": Case(unpublishes, CREATED),
    "crash while publishing": Case(crashes_while(publishes), CREATED, {"fence": "log"}, takes=True),
    "split": Case(splits(), CREATED, whole=True),
    "split and abort": Case(splits(aborts), CREATED),
    "split at a bound": Case(splits(key=b"g"), CREATED),
    "split while its server dies": Case(splits(kills_owner), (*CREATED, moves()), {"fence": "log"}, whole=True),
    "discard": Case(discards, (*CREATED, splits()), whole=True),
    "merge": Case(merges(), CREATED, whole=True),
    "merge while their server dies": Case(merges(kills_owner), CREATED, whole=True),
    "merge and abort": Case(merges(aborts), CREATED),
    "balance": Case(balances, LOPSIDED, {"balancer_moves_together": 2}),
    "balance one at a time": Case(balances, LOPSIDED, {"balancer_moves_together": 1}),
    "balance and abort": Case(balances_and_aborts, LOPSIDED, {"balancer_moves_together": 1}),
    "balance without a plan to move": Case(balances, CREATED),
    "balance that is switched off": Case(balances, (*LOPSIDED, marked("mark", MarkKind.OFF, SWITCH))),
    "balance while a target dies": Case(
        balances_while_a_target_dies, LOPSIDED, {"balancer_moves_together": 2, "fence": "log"}
    ),
    "drain": Case(drains, CREATED),
    "leave": Case(leaves, CREATED),
    "forget": Case(forgets, (*CREATED, crashes)),
    "recover": Case(recovers, CREATED),
    "remove a row": Case(removes_a_row, CREATED),
    "adopt a table": Case(adopts_a_table, CREATED),
    "mark": Case(marked("mark"), CREATED),
    "unmark": Case(marked("unmark"), (*CREATED, marked("mark"))),
    "create a namespace": Case(namespace("create_namespace"), CREATED),
    "delete a namespace": Case(namespace("delete_namespace"), (*CREATED, namespace("create_namespace"))),
    "stray": Case(has_a_stray, CREATED, takes=True),
    **{f"crash, fence {fence}": Case(crashes, CREATED, {"fence": fence}) for fence in ("lease", "log", "command")},
    **{f"restart, fence {fence}": Case(restarts, CREATED, {"fence": fence}) for fence in ("lease", "log")},
    **{
        f"crash while {name}": Case(crashes_while(story), before, {"fence": fence})
        for name, story, before, fence in (
            ("moving", moves(), CREATED, "lease"),
            ("reopening", moves(reopens=True), CREATED, "log"),
            ("closing", closes, CREATED, "lease"),
            ("assigning", assigns, CREATED, "lease"),
            ("assigning by ids", of_ids(by_ids.ASSIGN), CLOSED, "log"),
            ("closing by ids", of_ids(by_ids.CLOSE), CREATED, "lease"),
            ("draining", drains, CREATED, "log"),
            ("working", works(), CREATED, "lease"),
            ("working on a table", works_on_all, CREATED, "log"),
            ("disabling", changes("disable_table"), CREATED, "command"),
            ("enabling", changes("enable_table"), DISABLED, "log"),
            ("fixing keys", fixes_keys, (*CREATED, loses_a_row), "lease"),
            ("adopting", adopts, (*CREATED, loses_a_row), "lease"),
            ("forgetting a region", forgets_a_region, (*CREATED, adds_a_row), "log"),
            ("creating", create, (nothing,), "lease"),
            ("modifying", changed("modify_table", options={"ttl": "60"}, together=2), CREATED, "lease"),
        )
    },
}
