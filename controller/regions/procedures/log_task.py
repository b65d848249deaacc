"""Work on the log of a crashed process, done by a server of the service that is online: fence it, split a part.

Doing it twice gives the same, so that another server does it where the first one crashes, fails, or does not poll.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Kind, Step
from controller.regions.dispatcher import said
from controller.regions.environment import RegionsEnv
from controller.regions.journal.journal import CRASHED, FENCED
from controller.regions.procedures import messages
from controller.regions.procedures.messages import LOG_TASK, Crash, LogTask
from regent_agent import protocol
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Done, Next, Outcome, Wait
from state_machines.procedures.record import Record, child
from state_machines.regions import marks
from state_machines.regions.entities import Server
from state_machines.regions.states import ServerState

FENCE: Final = "fence"
SPLIT: Final = "split"
AGAIN_MS: Final = 1_000
PART_CHARS_MAX: Final = 10_000
"""Characters of the name of a part: the record of its split has it."""
S = ServerState


def fencing(crash: Crash) -> Record:
    """Returns the procedure that fences a log and lists its parts."""
    return child("fence_log", LOG_TASK.encode(LogTask(crash.server, crash.incarnation, "")))


def splitting(crash: Crash, part: str) -> Record:
    """Returns the procedure that splits a part of a log."""
    return child("split_log", LOG_TASK.encode(LogTask(crash.server, crash.incarnation, part)))


async def choose(env: RegionsEnv, record: Record) -> Outcome:
    """Draws the server that does it, another one than before."""
    task: LogTask = LOG_TASK.decode(record.data)
    if _is_left_out(env, task):
        return Done(b"left out")
    if env.left_ms(task.not_before_ms):
        return Wait(task.not_before_ms, record.data, durable=False)
    online = _online(env)
    if not online:
        env.unplaced.add(record.pid)
        return Wait(0, record.data, durable=False)
    others = env.prompt([one for one in online if one.name != task.worker] or online)
    worker = others[env.draw(len(others))]
    return Next(1, LOG_TASK.encode(replace(task, worker=worker.name, worker_incarnation=worker.incarnation)))


async def work(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Sends the task, or goes on with its result."""
    task: LogTask = LOG_TASK.decode(record.data)
    key = task.worker, task.worker_incarnation
    worker = env.model.servers.get(key)
    result = env.results.get(record.pid)
    what = FENCE if record.kind == "fence_log" else SPLIT

    def left(_: Change) -> None:
        env.results.used(record.pid)
        env.dispatcher.take_back(record.pid)

    overlong = max((len(part) for part in result.parts), default=0) if result is not None else 0
    if result is not None and result.outcome == protocol.DONE and overlong <= PART_CHARS_MAX:
        parts = tuple(result.parts)

        def done(_: Change) -> None:
            env.results.used(record.pid)
            env.dispatcher.forget(record.pid)
            if what == FENCE:
                env.log_parts[task.server, task.incarnation] = parts
                _fenced(env, task, record.parent)

        return Effect(Done(), (), done)
    if _is_left_out(env, task):

        def over(_: Change) -> None:
            env.results.used(record.pid)
            env.dispatcher.forget(record.pid)

        return Effect(Done(b"left out"), (), over)
    if result is not None or worker is None or worker.state is not S.ONLINE or _is_left(env, worker):
        again = replace(task, not_before_ms=env.wall_ms())
        if result is not None:
            failed = said(worker or task.worker, result)
            if overlong > PART_CHARS_MAX:
                failed = f"{worker or task.worker} names a part with {overlong} characters, at most {PART_CHARS_MAX}"
            again = replace(task, not_before_ms=env.wall_ms() + AGAIN_MS, failed=failed)
        return Effect(Next(0, LOG_TASK.encode(again)), (), left)
    if env.dispatcher.expects(record.pid) != key:
        env.dispatcher.send(worker, protocol.Task(record.pid, what, task.server, task.incarnation, task.part))
    return Wait(env.wall_ms() + AGAIN_MS, record.data, durable=False)


def _is_left_out(env: RegionsEnv, task: LogTask) -> bool:
    """Checks whether an operator has left a part of a log out; no part is empty."""
    lost = env.left_out.get((task.server, task.incarnation))
    return lost is not None and bool(task.part) and marks.short(task.part) in marks.names(lost)


def _online(env: RegionsEnv) -> list[Server]:
    return [one for one in env.model.servers.values() if one.state is S.ONLINE and one.here]


def _is_left(env: RegionsEnv, worker: Server) -> bool:
    """Checks whether another server does better: this one is late, and may be frozen until its lease ends."""
    return env.is_late(worker) and not all(env.is_late(one) for one in _online(env) if one.name != worker.name)


def _fenced(env: RegionsEnv, task: LogTask, crash: int) -> None:
    server = env.model.servers.get((task.server, task.incarnation))
    if server is not None:
        env.journal.server(server, (CRASHED, FENCED), f"{task.worker} has fenced its log", crash)


def _demand(record: Record) -> Demand:
    """Demands nothing that others demand: its parent holds the lock of the crashed process."""
    task: LogTask = LOG_TASK.decode(record.data)
    return Demand(Resource(Scope.SERVER, f"{task.server},{task.incarnation} log {task.part}"), exclusive=True)


def _kind(name: str) -> Kind[RegionsEnv]:
    return Kind(name, (Step("choose", choose), Step("work", work)), _demand, no_return=0, members=messages.of_log)


FENCE_LOG: Final = _kind("fence_log")
SPLIT_LOG: Final = _kind("split_log")
