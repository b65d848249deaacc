"""Names the commands that go on with what does not end by itself, and what deals with the crash of a process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from controller.procedures.engine import Engine
from controller.process.wording import counted
from controller.regions.environment import RegionsEnv
from controller.regions.fencing import COMMAND, LEASE, fences_in
from controller.regions.operator.published import ends_of
from controller.regions.operator.records import cause_of, message_of
from controller.regions.procedures import crash, snapshots, tables
from controller.regions.procedures.assign import NAME as ASSIGN
from controller.regions.procedures.balance import NAME as BALANCE
from controller.regions.procedures.by_ids import ByIds
from controller.regions.procedures.messages import (
    Crash,
    LogTask,
    Move,
    RegionWork,
    Shape,
    SnapshotTask,
    TableTask,
    TableWork,
    Transit,
)
from controller.regions.procedures.publish import PublishTask
from controller.regions.procedures.region_work import NAME as REGION_WORK
from controller.regions.procedures.servers import DRAIN
from state_machines.procedures.record import Record
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.marks import short
from state_machines.regions.states import RegionState, ServerState, TableState

S = RegionState
ENDS: Final = "regent regions procedures"
AFTER_OPENS: Final = "what waits for the opens that servers work on, and goes on once these have ended"
FAILURES_SHOWN: Final = 3
"""Parts of a log whose failures one sentence names."""


# -- crashes


def crash_of(server: Server, engine: Engine[RegionsEnv]) -> int:
    """Returns the pid of the procedure that deals with a crash, 0 without one."""
    return crashes(engine).get(server.key, 0)


def crashes(engine: Engine[RegionsEnv]) -> dict[tuple[str, int], int]:
    """Returns the pids of all procedures that deal with crashes, by the process."""
    found: dict[tuple[str, int], int] = {}
    for record in engine.live():
        if record.kind == crash.NAME and isinstance(task := message_of(record), Crash):
            found.setdefault((task.server, task.incarnation), record.pid)
    return found


def works_of(key: tuple[str, int], engine: Engine[RegionsEnv]) -> Iterator[tuple[Record, Crash | LogTask]]:
    """Yields the procedures that deal with the crash of a process, and those that work on its log."""
    for record in engine.live():
        if record.kind not in (crash.NAME, "fence_log", "split_log"):
            continue
        task = message_of(record)
        if isinstance(task, LogTask | Crash) and (task.server, task.incarnation) == key:
            yield record, task


def failures_of(key: tuple[str, int], engine: Engine[RegionsEnv]) -> list[str]:
    """Returns why the latest attempts to deal with a crash failed: of its fence command, and of work on its log."""
    found: list[str] = []
    for record, task in works_of(key, engine):
        if isinstance(task, LogTask) and task.failed:
            part = f", part {task.part}" if task.part else ""
            out = (
                f"; 'regent regions procedures leave-out {record.pid} --reason TEXT' does without the part"
                if task.part
                else ""
            )
            what = f"procedure {record.pid} ({record.kind}{part}) repeats the work on its log"
            found.append(f"{what}: {task.failed}{out}")
        elif isinstance(task, Crash) and record.error:
            found.append(f"procedure {record.pid} ({crash.NAME}) failed {record.attempts} times: {record.error}")
    shown = found[:FAILURES_SHOWN]
    return [*shown, f"and {len(found) - len(shown)} more"] if len(found) > len(shown) else shown


def held_until_ms(server: Server | None, env: RegionsEnv) -> int:
    """Returns the end of the hold that keeps the regions of a fenced process where they are, 0 without one."""
    if server is None or server.state is not ServerState.FENCED or env.model.current(server.name) is not None:
        return 0
    return env.model.marks.held_until_ms(server.name, env.wall_ms())


def of_crash(server: Server, env: RegionsEnv, engine: Engine[RegionsEnv]) -> Iterator[str]:
    """Yields what goes on with the crash of a process."""
    if held_until_ms(server, env):
        yield f"{server.name} registers, or its hold ends; 'regent servers release {server.name}' ends it"
    works = list(works_of(server.key, engine))
    found = next((one for one in works if isinstance(one[1], Crash) and one[0].kind == crash.NAME), None)
    if found is None:
        yield "its crash begins with the next look at leases: try again in some seconds"
        return
    record, task = found
    assert isinstance(task, Crash)
    logs = [(one, work) for one, work in works if isinstance(work, LogTask)]
    if record.pid in engine.parked:
        yield f"restart the daemon, which tries the crash again; '{ENDS} bypass {record.pid}' has the crash begin anew"
    elif logs:
        yield from _of_logs(server, logs, env)
    elif record.step == crash.FENCE:
        yield from _of_fence(server, record, task, env)


def _of_fence(server: Server, record: Record, task: Crash, env: RegionsEnv) -> Iterator[str]:
    fences = fences_in(task.method)
    left_s = server.deadline_s - env.clock()
    if LEASE in fences and left_s > 0:
        yield f"the lease of {server} ends in {left_s:.1f} s: then it is fenced"
    elif COMMAND in fences and record.error:
        yield (
            f"end {server} by hand, and have the command of regions.fence_command end with 0 for it: "
            "that is run again within a minute"
        )
    elif COMMAND in fences:
        yield f"the command of regions.fence_command, which runs for {server}, ends with 0"


def _of_logs(server: Server, logs: list[tuple[Record, LogTask]], env: RegionsEnv) -> Iterator[str]:
    """Yields what goes on with the work on a log: where it fails, the servers that do it, or an operator."""
    alone = not any(one.state is ServerState.ONLINE and one.here for one in env.model.servers.values())
    if alone:
        yield f"start a server: one that is online works on the log of {server}"
    failing = [(record, task) for record, task in logs if task.failed]
    if any(not task.part for _, task in failing):
        yield f"repair what keeps servers from fencing the log of {server}, or start another server: each is tried"
    parts = [(record, task) for record, task in failing if task.part]
    for record, task in parts[:FAILURES_SHOWN]:
        yield (
            f"'{ENDS} leave-out {record.pid} --reason TEXT' goes on without the part {short(task.part)} of its log: "
            f"edits in it are lost for {counted(len(server.regions), 'region')}"
        )
    if not (failing or alone):
        kinds = sorted({record.kind for record, _ in logs})
        yield f"servers end their work on the log of {server} ({', '.join(kinds)})"


# -- regions


def of_wait(pid: int, engine: Engine[RegionsEnv]) -> str:
    """Names the command that waits for the end of what moves a region; of a part, for that of the whole procedure."""
    record = engine.records.get(pid)
    root = engine.records.get(record.root) if record is not None else None
    if root is None or root is record:
        return f"'{ENDS} wait {pid}' waits for its end"
    return f"it is a part of procedure {root.pid} ({root.kind}): '{ENDS} wait {root.pid}' waits for the end of that"


def of_region(region: Region, env: RegionsEnv, engine: Engine[RegionsEnv]) -> Iterator[str]:
    """Yields what ends the wait of a region that is not at rest."""
    server, record = region.server, engine.records.get(region.pid)
    if server is not None and server.state is not ServerState.ONLINE:
        yield from of_crash(server, env, engine)
        if server.state is ServerState.CRASHED:
            return
    for name in sorted({name for name, _ in env.claimants.may_have(region)})[:FAILURES_SHOWN]:
        yield f"'regent servers expire {name}' has it fenced, where it is gone for good: it has to end"
    if record is None:
        return
    if record.kind == REGION_WORK:
        at = server or "a server"
        yield f"'{ENDS} abort {record.root}' ends the wait for the work that {at} does: it may be done all the same"
        return
    opens = (root := engine.records.get(record.root)) is not None and root.kind in tables.OPENS
    if root is not None and isinstance(task := message_of(root), Shape):
        yield from _undoes(root, task, env)
    if region.state in (S.OPENING, S.CLOSING) and server is not None and server.state is ServerState.ONLINE:
        yield from _of_hung(region, server, record, env, engine)
        if opens:
            yield f"{AFTER_OPENS}: {of_table(region.table)}"
        return
    if opens:
        yield of_table(region.table)
    if record.kind == ASSIGN and cause_of(record, env):
        ends = f"'{ENDS} bypass {record.pid}' ends its open{_with_it(record, engine)}"
        yield ends if server is not None else _given_up(region, record, engine, "at once")


def _of_hung(
    region: Region, server: Server, record: Record, env: RegionsEnv, engine: Engine[RegionsEnv]
) -> Iterator[str]:
    """Yields what ends an open or a close on which a server works, or which hangs there."""
    yield f"{server} reports the result, or counts as crashed {env.options.lease_ms} ms after its last poll"
    if region.state is S.OPENING:
        yield _given_up(region, record, engine, f"once {server} has closed it, which it does as its open ends")
    else:
        yield (
            f"'{ENDS} bypass {record.pid}' ends its close{_with_it(record, engine)}; {server} still has to close the "
            "region before another server gets it"
        )
    moves = f"which moves {counted(len(server.regions), 'region')} elsewhere"
    yield (
        f"'regent servers expire {server.name}', where its {'open' if region.state is S.OPENING else 'close'} never "
        f"ends: the process is fenced and has to end, {moves}"
    )


def _given_up(region: Region, record: Record, engine: Engine[RegionsEnv], when: str) -> str:
    return (
        f"'{ENDS} bypass {record.pid}' gives it up{_with_it(record, engine)}; it becomes CLOSED {when}, and stays so "
        "until it is assigned"
    )


def _with_it(record: Record, engine: Engine[RegionsEnv]) -> str:
    """Returns the part of a sentence about the procedure that ends together with a part of it."""
    root = engine.records.get(record.root)
    if root is None or root is record:
        return ""
    if root.kind == crash.NAME:
        return f" and has procedure {root.pid} ({root.kind}) begin anew"
    return f" and ends procedure {root.pid} ({root.kind}), with all of its parts"


def of_table(table: Table) -> str:
    """Returns what ends a change of a table that opens its regions, or replaces them."""
    if table.state is TableState.TRUNCATING:
        name = table.name
        return f"'regent tables truncate {name}' goes on with its truncation, 'regent tables delete {name}' removes it"
    if table.state is TableState.CREATING:
        name = table.name
        return f"'regent tables delete {name}' takes the creation back, 'regent tables disable {name}' keeps the table"
    return f"'regent tables disable {table.name}' ends the opens of all its regions"


# -- servers


def of_leaving(server: Server, env: RegionsEnv) -> str:
    """Says why a process gets no regions, and what lets it get some; empty where it may, or has crashed."""
    if server.state is not ServerState.ONLINE:
        return ""
    lets = f"'regent servers uncordon {server.name}' lets it get regions"
    if env.model.marks.is_cordoned(server.name):
        return f"it is cordoned: {lets}"
    if not server.leaving:
        return ""
    if pids := [pid for pid, key in env.draining.items() if key == server.key]:
        return f"procedure {pids[0]} (drain_server) moves its regions away"
    return f"it was drained: {lets}, or a next process of it comes"


def of_unheard(server: Server, env: RegionsEnv) -> str:
    """Says that a process has not registered at this daemon, and what follows; empty where it has, or has crashed."""
    if server.state is not ServerState.ONLINE or server.here:
        return ""
    left_s = max(0.0, server.deadline_s - env.clock())
    return f"has not come to this daemon yet; it counts as crashed in {left_s:.1f} s"


# -- procedures


def of_procedure(record: Record, env: RegionsEnv, engine: Engine[RegionsEnv]) -> str:
    """Returns what ends a procedure that fails or hangs, or a part of it; empty where nothing but a bypass does."""
    root = engine.records.get(record.root, record)
    task = message_of(root)
    if isinstance(task, TableTask):
        table = env.model.tables.get(task.table)
        if root.kind in tables.OPENS and table is not None:
            return "; ".join(_of_opens(table, env, engine))
        if table is not None:
            return "; ".join(_of_closes(table, env, engine))
    if root.kind == crash.NAME and isinstance(task, Crash):
        server = env.model.servers.get((task.server, task.incarnation))
        return "" if server is None else "; ".join(of_crash(server, env, engine))
    if root.kind in (DRAIN, BALANCE):
        return "; ".join(_of_moves(root, env, engine))
    if isinstance(task, Shape):
        return "; ".join(dict.fromkeys(_of_shape(root, task, env, engine)))
    if isinstance(task, ByIds):
        return "; ".join(dict.fromkeys(_of_ids(root, task, env, engine)))
    if isinstance(task, SnapshotTask | TableWork):
        return _of_work(root)
    if isinstance(task, PublishTask):
        return "; ".join(ends_of(root, task))
    message = message_of(record)
    region = env.model.regions.get(message.region) if isinstance(message, Transit | Move | RegionWork) else None
    return "" if region is None else "; ".join(of_region(region, env, engine))


def _of_work(root: Record) -> str:
    """Returns what ends work on all regions of a table, or a snapshot that is not complete; its deletion ends alone."""
    if root.aborted or root.kind == snapshots.DELETE:
        return ""
    takes_back = ", and takes back what regions have staged" if root.kind == snapshots.MAKE else ""
    return f"'{ENDS} abort {root.pid}' ends it{takes_back}"


def _of_moves(root: Record, env: RegionsEnv, engine: Engine[RegionsEnv]) -> Iterator[str]:
    """Yields what ends a drain or a balance: its moves that have begun cannot be undone, so it ends after them."""
    parts = (region for pid in _parts(root, engine) if (region := _moved(pid, env, engine)) is not None)
    hung = [one for one in parts if one.pid and one.server is not None and one.state in (S.OPENING, S.CLOSING)]
    for server in sorted({one.server for one in hung if one.server is not None}, key=str)[:FAILURES_SHOWN]:
        first = next(one for one in hung if one.server is server)
        yield from of_region(first, env, engine)
    if not root.aborted:
        after = "; it ends once the moves that have begun have ended" if hung else ""
        yield f"'{ENDS} abort {root.pid}' begins no further move: regions that have moved stay where they are{after}"


def _of_ids(root: Record, task: ByIds, env: RegionsEnv, engine: Engine[RegionsEnv]) -> Iterator[str]:
    """Yields what ends the opens or the closes of regions that an operator has named: they have begun together."""
    under_way = (found for one in task.begun if (found := env.model.regions.get(one)) is not None)
    hung: dict[Server | None, Region] = {}
    for region in under_way:
        part = engine.records.get(region.pid)
        if part is not None and part.root == root.pid:
            hung.setdefault(region.server, region)
    for region in list(hung.values())[:FAILURES_SHOWN]:
        yield from of_region(region, env, engine)
    if task.ids and not root.aborted:
        yield f"'{ENDS} abort {root.pid}' begins no further region: those that have begun go on"


def _of_shape(root: Record, task: Shape, env: RegionsEnv, engine: Engine[RegionsEnv]) -> Iterator[str]:
    """Yields what ends a split or a merge: its regions go on, or it is undone while others do not have their keys."""
    for id_ in (*task.parents, *task.heirs):
        region = env.model.regions.get(id_)
        if region is not None and region.pid != root.pid:
            yield from of_region(region, env, engine)
    yield from _undoes(root, task, env)


def _undoes(root: Record, task: Shape, env: RegionsEnv) -> Iterator[str]:
    """Yields what undoes a split or a merge whose heirs do not have the keys yet."""
    if not (root.aborted or any(one in env.model.regions for one in task.heirs)):
        yield f"'{ENDS} abort {root.pid}' undoes its {root.kind}: regions that are closed for it are opened again"


def _parts(root: Record, engine: Engine[RegionsEnv]) -> list[int]:
    return [one.pid for one in engine.live() if one.parent == root.pid]


def _moved(pid: int, env: RegionsEnv, engine: Engine[RegionsEnv]) -> Region | None:
    """Returns the region that a procedure moves."""
    task = message_of(engine.records[pid]) if pid in engine.records else None
    return env.model.regions.get(task.region) if isinstance(task, Move) else None


def _of_opens(table: Table, env: RegionsEnv, engine: Engine[RegionsEnv]) -> Iterator[str]:
    """Yields what ends the opens of a table: those that servers work on, or that hang there, keep a change from it."""
    found: dict[Server, Region] = {}
    for region in table.transit.values():
        if region.state is S.OPENING and region.server is not None and region.pid in engine.records:
            found.setdefault(region.server, region)
    for server in sorted(found, key=str)[:FAILURES_SHOWN]:
        if server.state is ServerState.ONLINE:
            yield from _of_hung(found[server], server, engine.records[found[server].pid], env, engine)
    yield f"{AFTER_OPENS}: {of_table(table)}" if found else of_table(table)


def behind(front: Sequence[int], env: RegionsEnv, engine: Engine[RegionsEnv]) -> str:
    """Returns what ends the procedures that hold a lock for which another one waits."""
    some = [engine.records[pid] for pid in front[:FAILURES_SHOWN] if pid in engine.records]
    return "; ".join(dict.fromkeys(filter(None, (of_procedure(one, env, engine) for one in some))))


def _of_closes(table: Table, env: RegionsEnv, engine: Engine[RegionsEnv]) -> Iterator[str]:
    """Yields the servers whose closes, or whose crashes, keep a table from its end."""
    found = {one.server for one in table.transit.values() if one.server is not None}
    for server in sorted(found, key=str)[:FAILURES_SHOWN]:
        if server.state is not ServerState.ONLINE:
            yield from of_crash(server, env, engine)
            continue
        yield (
            f"'regent servers expire {server.name}', where its opens or closes never end: the process is fenced and "
            "has to end, and all of its regions go elsewhere"
        )
