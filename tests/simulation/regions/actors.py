"""Servers with faults that begin and end: a light stand-in for processes with the agent, for thousands of short runs.

Each serves until it is told that it is dead, registers again with what it has where a daemon wants that, and is started
again by its supervisor. What hangs is done once the fault has ended, in its order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Accepted, Close, Open, Operation, Operations, Owned, Refused, Result
from tests.kit.regions.world import Server

RESTART_S = 1.0
AGAIN_S = 0.2
REPORTS_S = 0.02


class Process(Server):
    """One process of an actor."""

    def __init__(self, actor: Actor, incarnation: int) -> None:
        super().__init__(actor.term(), actor.name, incarnation)
        self.actor = actor
        self.hangs: list[Operation] = []
        self._unsaid: dict[int, Result] = {}
        self._tasks = [asyncio.ensure_future(self._live()), asyncio.ensure_future(self._reports())]

    @property
    def alive(self) -> bool:
        return bool(self._tasks)

    def end(self) -> None:
        """Ends the process without a word."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        self.has.clear()
        self.actor.ended()

    async def _live(self) -> None:
        while True:
            self.term = self.actor.term()
            found = await self.register(*(Owned(region, token) for region, token in self.has.items()))
            if isinstance(found, Refused):
                if found.code == protocol.DEAD:
                    return self.end()
                await asyncio.sleep(AGAIN_S)
                continue
            if await self._polls():
                return self.end()

    async def _polls(self) -> bool:
        """Polls until it has to register again; True where it has to end."""
        while self.term is self.actor.term():
            found = await self.ask(protocol.Poll(self.name, self.incarnation, self.epoch, self.taken))
            if isinstance(found, Refused):
                return found.code == protocol.DEAD
            assert isinstance(found, Operations), found
            self.taken = found.number
            for one in found.operations:
                self.take(one)
            if found.list_regions:
                owned = [Owned(region, token) for region, token in self.has.items()]
                await self.ask(protocol.Regions(self.name, self.incarnation, self.epoch, owned))
        return False

    def take(self, operation: Operation) -> None:
        """Takes an operation; one that it knows is not done again."""
        pid = operation.pid
        if pid not in self._unsaid and all(one.pid != pid for one in self.hangs):
            behind = any(_region(one) == _region(operation) for one in self.hangs)
            fault = self.actor.fault_of(operation)
            if behind or fault == "hangs":
                self.hangs.append(operation)
            else:
                self.finish(operation, fault)

    def finish(self, operation: Operation, fault: str = "") -> None:
        """Does an operation, or fails it, and reports that."""
        if fault:
            outcome = protocol.FAILED_OPEN if isinstance(operation, Open) else protocol.FAILED
            found = Result(operation.pid, outcome, text="no such volume")
        else:
            found = self.do(operation)
            if isinstance(operation, protocol.Task) and operation.what == "fence":
                found = Result(operation.pid, protocol.DONE, parts=["p1", "p2"])
        self._unsaid[operation.pid] = found

    async def _reports(self) -> None:
        while True:
            await asyncio.sleep(REPORTS_S)
            if not self._unsaid or not self.epoch or self.term is not self.actor.term():
                continue
            some = list(self._unsaid.values())
            report = protocol.Report(self.name, self.incarnation, self.epoch, some, self.taken)
            found = await self.ask(report)
            if isinstance(found, Accepted):
                for one in some:
                    if one.pid not in found.again and self._unsaid.get(one.pid) is one:
                        del self._unsaid[one.pid]


def _region(operation: Operation) -> int:
    return operation.region if isinstance(operation, Open | Close) else -operation.pid


class Actor:
    """A server by its name, over its processes. ``faults``: by the operation, ``hangs`` or ``fails``.

    ``term``: returns the present term. ``restarts``: another process follows one that has ended.
    """

    def __init__(self, term: Callable[[], RegionsTerm], name: str) -> None:
        self.term = term
        self.name = name
        self.faults: dict[str, str] = {}
        self.restarts = True
        self.process = Process(self, 1)

    def fault_of(self, operation: Operation) -> str:
        """Returns what is wrong with an operation; empty where nothing is."""
        if isinstance(operation, protocol.Task):
            return self.faults.get(operation.what, "")
        return self.faults.get("open" if isinstance(operation, Open) else "close", "")

    def ended(self) -> None:
        """Starts another process later, unless it is to stay down."""
        if self.restarts:
            asyncio.get_running_loop().call_later(RESTART_S, self.start)

    def start(self) -> None:
        """Starts a process, unless one lives."""
        if not self.process.alive:
            self.process = Process(self, self.process.incarnation + 1)

    def kill(self) -> None:
        """Kills the process."""
        if self.process.alive:
            self.process.end()

    def stop(self) -> None:
        """Kills the process, and starts none."""
        self.restarts = False
        self.kill()

    def heal(self) -> None:
        """Ends all faults: what hung is done."""
        self.faults.clear()
        self.restarts = True
        self.start()
        hung, self.process.hangs = self.process.hangs, []
        for one in hung:
            self.process.finish(one)


async def registered(*actors: Actor) -> None:
    """Waits until processes have registered."""
    while not all(one.process.epoch for one in actors):  # noqa: ASYNC110  # virtual time
        await asyncio.sleep(REPORTS_S)
