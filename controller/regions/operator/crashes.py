"""Finds what deals with the crash of a process: its procedure, failures of that, and the hold that delays it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller.procedures.engine import Engine
from controller.regions.environment import RegionsEnv
from controller.regions.operator.items import message_of
from controller.regions.procedures import crash
from controller.regions.procedures.messages import Crash, LogTask
from state_machines.procedures.record import Record
from state_machines.regions.model import Server
from state_machines.regions.states import ServerState

FAILURES_SHOWN: Final = 3
"""Parts of a log whose failures one sentence names."""


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
            out = f"; 'regent regions procedures leave-out {record.pid}' does without the part" if task.part else ""
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
