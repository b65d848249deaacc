"""Compares what servers have with the model, and has what disagrees closed, or opened again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from controller.regions.environment import RegionsEnv
from controller.regions.kinds import servers
from controller.regions.kinds.messages import TRANSIT, Transit
from regent_agent.protocol import Owned
from state_machines.regions.model import Region, Server
from state_machines.regions.states import RegionState

log = logging.getLogger("regent.regions")

OLD_MS: Final = 1_000
"""Age of a region's state from which a server's report may contradict it (row S3-37)."""
LIST_EVERY_S: Final = 60.0
"""Time after which a server lists its regions again."""
STRAYS_TOGETHER: Final = 100
"""Regions that a server should not have, and that are closed after one comparison."""
STRAYS_AGAIN_S: Final = 5.0


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

    def take(self, server: Server, owned: Sequence[Owned]) -> None:
        """Compares what a server has with the model, which is right: what disagrees is closed, or opened again.

        What disagrees and has changed only now is no fault yet: the server lists its regions once more.
        """
        server.listed_s = self._env.clock()
        listed = {one.region: one.token for one in owned}
        model = self._env.model.regions
        strays = [
            (id_, token, region)
            for id_, token in listed.items()
            if (region := model.get(id_)) is None or not _has(region, server, token)
        ]
        for has in server.regions.values():
            if has.id in listed and _has(has, server, listed[has.id]):
                has.doubtful = False
        self._env.unheard.listed(server.key, [id_ for id_, _, region in strays if region is not None])
        self._env.wake_held()
        for id_, token, region in strays[:STRAYS_TOGETHER]:
            self._close_stray(server, id_, token, region)
        if len(strays) > STRAYS_TOGETHER:
            log.warning("server %s has %d such regions in all; it lists them again later", server, len(strays))
            server.listed_s = self._env.clock() - LIST_EVERY_S + STRAYS_AGAIN_S
        for region in [one for one in server.regions.values() if one.id not in listed]:
            if region.state is not RegionState.OPEN or region.pid:
                continue
            if self._is_old(region):
                log.error("server %s does not have region %s: its process is ended as crashed", server, region)
                self._expire(server, f"it lost region {region}")
                return
            self._env.dispatcher.list_regions(server)

    def _close_stray(self, server: Server, id_: int, token: int, region: Region | None) -> None:
        """Has a server close a region that it should not have."""
        if region is not None and not self._is_old(region):
            self._env.dispatcher.list_regions(server)
            return
        what = "does not exist" if region is None else f"is {region.state.name} at {region.server}"
        log.warning("server %s has region %d with token %d, which %s: it is closed", server, id_, token, what)
        task = Transit(id_, "", "stray", server.name, server.incarnation, token)
        self._start(servers.STRAY, TRANSIT.encode(task), f"stray {id_} {token} of {server} in term {self._epoch}")

    def _is_old(self, region: Region) -> bool:
        return self._env.now_ms() - region.changed_ms > OLD_MS


def _has(region: Region, server: Server, token: int) -> bool:
    """Checks whether a server may have a region with this token."""
    return region.server is server and token in (region.token, region.opening)
