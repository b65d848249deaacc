"""Compares what servers have with the model, and has what disagrees closed, or opened again.

Lists are compared one after the other, each in pieces with a pause between them: after a failover hundreds of servers
list thousands of regions each. After each pause the state is checked again; nothing is decided before the last piece.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Final, NamedTuple, TypeVar

from controller.regions.dispatcher import Key
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import move, servers
from controller.regions.procedures.messages import MOVE, TRANSIT, Move, Transit
from regent_agent.protocol import Owned
from state_machines.regions.entities import Region, Server
from state_machines.regions.states import RegionState, ServerState

log = logging.getLogger("regent.regions")

OLD_MS: Final = 1_000
"""Age of a region's state, as a list comes, from which the list may contradict it (row S3-37)."""
LIST_EVERY_S: Final = 60.0
"""Time after which a server lists its regions again."""
STRAYS_TOGETHER: Final = 100
"""Regions that a server should not have, and that are closed after one comparison."""
STRAYS_AGAIN_S: Final = 5.0
PIECE: Final = 500
"""Regions that are compared in one turn of the loop: about 1 ms."""

T = TypeVar("T")


class _Stray(NamedTuple):
    """A region that a server lists against the model. ``region``: None where the model has none with this id."""

    id: int
    token: int
    region: Region | None


class Comparison:
    """Takes lists of servers. ``start``: submits a procedure; ``expire``: begins a crash; ``epoch``: of this daemon."""

    def __init__(
        self,
        env: RegionsEnv,
        start: Callable[[str, bytes, str], bool],
        expire: Callable[[Server, str], None],
        epoch: int,
    ) -> None:
        self._env, self._start, self._expire, self._epoch = env, start, expire, epoch
        self._turn = asyncio.Lock()
        self._numbers = count(1)
        self._latest: dict[Key, int] = {}
        """Numbers of the lists that wait or are being compared, the latest one of each process."""
        self._over: Exception | None = None

    def close(self, why: Exception) -> None:
        """Ends all comparisons: the term is over."""
        self._over = why

    def is_under_way(self, key: Key) -> bool:
        """Checks whether a list of a process came that is not compared yet."""
        return key in self._latest

    async def take(self, server: Server, owned: Collection[Owned]) -> bool:
        """Compares what a server has with the model, which is right: what disagrees is closed, or opened again.

        What disagrees and has changed only now is no fault yet: the server lists its regions once more. False: a later
        list came meanwhile, or the process is no member any more. Raises what ended the term.
        """
        env, number = self._env, next(self._numbers)
        server.listed_s, came_ms = env.clock(), env.now_ms()
        self._latest[server.key] = number
        try:
            async with self._turn:
                return await self._compared(server, owned, number, came_ms)
        finally:
            if self._latest.get(server.key) == number:
                del self._latest[server.key]

    async def _compared(self, server: Server, owned: Collection[Owned], number: int, came_ms: int) -> bool:
        if not self._goes_on(server, number):
            return False
        listed: set[int] = set()
        strays: list[_Stray] = []
        kept: dict[int, int] = {}
        for some in _pieces(owned):
            listed.update(one.region for one in some)
            strays += self._strays(server, some, kept)
            await asyncio.sleep(0)
            if not self._goes_on(server, number):
                return False
        missing: list[Region] = []
        for regions in _pieces(list(server.regions.values())):
            missing += [one for one in regions if one.id not in listed]
            await asyncio.sleep(0)
            if not self._goes_on(server, number):
                return False
        self._settle(server, strays, kept, came_ms)
        self._check_lost(server, missing, came_ms)
        return True

    def _goes_on(self, server: Server, number: int) -> bool:
        """Checks whether a list still counts; raises what ended the term."""
        if self._over is not None:
            raise self._over
        key = server.key
        is_member = self._env.model.servers.get(key) is server and server.state is ServerState.ONLINE
        return is_member and self._latest.get(key) == number

    def _strays(self, server: Server, listed: Iterable[Owned], kept: dict[int, int]) -> list[_Stray]:
        """Returns what a server lists against the model; what both have is in doubt no longer.

        ``kept``: gets the tokens of regions whose rows are left out.
        """
        model, left_out = self._env.model.regions, self._env.model.damages.regions
        strays: list[_Stray] = []
        for id_, token in ((one.region, one.token) for one in listed):
            region = model.get(id_)
            if region is not None and region.server is server and token in (region.token, region.opening):
                region.doubtful = False
                self._env.outdated.discard(region.pid)
            elif region is None and id_ in left_out:
                kept[id_] = token
            else:
                strays.append(_Stray(id_, token, region))
                if region is not None or not server.here:  # later, its table may have been deleted meanwhile
                    self._env.contradictions.note(id_, region, token, server)
        return strays

    def _settle(self, server: Server, strays: Sequence[_Stray], kept: Mapping[int, int], came_ms: int) -> None:
        """Notes what a server has against the model, and has some of it closed."""
        self._env.claimants.listed(server.key, [one.id for one in strays], kept)
        self._env.wake_held()
        for one in strays[:STRAYS_TOGETHER]:
            self._close_stray(server, one, came_ms)
        if len(strays) > STRAYS_TOGETHER:
            log.warning("server %s has %d such regions in all; it lists them again later", server, len(strays))
        if len(strays) > STRAYS_TOGETHER or (strays and self._env.restored):  # what is closed there is open nowhere
            server.listed_s = self._env.clock() - LIST_EVERY_S + STRAYS_AGAIN_S

    def _close_stray(self, server: Server, stray: _Stray, came_ms: int) -> None:
        """Has a server close a region that it should not have."""
        id_, token, region = stray
        if region is not None and not _was_old(region, came_ms):
            self._env.dispatcher.list_regions(server)
            return
        what = "does not exist" if region is None else f"is {region.state.name} at {region.server}"
        log.warning("server %s has region %d with token %d, which %s: it is closed", server, id_, token, what)
        task = Transit(id_, "", "stray", server.name, server.incarnation, token)
        self._start(servers.STRAY, TRANSIT.encode(task), f"stray {id_} {token} of {server} in term {self._epoch}")

    def _check_lost(self, server: Server, missing: Sequence[Region], came_ms: int) -> None:
        """Has a process crash that does not list a region which the model says it has open.

        It is opened again instead where the row alone says so, and a procedure is lost that may have closed it; or
        where too many regions went elsewhere after the store was copied, so that it may be one that is not noted.
        Work that fails holds its region, and awaits the crash: nothing else opens that again.
        """
        contradictions, lost = self._env.contradictions, list[Region]()
        for region in missing:
            works = bool(region.pid and self._env.causes.of(region.pid))
            if region.server is not server or region.state is not RegionState.OPEN or (region.pid and not works):
                continue
            if contradictions.token(region.id) > region.token and not works:
                continue  # it went elsewhere after the store was copied: it is opened again
            is_doubtful = contradictions.incomplete or (region.doubtful and self._env.torn)
            if _was_old(region, came_ms) and is_doubtful and not works:
                lost.append(region)
            elif _was_old(region, came_ms):
                log.error("server %s does not have region %s: its process is ended as crashed", server, region)
                self._expire(server, f"it lost region {region}")
                return
            else:
                self._env.dispatcher.list_regions(server)
        self._reopen_lost(server, lost)

    def _reopen_lost(self, server: Server, lost: Sequence[Region]) -> None:
        """Has some regions opened again that a process does not have; others once it has listed its regions again."""
        torn = self._env.torn
        by = "a procedure without a record closed it" if torn else "it may be elsewhere since the store was copied"
        for region in lost[:STRAYS_TOGETHER]:
            nonce = f"lost {region.id} with token {region.token} by {server} in term {self._epoch}"
            if not self._reopen(region, f"{server} does not have it: {by}", nonce):
                break
        if len(lost) > STRAYS_TOGETHER:
            server.listed_s = self._env.clock() - LIST_EVERY_S + STRAYS_AGAIN_S

    def reopen_contradicted(self) -> None:
        """Has open regions opened again of which a server has listed a higher token than the store has."""
        contradictions = self._env.contradictions
        for region in contradictions.due(self._env.model.regions, STRAYS_TOGETHER):
            token = contradictions.token(region.id)
            nonce = f"region {region.id} below token {token} in term {self._epoch}"
            if not self._reopen(region, f"a server has listed it with the higher token {token}", nonce):
                return
            contradictions.begun(region)

    def _reopen(self, region: Region, why: str, nonce: str) -> bool:
        log.warning("region %s is opened again: %s", region, why)
        return self._start(move.NAME, MOVE.encode(Move(region.id, region.table.name, why=why)), nonce)


def _was_old(region: Region, came_ms: int) -> bool:
    """Checks whether a region had its state for long when a list came; a later change contradicts no list."""
    return came_ms - region.changed_ms > OLD_MS


def _pieces(values: Iterable[T]) -> Iterator[list[T]]:
    """Yields values, some hundred at a time."""
    left = iter(values)
    while some := list(islice(left, PIECE)):
        yield some
