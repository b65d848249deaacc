"""Forgets the name of a fenced server, so that a process below its incarnation registers again.

No region depends on that memory: a process with regions that is no member ends in any case.
"""

from __future__ import annotations

from typing import Final

from controller.procedures.kinds import Effect, Kind, Step
from controller.regions.environment import RegionsEnv
from controller.regions.kinds import about
from controller.regions.kinds.messages import CRASH, Crash
from metadata_store.catalog.rows import Forget
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Done, Failed, Outcome
from state_machines.procedures.record import Record
from state_machines.regions.model import Regions

FORGET: Final = "forget_server"


def unforgettable(model: Regions, name: str) -> str | None:
    """Returns why a name cannot be forgotten; None where it can."""
    if (member := model.latest(name)) is not None:
        return f"server {member} is a member: end it by 'regent servers expire {member} --wait', then forget its name"
    if name not in model.buried:
        return f"no fenced process of a server {name!r} is remembered: nothing but its secret keeps that server out"
    return None


async def forget(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Removes the name; one that has a process by now stays."""
    task: Crash = CRASH.decode(record.data)
    if (why := unforgettable(env.model, task.server)) is not None:
        return Failed(why)
    return Effect(Done(), (Forget(task.server),), lambda _: env.model.forget(task.server))


def _demand(record: Record) -> Demand:
    task: Crash = CRASH.decode(record.data)
    return Demand(Resource(Scope.SERVER, f"name of {task.server}"), exclusive=True)


FORGET_SERVER: Final[Kind[RegionsEnv]] = Kind(FORGET, (Step("forget", forget),), _demand, members=about.process)
