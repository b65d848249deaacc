"""Has the daemon of a kill test write znodes of regions in transition, and die at each of these writes, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Final

from controller.regions.transport.noded import Noded
from controller.regions.transport.nodes import Nodes
from tests.kills.harness import Deaths
from tests.kit.deadlines import eventually

TURNS: Final = 40
"""Turns of the loop in which what watches have told is taken, and a read that they cause has begun."""


class KilledZnodes:
    """The znodes of one daemon. Its writes count among those of the store, and kill as these do."""

    def __init__(self, nodes: Nodes, dispatcher: Noded, deaths: Deaths, clock: Callable[[], float]) -> None:
        self._nodes, self._dispatcher, self._deaths = nodes, dispatcher, deaths
        self._write, self._clear = nodes._write, nodes._clear
        nodes._write = self._killed  # type: ignore[method-assign]
        nodes._clear = self._cleared  # type: ignore[method-assign]
        dispatcher._clock = clock
        dispatcher._sweeps_s = dispatcher._lists_s = clock() + dispatcher._timeout_s
        self._keeps: asyncio.Task[None] | None = None

    async def _killed(self) -> None:
        """Writes between two chances to die."""
        if not self._nodes._wanted:
            return
        self._deaths.before(self._content())
        await self._write()
        self._deaths.after()

    async def _cleared(self, clears: dict[int, int]) -> None:
        """Deletes what a start finds, between two chances to die."""
        if not clears:
            return
        self._deaths.before(("clear", tuple(clears)))
        await self._clear(clears)
        self._deaths.after()

    def _content(self) -> Hashable:
        """Returns what a write is about, without pids and tokens: these differ when it is tried again."""
        found = ((region, one.node and one.node.state) for region, one in self._nodes._wanted.items())
        return tuple(sorted((region, str(state)) for region, state in found))

    async def turn(self) -> None:
        """Lets znodes be read and written until they rest; raises where the daemon dies of that."""
        if self._keeps is None:
            self._keeps = asyncio.ensure_future(self._nodes.keep())
        self._dispatcher.look()
        await self._nodes._zk.sync()  # watches of what servers have written come before its response
        for _ in range(TURNS):
            await asyncio.sleep(0)
        keeps = self._keeps
        await eventually(lambda: keeps.done() or self._is_idle())
        if keeps.done():
            keeps.result()

    def _is_idle(self) -> bool:
        return not (self._nodes._dirty or self._nodes._lists or self._nodes._wanted)

    @property
    def rest(self) -> bool:
        """Returns whether no znode is left."""
        return self._is_idle() and not self._nodes.known

    def end(self) -> None:
        """Ends the work."""
        if self._keeps is not None:
            self._keeps.cancel()
