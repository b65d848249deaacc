"""Marks brokers as cordoned, and removes the marks, at the request of operators."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import NotActive, ViewRefused, document
from controller.http.models import Document, Item, RequestItem, Words
from controller.http.peers import principal_of
from controller.kafka.brokers.marks import ROUNDS_MAX
from controller.kafka.term.term import Term
from controller.process.clock import wall_ms
from metadata_store.codecs.base import MalformedNode
from metadata_store.errors import NotConnected, OutcomeUnknown, ZkError
from metadata_store.fencing.outcome import Fenced
from metadata_store.nodes.cordon_node import (
    BROKERS_MAX,
    PATH,
    Cordon,
    Cordons,
    Marks,
    cordoned,
    read_cordons,
    write_cordons,
)


class CordonRequest(RequestItem):
    """Brokers to mark: no further replica is placed on them."""

    brokers: Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(min_length=1, max_length=1_000)]
    reason: Words = ""


class CordonedBroker(Item):
    """A cordoned broker. ``drained`` ones lead last; ``drain_pid`` is the procedure that marked it."""

    broker: int
    reason: str = ""
    principal: str = ""
    since: datetime | None = None
    drained: bool = False
    drain_reason: str = ""
    drain_pid: int | None = None


class CordonView:
    """The marks of brokers as operators see and change them; only the active daemon has them."""

    def __init__(self, active: Callable[[], Term]) -> None:
        self._active = active

    async def listed(self) -> list[CordonedBroker]:
        """Lists cordoned brokers by id."""
        return _items((await self._read(self._active())).brokers)

    async def cordon(self, request: CordonRequest, principal: str) -> list[CordonedBroker]:
        """Marks brokers; those that are cordoned keep their mark. Refuses unknown brokers."""
        cluster = self._active().cluster
        unknown = sorted(set(request.brokers) - cluster.brokers.keys() - cluster.hosts())
        if unknown:
            raise ViewRefused(f"brokers {unknown} are not registered and host no replica", "correct the ids")
        mark = Cordon(request.reason, principal, wall_ms())
        return await self._changed(partial(cordoned, brokers=request.brokers, mark=mark))

    async def uncordon(self, brokers: Collection[int]) -> list[CordonedBroker]:
        """Removes the marks of brokers; those without one stay as they are. Refuses drained brokers."""
        return await self._changed(partial(_uncordoned, brokers=brokers))

    async def _changed(self, change: Callable[[Marks], Marks]) -> list[CordonedBroker]:
        term = self._active()
        for _ in range(ROUNDS_MAX):
            found = await self._read(term)
            wanted = change(found.brokers)
            if len(wanted) > BROKERS_MAX:
                raise ViewRefused(
                    f"{len(wanted)} brokers would be cordoned, at most {BROKERS_MAX} may be", "uncordon some"
                )
            if wanted == found.brokers or await self._written(term, Cordons(wanted, found.znode_version)):
                return _items(wanted)
        raise ViewRefused(f"other clients write {PATH} all the time", "try again")

    async def _read(self, term: Term) -> Cordons:
        try:
            found = await read_cordons(term.zk)
        except (NotConnected, OutcomeUnknown, ZkError) as error:
            raise NotActive(f"ZooKeeper does not send {PATH}: {error}", "try again") from error
        if isinstance(found, MalformedNode):
            raise ViewRefused(f"{found.path} cannot be understood: {found.why}", "correct or delete it")
        return found

    async def _written(self, term: Term, cordons: Cordons) -> bool:
        try:
            return await write_cordons(term.zk, term.controller.fence, cordons)
        except OutcomeUnknown:
            return False
        except (NotConnected, ZkError, Fenced) as error:
            raise NotActive(f"{PATH} cannot be written: {error}", "try again; see 'regent status'") from error


def add_cordon_routes(app: FastAPI, cordons: CordonView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/cordons", response_model=Document[CordonedBroker])
    async def cordoned() -> Response:
        return document("CordonedBroker", await cordons.listed())

    @app.post("/v1/cordons", response_model=Document[CordonedBroker])
    async def cordon(wanted: CordonRequest, request: Request) -> Response:
        return document("CordonedBroker", await cordons.cordon(wanted, principal_of(request)))

    @app.post("/v1/cordons/remove", response_model=Document[CordonedBroker])
    async def uncordon(wanted: CordonRequest) -> Response:
        return document("CordonedBroker", await cordons.uncordon(wanted.brokers))


def _uncordoned(marks: Marks, brokers: Collection[int]) -> Marks:
    drained = sorted(Cordons(marks).drained.intersection(brokers))
    if drained:
        raise ViewRefused(f"brokers {drained} are drained", f"regent undrain {' '.join(map(str, drained))}")
    return {broker: mark for broker, mark in marks.items() if broker not in brokers}


def _items(marks: Marks) -> list[CordonedBroker]:
    return [_item(broker, mark) for broker, mark in sorted(marks.items())]


def _item(broker: int, mark: Cordon) -> CordonedBroker:
    since = datetime.fromtimestamp(mark.since_ms / 1000, UTC) if mark.since_ms else None
    found = CordonedBroker(broker=broker, reason=mark.reason, principal=mark.principal, since=since)
    if mark.drain is None:
        return found
    drain = {"drained": True, "drain_reason": mark.drain.reason, "drain_pid": mark.drain.pid or None}
    return found.model_copy(update=drain)
