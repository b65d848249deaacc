"""Lets go of regions whose procedure an operator has ended as it is: nothing else would ever move them again."""

from __future__ import annotations

from collections.abc import Sequence

from controller.regions.environment import RegionsEnv
from state_machines.procedures.transition import Transition


def let_go(env: RegionsEnv, moved: Sequence[Transition]) -> None:
    """Detaches bypassed procedures. Their regions stay as they are: a server may still have them."""
    for _, record in moved:
        if not (record.bypassed and record.state.is_final):
            continue
        for region in [one for one in env.model.transit.values() if one.pid == record.pid]:
            env.model.detach(region, record.pid)
        env.dispatcher.forget(record.pid)
        env.results.used(record.pid)
        env.unplaced.discard(record.pid)
        env.unheard.held.discard(record.pid)
