"""Takes requests to raise the level of the store, once all daemons that name themselves know the next one."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI, Request, Response

from controller.http.documents import ViewRefused, document
from controller.http.models import Document
from controller.http.peers import principal_of
from controller.http.procedures import Procedure
from controller.process.wording import counted, named
from controller.regions.domain import RegionsDomain
from controller.regions.operator.requests import Change, acting_term, caller_of, known, requested, start
from controller.regions.procedures.servers import MARK, MARK_TASK, MarkTask
from regent_agent.protocol import INHERIT, PUBLISH, WORKS
from state_machines.regions.levels import NEWEST
from state_machines.regions.marks import STORE, MarkKind
from state_machines.regions.model import Regions
from state_machines.regions.states import ServerState

NAMED_MAX: Final = 20
"""Servers whose features the status names; the others are counted."""
FEATURES: Final = frozenset({INHERIT, PUBLISH, *WORKS})
"""What the daemon may want of a server."""
SUBJECT: Final = f"{MarkKind.LEVEL.value} of {STORE}"


def lacking_features(model: Regions) -> list[str]:
    """Names the features that servers lack, by server; one that has not come to this daemon has named none."""
    online = [one for one in model.servers.values() if one.state is ServerState.ONLINE and one.here]
    found = sorted((str(one), sorted(FEATURES.difference(one.features))) for one in online)
    lines = [f"{name}: {', '.join(features)}" for name, features in found if features]
    more = len(lines) - NAMED_MAX
    return lines if more <= 0 else [*lines[:NAMED_MAX], f"{counted(more, 'more server')}: see 'regent servers list'"]


class UpgradeView:
    """Raises the level of the active term's store."""

    def __init__(self, domain: RegionsDomain) -> None:
        self._domain = domain

    async def upgrade(self, request: Change, principal: str) -> Procedure:
        """Raises the level to the newest one; refuses while a daemon is known that does not know it."""
        daemons = await requested(acting_term(self._domain).daemons())
        term, caller = acting_term(self._domain), caller_of(request, principal)
        if (again := known(term, caller, request, MARK, SUBJECT)) is not None:
            return again
        level = term.env.model.marks.level
        if level >= NEWEST:
            remedy = "install a release that knows a higher one on all daemons first"
            raise ViewRefused(f"the store has level {level}, the highest one that this daemon knows", remedy)
        if old := sorted({str(one) for one in daemons if one.level < NEWEST}):
            remedy = "upgrade them, or stop them, and try again"
            raise ViewRefused(f"level {NEWEST} is not known to daemons of this store: {named(old)}", remedy)
        data = MARK_TASK.encode(MarkTask(MarkKind.LEVEL, STORE, str(NEWEST), why=caller.reason))
        about = f"level of the store: {level}, then {NEWEST}; it never falls again"
        return await start(term, MARK, data, caller, request, about)


def add_upgrade_route(app: FastAPI, view: UpgradeView) -> None:
    """Adds the route to the surface of a daemon."""

    @app.post("/v1/regions/upgrade", response_model=Document[Procedure])
    async def upgrade(wanted: Change, request: Request) -> Response:
        return document("Procedure", [await view.upgrade(wanted, principal_of(request))])
