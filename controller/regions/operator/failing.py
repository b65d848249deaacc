"""Finds which procedures fail in each attempt, by the attempts of their parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from controller.http.procedures import Procedure
from controller.procedures.engine import Engine
from controller.process.wording import counted
from controller.regions.environment import RegionsEnv
from controller.regions.operator.items import message_of
from controller.regions.procedures.log_task import FENCE_LOG, SPLIT_LOG
from controller.regions.procedures.messages import LogTask
from state_machines.procedures.kernel import STUCK_ATTEMPTS
from state_machines.procedures.record import Record

FAILURES_MAX: Final = 2_000
"""Failed attempts that one look counts."""
LOGS: Final = frozenset({FENCE_LOG.name, SPLIT_LOG.name})


class Failing(NamedTuple):
    """The parts of a procedure whose latest attempts failed. ``attempts``: of the part that has most, as far as known.

    ``last``: the subject of the latest failed attempt, and why it failed.
    """

    parts: int
    attempts: int
    last: str

    def told(self) -> str:
        """Returns one sentence."""
        last = self.last if self.parts == 1 else f"{counted(self.parts, 'part')} fail, the last one {self.last}"
        return f"{counted(self.attempts, 'attempt')} in vain; {last}" if self.attempts else last


def failing_of(env: RegionsEnv, engine: Engine[RegionsEnv]) -> dict[int, Failing]:
    """Returns by pid what fails of the procedures that go on: of each part, and of all above it."""
    found: dict[int, Failing] = {}
    for record, attempts, last in _failed(env, engine):
        for pid in (record.pid, *record.ancestors):
            known = found.get(pid)
            if known is None:
                found[pid] = Failing(1, attempts, last)
            else:
                found[pid] = known._replace(parts=known.parts + 1, attempts=max(known.attempts, attempts))
    return found


def _failed(env: RegionsEnv, engine: Engine[RegionsEnv]) -> Iterator[tuple[Record, int, str]]:
    """Yields the parts whose latest attempt failed, with their failed attempts and the cause, the latest first."""
    for pid, cause in islice(env.causes.items(), FAILURES_MAX):
        record, region = engine.records.get(pid), env.model.regions.get(cause.region)
        if record is not None and not record.state.is_final:
            attempts = getattr(message_of(record), "retries", 0)
            yield record, attempts, f"on {region or cause.region}: {cause.text}"
    logs = (one for one in engine.live() if one.kind in LOGS)
    for record in islice(logs, FAILURES_MAX):
        task = message_of(record)
        if isinstance(task, LogTask) and task.failed:
            yield record, 0, f"on the log of {task.server},{task.incarnation}: {task.failed}"


def shown(item: Procedure, failing: Mapping[int, Failing]) -> Procedure:
    """Returns the item of a procedure with what fails of its parts."""
    found = failing.get(item.pid)
    if found is None or item.ended:
        return item
    attempts = max(item.attempts, found.attempts)
    update = {"attempts": attempts, "stuck": item.stuck or attempts >= STUCK_ATTEMPTS}
    return item.model_copy(update=update | ({} if item.error else {"error": found.told()}))
