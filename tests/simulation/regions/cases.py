"""A disk, a daemon and two servers whose faults begin and end, for the short stories of ``situations.py``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from unittest import mock

from controller.http.procedures import Procedure
from controller.regions import fencing
from controller.regions.environment import Options
from controller.regions.fencing import NotFenced
from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Record
from state_machines.regions.entities import Region, Server
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import creates, ended, running, until
from tests.simulation.regions.actors import Actor, registered
from tests.simulation.regions.operating import Operator


class Case:
    """A disk, the present term on it, and servers ``a`` and ``b``; table ``t`` has two regions."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.disk = RegionDisk()
        self.pid = 0
        self.command_fails = False
        self.actors: dict[str, Actor] = {}
        self.operator = Operator(lambda: self.term)
        self._term: RegionsTerm | None = None
        self._life = AsyncExitStack()

    @property
    def term(self) -> RegionsTerm:
        assert self._term is not None
        return self._term

    async def begin(self, *names: str) -> None:
        """Begins a term, and starts servers."""
        self._term = await self._life.enter_async_context(running(self.disk, self.options))
        for name in names:
            self.actors[name] = Actor(lambda: self.term, name)
        await registered(*self.actors.values())

    async def begin_server(self, name: str) -> None:
        """Starts another server."""
        self.actors[name] = Actor(lambda: self.term, name)
        await registered(self.actors[name])

    async def fail_over(self) -> None:
        """Ends the daemon, and begins the next term on its disk."""
        await self._life.aclose()
        self._term = await self._life.enter_async_context(running(self.disk, self.options))

    async def end(self) -> None:
        for one in self.actors.values():
            one.stop()
        await self._life.aclose()

    # -- what a story does

    def faulty(self, *names: str, **faults: str) -> None:
        for name in names or tuple(self.actors):
            self.actors[name].faults.update(faults)

    async def created(self) -> None:
        await ended(self.term, creates(self.term, regions=2))

    async def runs(self, command: str) -> None:
        """Has an operator's procedure begin, which does not end."""
        found = await self.operator.does(command)
        assert isinstance(found, Procedure), found
        self.pid = found.pid

    async def done(self, command: str) -> None:
        found = await self.operator.does(command)
        assert isinstance(found, Procedure), found
        await self.term.engine.result(found.pid)

    async def reaches(self, holds: Callable[[], object]) -> None:
        await until(holds)
        await asyncio.sleep(0.1)

    async def stuck_in(self, kind: str) -> None:
        """Waits until a procedure of a kind goes on."""
        await self.reaches(lambda: self.live(kind))
        self.pid = self.pid or self.live(kind)[0].root

    def live(self, kind: str = "") -> list[Record]:
        return [one for one in self.term.engine.live() if not kind or one.kind == kind]

    def hangs(self) -> bool:
        return any(one.process.hangs for one in self.actors.values())

    @property
    def region(self) -> Region:
        """Returns the region that the story is about: the first one of the table that server ``a`` has, if any."""
        regions = self.term.env.model.tables["t"].regions
        mine = [one for one in regions if one.server is not None and one.server.name == "a"]
        return (mine or regions)[0]

    @property
    def server(self) -> Server | None:
        return self.term.env.model.current("a")

    async def run_command(self, words: Sequence[str], _timeout_s: float) -> None:
        if self.command_fails:
            raise NotFenced("no route to the switch")
        actor = self.actors[words[-3]]
        if actor.process.incarnation <= int(words[-2]):
            actor.kill()


def commands_fenced_by(case: Case) -> mock._patch[object]:
    """Has the fence command of a case stand in for the operator's."""
    return mock.patch.object(fencing, "run_command", case.run_command)
