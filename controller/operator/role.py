"""Runs take-overs and hand-backs that operators request of a daemon, and lists those before.

It begins at once, and reports while they run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Literal

from fastapi import FastAPI, Request, Response

from brokers.queries import Dial
from controller.daemon.daemon import Daemon
from controller.daemon.handback import HandbackFailed, HandbackRefused, hand_back, handed_back
from controller.daemon.takeover import TakeoverRefused, take_over, until_held
from controller.http.documents import NotActive, NotFound, ViewRefused, document
from controller.http.models import Document, Item, Operation, OperationRequest
from controller.http.peers import principal_of
from controller.process.zookeeper import ReleaseOf
from controller.role import own_znodes as own
from controller.role.claim import Role
from controller.role.history import RoleChange, read_history
from metadata_store.errors import ZooKeeperError

log = logging.getLogger("regent.role")

TAKEOVER_S_MAX: Final = 120.0
"""Longest time for which a take-over is followed; the claim continues without it."""
Kind = Literal["takeover", "handback"]


class RoleChangeItem(Item):
    """A change of the role flag: the side that got the role, when, by whose request, and why."""

    at: datetime
    holder: str
    principal: str = ""
    reason: str = ""


class RoleView:
    """Runs one operation at a time."""

    def __init__(self, daemon: Daemon, dial: Dial, release_of: ReleaseOf) -> None:
        self._last: Operation | None = None
        self._daemon = daemon
        self._dial = dial
        self._release_of = release_of
        self._task: asyncio.Task[None] | None = None

    async def takeover(self, request: OperationRequest, principal: str) -> Operation:
        """Begins a take-over, or plans it in a dry run."""
        role = self._begin()
        if request.dry_run:
            return await self._planned(lambda: self._take_over(role, request, principal))
        return self._start("takeover", request, lambda: self._take_over(role, request, principal))

    async def handback(self, request: OperationRequest, principal: str) -> Operation:
        """Begins a hand-back, or plans it in a dry run, unless a broker holds the role already."""
        role = self._begin()
        with suppress(ZooKeeperError):  # where ZooKeeper does not answer now, the hand-back itself reports it
            broker = await handed_back(role)
            if broker is not None:
                message = f"broker {broker} holds the role already: nothing to do"
                return Operation(kind="handback", state="done", message=message)
        self._begin()  # again: another operation may have begun meanwhile
        if request.dry_run:
            steps = [
                "pause reassign plans, and lift their throttles",
                "set the role flag to brokers",
                "refuse brokers' requests, handle waiting events, propagate them to every broker",
                "restore the ACL of /controller_epoch, where daemons locked it",
                "delete /controller: a broker is elected",
                "wait until every live broker knows it; otherwise take the role back",
            ]
            return Operation(kind="handback", state="planned", message="this would be done", steps=steps)
        return self._start("handback", request, lambda: self._hand_back(request, principal))

    def operation(self) -> Operation | None:
        """Returns the running take-over or hand-back, or the last one of this process."""
        return self._last

    async def changes(self) -> list[RoleChangeItem]:
        """Lists the latest changes, the oldest first."""
        role = self._daemon.role
        if role is None:
            raise NotActive("this daemon has no ZooKeeper session", "wait until it is connected, then try again")
        try:
            found = await read_history(role.zk)
        except ZooKeeperError as error:
            raise NotActive(f"ZooKeeper does not send {own.HISTORY}: {error}", "try again; check its ACL") from error
        if found is None:
            raise ViewRefused(f"{own.HISTORY} cannot be understood", "upgrade this daemon, or delete the znode")
        return list(map(_item, found))

    def _begin(self) -> Role:
        if self._task is not None and not self._task.done():
            assert self._last is not None
            raise ViewRefused(f"a {self._last.kind} is running", "wait for its end: see 'regent status'")
        if self._daemon.shadow is not None:
            raise ViewRefused(
                "this daemon is a shadow: it never holds the role", "use a daemon that runs without --shadow"
            )
        if self._daemon.role is None:
            raise ViewRefused("this daemon has no ZooKeeper session", "wait until it is connected, then try again")
        return self._daemon.role

    def _start(self, kind: Kind, request: OperationRequest, work: Callable[[], Awaitable[str]]) -> Operation:
        self._last = Operation(
            kind=kind,
            state="running",
            message=f"the {kind} has begun",
            reason=request.reason,
            started=datetime.now(UTC),
        )
        self._task = asyncio.create_task(self._followed(work), name=kind)
        return self._last

    async def _followed(self, work: Callable[[], Awaitable[str]]) -> None:
        state: Literal["done", "failed", "refused"] = "failed"
        remedy = ""
        try:
            message, state = await work(), "done"
        except HandbackFailed as failed:
            message, remedy = failed.why, failed.remedy
        except (HandbackRefused, TakeoverRefused) as refused:
            message, remedy, state = refused.why, refused.remedy, "refused"
        except ZooKeeperError as error:
            message, remedy = f"ZooKeeper: {error}", "try again once it answers: every step may be repeated"
        except Exception as error:
            log.exception("the %s failed by an error", self._last.kind if self._last is not None else "operation")
            message, remedy = f"error: {error!r}", "see the daemon's log, then try again"
        self._update(state=state, message=message, remedy=remedy)

    async def _planned(self, work: Callable[[], Awaitable[str]]) -> Operation:
        """Runs a dry run; returns its steps, or the reason of a refusal."""
        try:
            steps = (await work()).splitlines()
        except TakeoverRefused as refused:
            return Operation(kind="takeover", state="refused", message=refused.why, remedy=refused.remedy)
        return Operation(kind="takeover", state="planned", message="this would be done", steps=steps)

    async def _take_over(self, role: Role, request: OperationRequest, principal: str) -> str:
        done = await take_over(
            self._daemon.settings,
            role,
            dial=self._dial,
            release_of=self._release_of,
            reason=request.reason,
            by=principal,
            own_listener=True,
            dry_run=request.dry_run,
        )
        if request.dry_run:
            return "\n".join(done.steps)
        if done.file is not None:
            self._note(f"the state before it is saved in {done.file}")
        self._note("the role is regent's: the first daemon of the queue claims it")
        held, seen = await until_held(lambda: self._daemon.role, self._dial, TAKEOVER_S_MAX)
        outcome = seen.sentence() if seen is not None else "ZooKeeper did not answer"
        return outcome if held else f"the role is regent's, and after {TAKEOVER_S_MAX:g} s {outcome}"

    async def _hand_back(self, request: OperationRequest, principal: str) -> str:
        return (await hand_back(self._daemon, self._dial, request.reason, self._note, principal)).sentence()

    def _note(self, step: str) -> None:
        assert self._last is not None
        self._update(steps=[*self._last.steps, step])

    def _update(self, **changes: object) -> None:
        assert self._last is not None
        self._last = self._last.model_copy(update=changes)


def add_role_routes(app: FastAPI, role: RoleView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/role/history", response_model=Document[RoleChangeItem])
    async def changes() -> Response:
        return document("RoleChangeItem", await role.changes())

    @app.post("/v1/role/takeover", response_model=Document[Operation])
    async def takeover(wanted: OperationRequest, request: Request) -> Response:
        return document("Operation", [await role.takeover(wanted, principal_of(request))])

    @app.post("/v1/role/handback", response_model=Document[Operation])
    async def handback(wanted: OperationRequest, request: Request) -> Response:
        return document("Operation", [await role.handback(wanted, principal_of(request))])

    @app.get("/v1/role/operation", response_model=Document[Operation])
    async def operation() -> Response:
        found = role.operation()
        if found is None:
            raise NotFound("no take-over and no hand-back since this daemon started", "see `regent status`")
        return document("Operation", [found])


def _item(change: RoleChange) -> RoleChangeItem:
    at = datetime.fromtimestamp(change.at_ms / 1000, UTC)
    return RoleChangeItem(at=at, holder=change.holder, principal=change.by, reason=change.reason)
