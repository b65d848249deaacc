"""Shows the values that all servers have, takes requests to publish and remove them, and words what these wait for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from fastapi import FastAPI, Request, Response
from pydantic import Field

from controller.http.documents import Invalid, NotFound, document
from controller.http.models import Document, Item
from controller.http.peers import principal_of
from controller.http.procedures import Procedure
from controller.process.wording import named
from controller.regions.domain import RegionsDomain
from controller.regions.environment import RegionsEnv
from controller.regions.operator.requests import Change, Name, acting_term, active_term, caller_of, known, refuse, start
from controller.regions.procedures import publish
from controller.regions.procedures.publish import PUBLISH, PUBLISH_TASK, STORE, PublishTask
from regent_agent.protocol import VALUE_BYTES_MAX
from state_machines.procedures.record import Record

LISTS: Final = "see 'regent published list'"
SHOWN_MAX: Final = 3
"""Processes that one sentence names."""
NO_TASK: Final = "it waits until all processes have registered at this daemon"


class Published(Item):
    """A value that all servers have. ``number``: grows from one value of a name to the next."""

    name: str
    number: int
    bytes: int
    value: str


class Publication(Change):
    """A value to publish."""

    name: Name
    value: Annotated[str, Field(max_length=VALUE_BYTES_MAX)]


class PublishedView:
    """Shows the values of the active term, and starts changes of them."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    def list_published(self) -> list[Published]:
        """Lists values by name."""
        found = sorted(active_term(self._domain).env.model.published.values())
        return [
            Published(name=one.name, number=one.number, bytes=len(one.data), value=one.data.decode("utf-8", "replace"))
            for one in found
        ]

    async def publish(self, request: Publication, principal: str) -> Procedure:
        """Publishes a value."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, publish.NAME, request.name)) is not None:
            return again
        value = request.value.encode()
        if len(value) > VALUE_BYTES_MAX:
            raise Invalid(
                f"value has {len(value)} bytes, at most {VALUE_BYTES_MAX} are published", "publish where it is"
            )
        refuse(publish.unpublishable(term.env.model, request.name), LISTS)
        data = PUBLISH_TASK.encode(PublishTask(request.name, value, request.reason))
        about = f"value {request.name} of {len(value)} bytes to {len(publish.processes(term.env))} servers"
        return await start(term, publish.NAME, data, caller, request, about)

    async def remove(self, name: str, request: Change, principal: str) -> Procedure:
        """Removes a value: servers that come later do not get it."""
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, publish.REMOVE, name)) is not None:
            return again
        if name not in term.env.model.published:
            raise NotFound(f"no value {name!r} is published", LISTS)
        data = PUBLISH_TASK.encode(PublishTask(name, why=request.reason))
        return await start(term, publish.REMOVE, data, caller, request, f"value {name}")


def add_published_routes(app: FastAPI, view: PublishedView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/regions/published", response_model=Document[Published])
    async def published() -> Response:
        return document("Published", view.list_published())

    @app.post("/v1/regions/published", response_model=Document[Procedure])
    async def publish_value(wanted: Publication, request: Request) -> Response:
        return document("Procedure", [await view.publish(wanted, principal_of(request))])

    @app.post("/v1/regions/published/{name:path}/remove", response_model=Document[Procedure])
    async def remove_value(name: str, wanted: Change, request: Request) -> Response:
        return document("Procedure", [await view.remove(name, wanted, principal_of(request))])


def _awaited(task: PublishTask) -> list[str]:
    """Returns the processes whose result of the present phase has not come."""
    known = {one.server for one in task.sent.results}
    return [str(one) for one in task.sent.servers if one not in known]


def waits_of(record: Record, task: PublishTask, env: RegionsEnv) -> str:
    """Returns which processes a publication waits for, and what the latest message to them came to."""
    if record.kind != PUBLISH.name:
        return ""
    missing = _awaited(task)
    if not missing:
        return NO_TASK if not record.step else ""
    causes = env.bus.responses.causes(record.pid)
    shown = named((f"{one} ({causes[one]})" if one in causes else one for one in missing), SHOWN_MAX)
    return f"it waits for {shown}"


def ends_of(record: Record, task: PublishTask) -> Iterator[str]:
    """Yields the commands that go on with a publication, or take it back."""
    if record.kind != PUBLISH.name:
        return
    for process in _awaited(task)[:SHOWN_MAX]:
        name = process.rpartition(",")[0]
        yield f"'regent servers expire {name}' has {process} fenced, where it never responds"
    if record.step < STORE and not record.aborted:
        yield f"'regent regions procedures abort {record.pid}' takes the value back"
