"""Makes the transport of a term: by polls alone, or with answers by znodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from controller.regions.dispatcher import Dispatcher, DispatchLimits, Tell
from controller.regions.transport.noded import Noded
from controller.regions.transport.nodes import Nodes
from state_machines.regions.model import Regions
from state_machines.regions.unassigned import Node, NodeState

LOOK_S: Final = 0.2
"""Pause between looks at znodes of regions in transition."""


def dispatcher_of(
    epoch: int,
    limits: DispatchLimits,
    clock: Callable[[], float],
    tell: Tell,
    model: Regions,
    nodes: Nodes | None,
    timeout_s: float,
) -> Dispatcher:
    """Makes what brings operations to servers. ``nodes``: where servers answer by znodes; ``timeout_s``: of these."""
    if nodes is None:
        return Dispatcher(epoch, limits, clock, tell)
    return Noded(epoch, limits, clock, tell, nodes, model.is_fenced, partial(is_stale, model), timeout_s)


def is_stale(model: Regions, node: Node) -> bool:
    """Checks whether the open of a znode is stored, or its server does not have the region that it closes."""
    region = model.regions.get(node.region)
    if region is None or node.state is NodeState.OPENING:
        return region is None or region.token >= node.token
    return region.server is None or region.server.key != (node.server, node.incarnation)


def works_of(dispatcher: Dispatcher, nodes: Nodes | None) -> Sequence[Coroutine[Any, Any, None]]:
    """Returns what goes on during a term: nothing where servers report."""
    if nodes is None or not isinstance(dispatcher, Noded):
        return ()
    return nodes.keep(), _looks(dispatcher)


async def _looks(dispatcher: Noded) -> None:
    """Looks for znodes that do not progress, or that nothing awaits."""
    while True:
        await asyncio.sleep(LOOK_S)
        dispatcher.look()
