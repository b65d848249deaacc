"""Words how far a procedure of regions is, by what the model says now."""

from __future__ import annotations

from controller.process.wording import counted
from controller.regions.environment import RegionsEnv
from controller.regions.kinds.messages import Crash, Move, TableTask, Transit
from controller.regions.kinds.servers import DRAIN
from controller.regions.operator.explain import without_servers
from controller.regions.operator.items import message_of
from controller.regions.overdue import wait_of
from state_machines.procedures.record import Record
from state_machines.regions.model import Regions, Server
from state_machines.regions.states import RegionState

S = RegionState


def progress_of(record: Record, env: RegionsEnv) -> str:
    """Returns how far a procedure is; empty where nothing is known, or it has ended."""
    if record.state.is_final:
        return ""
    match message_of(record):
        case TableTask(name):
            return _of_table(env.model, name, S.CLOSED if record.kind == "disable_table" else S.OPEN)
        case Crash(server, incarnation):
            found = env.model.servers.get((server, incarnation))
            return "" if found is None else _of_server(found, env) + (_nowhere(env) if record.kind == DRAIN else "")
        case Transit(region) | Move(region):
            one = env.model.regions.get(region)
            return "" if one is None else f"{one.state.name}, waits until {wait_of(one, env).what}"
        case _:
            return ""


def _of_server(server: Server, env: RegionsEnv) -> str:
    now_ms = env.now_ms()
    rest = sum(env.cooldown.left_ms(one, now_ms) > 0 for one in server.regions)
    resting = f", {rest} of them rest after a move (regions.move_cooldown_ms)" if rest else ""
    return f"{counted(len(server.regions), 'region')} left{resting}, {server.state.name.lower()}"


def _nowhere(env: RegionsEnv) -> str:
    """Says that a drain waits for another server, where it does."""
    return "" if env.servers() else f", {without_servers(env)}"


def _of_table(model: Regions, name: str, wanted: RegionState) -> str:
    table = model.tables.get(name)
    if table is None:
        return ""
    done = sum(one.state is wanted for one in table.regions)
    return f"{done} of {counted(len(table.regions), 'region')} {wanted.name.lower()}"
