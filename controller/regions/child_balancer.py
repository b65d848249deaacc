"""Has a child process plan a balance, so that the loop goes on, and a plan that takes too much time or memory ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import anyio
import msgspec

from controller.process.children import Child, command_of
from controller.regions.plan_child import answer_of, request
from state_machines.regions.balancing.cluster import BalancePlan, Cluster
from state_machines.regions.balancing.simple import Simple
from state_machines.regions.balancing.stochastic import Stochastic

COMMAND: Final = command_of("controller.regions.plan_child")
SPARE_S: Final = 5
"""The child ends by itself that long after it should have been killed: its daemon has died then."""


class NoPlan(Exception):
    """There is no plan, and the text says why, and what would make one."""


class ChildBalancer:
    """Makes each plan in a process of its own, in at most ``timeout_ms``."""

    def __init__(self, balancer: Simple | Stochastic, timeout_ms: int) -> None:
        self._balancer, self._timeout_ms = balancer, timeout_ms

    async def plan(self, cluster: Cluster, seed: int) -> BalancePlan:
        """Returns the plan; raises :class:`NoPlan`. Nothing may change the cluster meanwhile."""
        try:
            child = await Child.start(COMMAND)
        except OSError as error:
            raise NoPlan(f"its process does not start: {error.strerror or error}") from error
        time_s_max = -(-self._timeout_ms // 1000) + SPARE_S
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                with suppress(BrokenPipeError):  # it has ended: its answer says why
                    await child.send(lambda: request(cluster, self._balancer, seed, time_s_max))
                out, how = await child.answer()
        except TimeoutError:
            took = f"it was not made within {self._timeout_ms / 1000:g} s, and its process was killed"
            raise NoPlan(f"{took}: raise regions.balancer_timeout_ms, or free processors") from None
        finally:
            with anyio.CancelScope(shield=True):
                await child.end()
        return await asyncio.to_thread(_plan_of, out, how)


def _plan_of(out: bytes, how: str) -> BalancePlan:
    try:
        found = answer_of(out)
    except msgspec.DecodeError:
        raise NoPlan(f"its process {how}") from None
    if found.plan is None:
        raise NoPlan(found.err)
    return found.plan
