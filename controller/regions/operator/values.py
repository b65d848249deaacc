"""Words what a value that is being published waits for, and what ends that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller.process.wording import named
from controller.regions.environment import RegionsEnv
from controller.regions.procedures.publish import PUBLISH, STORE, PublishTask
from state_machines.procedures.record import Record

SHOWN_MAX: Final = 3
"""Processes that one sentence names."""
NO_TASK: Final = "it waits until all processes have registered at this daemon"


def awaited(task: PublishTask) -> list[str]:
    """Returns the processes whose result of the present phase has not come."""
    known = {one.server for one in task.sent.results}
    return [str(one) for one in task.sent.servers if one not in known]


def waits_of(record: Record, task: PublishTask, env: RegionsEnv) -> str:
    """Returns which processes a publication waits for, and what the latest message to them came to."""
    if record.kind != PUBLISH.name:
        return ""
    missing = awaited(task)
    if not missing:
        return NO_TASK if not record.step else ""
    causes = env.bus.responses.causes(record.pid)
    shown = named((f"{one} ({causes[one]})" if one in causes else one for one in missing), SHOWN_MAX)
    return f"it waits for {shown}"


def ends_of(record: Record, task: PublishTask) -> Iterator[str]:
    """Yields the commands that go on with a publication, or take it back."""
    if record.kind != PUBLISH.name:
        return
    for process in awaited(task)[:SHOWN_MAX]:
        name = process.rpartition(",")[0]
        yield f"'regent servers expire {name}' has {process} fenced, where it never responds"
    if record.step < STORE and not record.aborted:
        yield f"'regent regions procedures abort {record.pid}' takes the value back"
