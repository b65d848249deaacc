"""Handles the requests of servers and clients: checks their fields, and has the manager carry them out."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote

from msgspec.structs import replace

from brokers.regions.connection import Peer
from controller.process.wording import shown, text_problem
from controller.regions.admission import IncarnationAhead, ServerDead, ServerUnknown, TooMany, Unproven
from controller.regions.damaged import REMEDY
from controller.regions.dispatcher import HOLD_FRACTION
from controller.regions.manager import Manager
from controller.regions.metrics import RegionCounters
from controller.regions.routes import route_of
from metadata_store.records.port import StoreFailed
from regent_agent import codec, protocol
from regent_agent.codec import Head
from regent_agent.protocol import (
    FIGURES_KEPT_MAX,
    NAME_CHARS_MAX,
    Accepted,
    Left,
    Operations,
    Refused,
    Registered,
    Request,
    Response,
    Result,
    Routes,
)
from state_machines.regions.entities import Table, start_of
from state_machines.regions.states import PARTIAL

log = logging.getLogger("regent.regions")

NAME_BYTES_MAX: Final = 255
"""Bytes of a server's name as the path of a znode has it: ZooKeeper lists thousands of them in a response of 1 MiB."""
FOLLOW_S: Final = 10.0
UNNAMED: Final = Peer()
"""A connection of an agent that gives no proof."""
REQUESTS: Final = tuple(str(kind.__struct_config__.tag) for kind in (protocol.Independent, protocol.Loads))
"""Tags of requests that agents send only to daemons that name them."""


class Invalid(Exception):
    """A field of a request has a value that is not accepted; the text names both."""


DOUBTED: Final = Refused(protocol.NOT_ACTIVE, "another daemon may be the active one by now")
REFUSALS: Final = (ServerDead, Unproven, ServerUnknown, Invalid, IncarnationAhead, TooMany, StoreFailed)


class RegionService:
    """Handles requests during one term of the domain.

    ``leads``: checks whether no other daemon can be the active one. ``look``: returns the event of the end of a look at
    the claim that begins from now on. A response to a server is made only after a look that began once its request was
    here. The server's lease counts from before that, and ends before the next daemon may doubt it. ``suspended``
    returns why a server's request would wait for long; it is refused then, and the agent tries again.
    """

    def __init__(
        self,
        manager: Manager,
        counters: RegionCounters | None = None,
        leads: Callable[[], bool] = lambda: True,
        look: Callable[[], asyncio.Event] | None = None,
        suspended: Callable[[], str] = lambda: "",
    ) -> None:
        self._manager = manager
        self._leads, self._look, self._suspended = leads, look, suspended
        self._counters = counters or RegionCounters()
        self._env = manager.env
        self._hold_ms = manager.env.options.lease_ms // HOLD_FRACTION

    @property
    def epoch(self) -> int:
        """Returns the epoch of the daemon."""
        return self._manager.epoch

    async def handle(self, request: Request, peer: Peer = UNNAMED) -> Response:
        """Returns the response to a request of a connection."""
        if isinstance(request, (protocol.ListRoutes, protocol.Follow)):  # it counts what it refuses
            return codec.decode_response((await self.routes(request))[codec.LENGTH.size :])
        if isinstance(request, protocol.OF_SERVERS) and (why := self._suspended()):
            self._counters.refusals[protocol.NOT_ACTIVE] += 1
            return Refused(protocol.NOT_ACTIVE, why)
        looked = self._look() if self._look is not None and isinstance(request, protocol.OF_SERVERS) else None
        response = await self._judged(request, peer)
        if looked is not None:
            await looked.wait()
        if not self._leads() and isinstance(request, protocol.OF_SERVERS):
            response = DOUBTED
        if isinstance(response, Operations) and response.operations:
            self._counters.batches += 1
            self._counters.operations += len(response.operations)
        elif isinstance(response, Refused):
            self._counters.refusals[response.code] += 1
        return response

    def judge(self, head: Head, peer: Peer = UNNAMED) -> Refused | None:
        """Returns why a large request of a server is refused, by its first fields; None where it is wanted."""
        fields = head.fields
        key = str(fields.get("server", "")), int(fields.get("incarnation", 0))
        try:
            if head.kind is protocol.Register:
                self._manager.admission.check_entry(key, head.entries, peer.proof)
            else:
                self._manager.server(*key, int(fields.get("epoch", 0)), peer.proof)
        except REFUSALS as refusal:
            response = _refused(refusal) if self._leads() else DOUBTED
            self._counters.refusals[response.code] += 1
            return response
        return None

    async def _judged(self, request: Request, peer: Peer) -> Response:
        try:
            return await self._handle(request, peer.proof)
        except REFUSALS as refusal:
            return _refused(refusal)

    async def _handle(self, request: Request, proof: str) -> Response:
        manager = self._manager
        match request:
            case protocol.Register():
                _check(request)
                await manager.register(request, proof)
                options = self._env.options
                return Registered(
                    self.epoch,
                    options.lease_ms,
                    self._hold_ms,
                    options.fence == "lease",
                    options.fence,
                    list(REQUESTS),
                    [protocol.Published(*one) for one in self._env.model.published.values()],
                    self._env.dispatcher.reads_nodes,
                )
            case protocol.Poll(server, incarnation, epoch, taken, load):
                found = manager.server(server, incarnation, epoch, proof)
                found.load = _bounded(load)
                return await manager.poll(found, taken, self._hold_ms / 1000)
            case protocol.Report(server, incarnation, epoch, results, taken):
                self._counters.reports += 1
                self._counters.results += len(results)
                known = [one if 0 <= one.sequence <= protocol.SEQUENCE_MAX else _without(one) for one in results]
                return Accepted(await manager.report(manager.server(server, incarnation, epoch, proof), known, taken))
            case protocol.Regions(server, incarnation, epoch, owned):
                await manager.comparison.take(manager.server(server, incarnation, epoch, proof), owned)
                return Accepted()
            case protocol.Independent(server, incarnation, epoch, regions):
                return Accepted(await manager.independent(manager.server(server, incarnation, epoch, proof), regions))
            case protocol.Loads(server, incarnation, epoch, loads):
                found = manager.server(server, incarnation, epoch, proof)
                self._counters.loads_ignored += self._env.loads.take(found, loads)
                return Accepted()
            case protocol.Leave(server, incarnation) if manager.is_gone(server, incarnation):
                return Left(0)  # the response to the request before was lost
            case protocol.Leave(server, incarnation, epoch):
                return Left(await manager.leave(manager.server(server, incarnation, epoch, proof)))
            case protocol.Locate(table, key):
                return self._located(table, key)
            case _:
                raise Invalid(f"request: {type(request).__name__} is not expected here")

    def routes(self, request: protocol.Follow | protocol.ListRoutes) -> Awaitable[bytes]:
        """Returns the framed response to a request for many routes, which is the same for many clients.

        What waits for news has no reference to the request, which may name a thousand tables.
        """
        if isinstance(request, protocol.ListRoutes):
            return _at_once(self._listed(request.table, request.start, request.count_max))
        log, known = self._env.routes, self._env.model.tables
        if request.epoch != self.epoch:
            return _at_once(codec.encode(protocol.Changes(self.epoch, log.change, reset=True)))
        tables = frozenset(known[name].name for name in request.tables if name in known) if request.tables else None
        return log.after(request.epoch, request.change, tables, FOLLOW_S)

    def _located(self, name: str, key: bytes) -> Response:
        table = self._table(name)
        if table is not None and (gap := self._env.model.damages.gap_at(name, key)) is not None:
            return Refused(protocol.DAMAGED, f"{gap}: {REMEDY}")
        if table is None and name in self._env.model.damages.tables:
            return Refused(protocol.DAMAGED, f"{self._env.model.damages.of_table(name)}: {REMEDY}")
        region = None if table is None else self._env.model.located(table, key)
        if region is None:
            return _unknown(name)
        return Routes(self.epoch, self._env.routes.change, [route_of(region, self._env.routes.unanswered)])

    def _listed(self, name: str, start: bytes, count_max: int) -> bytes:
        table = self._table(name)
        if table is None:
            self._counters.refusals[protocol.UNKNOWN_TABLE] += 1
            return codec.encode(_unknown(name))
        first = self._env.model.located(table, start)
        at = 0 if first is None else _position(table, first.start)
        count = max(1, min(count_max, protocol.ROUTES_MAX))
        return self._env.routes.page(self.epoch, start, table.regions, at, count)

    def _table(self, name: str) -> Table | None:
        table = self._env.model.tables.get(name)
        return None if table is None or table.state in PARTIAL else table


def _refused(refusal: Exception) -> Refused:
    """Returns the response to a request that was refused."""
    match refusal:
        case ServerDead():
            return Refused(protocol.DEAD, str(refusal), refusal.above)
        case Unproven():
            return Refused(protocol.UNAUTHENTICATED, str(refusal))
        case ServerUnknown():
            return Refused(protocol.REGISTER, str(refusal))
        case Invalid() | IncarnationAhead():
            return Refused(protocol.INVALID, str(refusal))
        case TooMany():
            return Refused(protocol.FULL, str(refusal))
        case _:
            return Refused(protocol.NOT_ACTIVE, f"nothing can be stored by this daemon: {refusal}")


def _without(result: Result) -> Result:
    """Returns a result without its sequence number, which cannot be stored; the region has that of its last open.

    It is no failure: the server has the region open, and another one must not get it beside.
    """
    log.warning(
        "pid=%d: %s with sequence %d, not between 0 and %d: the region keeps the one before; correct the service",
        *(result.pid, result.outcome, result.sequence, protocol.SEQUENCE_MAX),
    )
    return replace(result, sequence=0)


async def _at_once(frame: bytes) -> bytes:
    return frame


def _unknown(table: str) -> Refused:
    return Refused(protocol.UNKNOWN_TABLE, f"table {table[:NAME_CHARS_MAX]!r} does not exist")


def _position(table: Table, start: bytes) -> int:
    return bisect_left(table.regions, start, key=start_of)


def _bounded(load: dict[str, int]) -> dict[str, int]:
    """Returns the figures of a server's load that are kept: a few, with short names that can be shown."""
    return {
        name: figure
        for name, figure in list(load.items())[:FIGURES_KEPT_MAX]
        if len(name) <= NAME_CHARS_MAX and text_problem("load", name) is None
    }


def name_problem(name: str) -> str | None:
    """Returns why a server cannot have a name, whose characters can be shown; None where it can."""
    if len(path := quote(name)) > NAME_BYTES_MAX:
        return f"server: its name takes {len(path)} bytes in the path of a znode, at most {NAME_BYTES_MAX} fit"
    return f"server: {name!r} has a comma, which separates it from the incarnation" if "," in name else None


def _check(request: protocol.Register) -> None:
    for field, value, least in (
        ("server", request.server, 1),
        ("address", request.address, 1),
        ("software", request.software, 0),
    ):
        if (problem := text_problem(field, value)) is not None:
            raise Invalid(problem)
        if not least <= len(value) <= NAME_CHARS_MAX:
            raise Invalid(f"{field}: {shown(value)}, expected {least} to {NAME_CHARS_MAX} characters")
    for feature in request.features:
        if not feature or (problem := text_problem("features", feature)) is not None:
            raise Invalid(problem or "features: '', expected a name")
    if (problem := name_problem(request.server)) is not None:
        raise Invalid(problem)
    if not 0 < request.incarnation < 1 << 63:
        raise Invalid(f"incarnation: {request.incarnation}, expected a positive number of 63 bits")
