"""Plants bugs in the memory of removed replicas whose brokers were away."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack

from controller.engine.controller import Controller
from controller.handlers import reassignment, strays
from state_machines.decisions.strays import Fate, LogJudgement
from tests.simulation.planting import mutation, put


@mutation
def forget_missed_removals(stack: ExitStack) -> None:
    """Finishes reassignments as if every broker had stopped its removed replicas."""

    async def finish(_c: Controller, _rows: Collection[int]) -> set[int]:
        return set()

    put(stack, reassignment, "finish_missed", finish)


@mutation
def forget_before_the_acknowledgement(stack: ExitStack) -> None:
    """Takes a removal for done once its StopReplica waits to be sent."""
    send = strays._send

    def send_and_forget(c: Controller) -> None:
        send(c)
        c.strays.stopped.update((key.broker, name) for key, name in c.strays.logs() if key.broker in c.cluster.brokers)

    put(stack, strays, "_send", send_and_forget)


@mutation
def delete_logs_that_are_assigned_again(stack: ExitStack) -> None:
    """Sends StopReplica for whatever was remembered, without a look at assignments."""

    found = LogJudgement(Fate.STOP, "planted")
    put(stack, strays, "judge_log", lambda *_args, **_named: found)
