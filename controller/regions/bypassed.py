"""Lets go of what a procedure was about that an operator has ended as it is: nothing else would ever go on with it."""

from __future__ import annotations

from collections.abc import Sequence

from controller.regions.environment import RegionsEnv
from controller.regions.kinds import crash
from controller.regions.kinds.messages import CRASH, Crash
from state_machines.procedures.record import REMOVED
from state_machines.procedures.transition import Transition
from state_machines.regions.states import ServerState


def let_go(env: RegionsEnv, moved: Sequence[Transition]) -> None:
    """Detaches bypassed procedures. Their regions stay as they are: a server may still have them.

    The crash of a server begins anew: its regions would have no owner, and its process could come back to them.
    """
    for _, record in moved:
        if not (record.bypassed and record.state.is_final) or record.ending.act == REMOVED:
            continue  # this term never ran one that was removed: it knows its regions by their rows
        for region in [one for one in env.model.transit.values() if one.pid == record.pid]:
            env.model.detach(region, record.pid)
        env.dispatcher.forget(record.pid)
        env.results.used(record.pid)
        env.unplaced.discard(record.pid)
        env.unheard.held.discard(record.pid)
        if record.kind == crash.NAME:
            _again(env, CRASH.decode(record.data))


def _again(env: RegionsEnv, task: Crash) -> None:
    """Has the next check of leases begin a crash anew."""
    server = env.model.servers.get((task.server, task.incarnation))
    if server is not None:
        server.state = ServerState.CRASHED
        env.crashing.discard(server.key)
