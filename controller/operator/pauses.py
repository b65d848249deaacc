"""Pauses automatic moves on all daemons, and ends the pause, at the request of operators."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import NotActive, ViewRefused, document
from controller.http.models import Document, Item, RequestItem, Words
from controller.http.peers import principal_of
from controller.kafka.term.term import Term
from controller.process.clock import wall_ms
from metadata_store.codecs.base import MalformedNode
from metadata_store.errors import NotConnected, OutcomeUnknown, ZkError
from metadata_store.fencing.outcome import Fenced
from metadata_store.nodes.pause_node import PATH, FoundPause, Pause, read_pause, write_pause

ROUNDS_MAX: Final = 5
"""How often the pause is read and written while other clients write it."""
PAUSE_S_MAX: Final = 366 * 86_400
"""Longest pause with an end, in seconds."""


class PauseRequest(RequestItem):
    """Pauses automatic moves. ``for_s``: seconds until they go on by themselves, absent: once they are resumed."""

    for_s: Annotated[int, Field(ge=1, le=PAUSE_S_MAX)] | None = None
    reason: Words = ""


class PauseItem(Item):
    """Whether automatic moves are paused, and by what request."""

    paused: bool
    reason: str = ""
    principal: str = ""
    since: datetime | None = None
    until: datetime | None = None


class PauseView:
    """The pause as operators see and change it; the active daemon writes it, each later one obeys it."""

    def __init__(self, active: Callable[[], Term]) -> None:
        self._active = active

    async def shown(self) -> PauseItem:
        """Returns the pause that ZooKeeper has."""
        return _item((await self._read(self._active())).pause)

    async def pause(self, request: PauseRequest, principal: str) -> PauseItem:
        """Pauses automatic moves; a pause that holds is replaced."""
        now_ms = wall_ms()
        until_ms = now_ms + 1000 * request.for_s if request.for_s is not None else 0
        return await self._changed(Pause(request.reason, principal, now_ms, until_ms))

    async def resume(self) -> PauseItem:
        """Ends the pause; without one nothing changes."""
        return await self._changed(None)

    async def _changed(self, wanted: Pause | None) -> PauseItem:
        term = self._active()
        for _ in range(ROUNDS_MAX):
            if await self._written(term, wanted, await self._read(term)):
                return _item(wanted)
        raise ViewRefused(f"other clients write {PATH} all the time", "try again")

    async def _read(self, term: Term) -> FoundPause:
        try:
            found = await read_pause(term.zk)
        except (NotConnected, OutcomeUnknown, ZkError) as error:
            raise NotActive(f"ZooKeeper does not send {PATH}: {error}", "try again") from error
        if isinstance(found, MalformedNode):
            raise ViewRefused(f"{found.path} cannot be understood: {found.why}", "correct or delete it")
        return found

    async def _written(self, term: Term, wanted: Pause | None, found: FoundPause) -> bool:
        try:
            return await write_pause(term.zk, term.controller.fence, wanted, found)
        except OutcomeUnknown:
            return False
        except (NotConnected, ZkError, Fenced) as error:
            raise NotActive(f"{PATH} cannot be written: {error}", "try again; see 'regent status'") from error


def add_pause_routes(app: FastAPI, pauses: PauseView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/pause", response_model=Document[PauseItem])
    async def shown() -> Response:
        return document("PauseItem", [await pauses.shown()])

    @app.post("/v1/pause", response_model=Document[PauseItem])
    async def pause(wanted: PauseRequest, request: Request) -> Response:
        return document("PauseItem", [await pauses.pause(wanted, principal_of(request))])

    @app.post("/v1/pause/remove", response_model=Document[PauseItem])
    async def resume() -> Response:
        return document("PauseItem", [await pauses.resume()])


def pause_sentence(pause: Pause | None) -> str | None:
    """Returns the cause, the author and the end of a pause in words."""
    if pause is None:
        return None
    until = f"until {_time(pause.until_ms):%Y-%m-%d %H:%M:%S} UTC" if pause.until_ms else "until 'regent resume'"
    return f"{until}, by {pause.principal or 'an operator'}" + (f": {pause.reason}" if pause.reason else "")


def _item(pause: Pause | None) -> PauseItem:
    if pause is None or not pause.holds(wall_ms()):
        return PauseItem(paused=False)
    return PauseItem(
        paused=True,
        reason=pause.reason,
        principal=pause.principal,
        since=_time(pause.since_ms) if pause.since_ms else None,
        until=_time(pause.until_ms) if pause.until_ms else None,
    )


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
