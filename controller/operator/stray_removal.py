"""Has brokers delete strays at the request of operators: judged again when it is handled, and when it is sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Final, Literal

from fastapi import FastAPI, Request, Response
from pydantic import Field

from brokers.listener.controller_listener import NotController
from controller.http.documents import NotActive, document
from controller.http.models import Document, Item, RequestItem, Words
from controller.http.peers import principal_of
from controller.kafka.path.remembered import Removal
from controller.kafka.requests.calls import Calls
from controller.kafka.term.term import Term
from controller.operator.brokers import BROKERS_MAX, BrokerId
from controller.operator.strays import StrayLog, StrayReport, StrayView, UnreadBroker
from state_machines.decisions.strays import StrayReason
from state_machines.model.types import TopicPartition

log = logging.getLogger("regent.controller")

RESPONSE_S_MAX: Final = 30.0
"""Longest wait for the responses of all brokers together."""
NO_RESPONSE: Final = f"the broker did not respond within {RESPONSE_S_MAX:g} s: list the strays again later"
FUTURE: Final = "it moves between two directories of its broker: wait until the move has ended, or cancel it"
OFFLINE: Final = "its log directory is offline: repair the directory and restart the broker"
Place = tuple[int, TopicPartition]
Outcome = Literal["planned", "removed", "kept", "no response"]


class StrayRemovalRequest(RequestItem):
    """Strays to remove: on these brokers (none given: on all registered ones), of one topic or of all."""

    brokers: Annotated[list[BrokerId], Field(max_length=BROKERS_MAX)] = []
    topic: Annotated[str, Field(max_length=249)] = ""
    dry_run: bool = False
    reason: Words = ""


class StrayOutcome(Item):
    """A stray that was to be removed. ``why``: the reason where it was not."""

    outcome: Outcome
    broker: int
    topic: str
    partition: int
    directory: str
    size_bytes: int
    why: str = ""


class StrayRemoval(Item):
    """The result of a removal; ``unread`` and ``cut`` as in the report."""

    dry_run: bool
    brokers: list[int]
    strays: list[StrayOutcome] = []
    unread: list[UnreadBroker] = []
    cut: list[int] = []


class StrayRemovalView:
    """Has brokers delete their strays; only the active daemon does."""

    def __init__(self, active: Callable[[], Term], strays: StrayView) -> None:
        self._active = active
        self._strays = strays

    async def removed(self, request: StrayRemovalRequest, principal: str) -> StrayRemoval:
        """Lists strays as :meth:`StrayView.listed` does, and has their brokers delete them."""
        term = self._active()
        return await removed(term, request, principal, await self._strays.listed(request.brokers))


def add_stray_removal_route(app: FastAPI, view: StrayRemovalView) -> None:
    """Adds the route to the surface of a daemon."""

    @app.post("/v1/strays/remove", response_model=Document[StrayRemoval])
    async def remove(wanted: StrayRemovalRequest, request: Request) -> Response:
        return document("StrayRemoval", [await view.removed(wanted, principal_of(request))])


async def removed(term: Term, request: StrayRemovalRequest, principal: str, report: StrayReport) -> StrayRemoval:
    """Removes the strays of a report that are of the request's topic; in a dry run nothing is sent."""
    found = [stray for stray in report.strays if request.topic in ("", stray.topic)]
    kept = _kept(found)
    outcomes: dict[Place, tuple[Outcome, str]] = {place: ("kept", why) for place, why in kept.items()}
    wanted = sorted({_place(stray) for stray in found} - kept.keys())
    if request.dry_run:
        outcomes |= dict.fromkeys(wanted, ("planned", ""))
    elif wanted:
        named = f" ({request.reason})" if request.reason else ""
        brokers = sorted({broker for broker, _ in wanted})
        log.warning("%d strays on brokers %s are deleted: requested by %s%s", len(wanted), brokers, principal, named)
        sent = await _sent(term, wanted)
        outcomes |= sent
    return StrayRemoval(
        dry_run=request.dry_run,
        brokers=report.brokers,
        strays=[_outcome(stray, *outcomes[_place(stray)]) for stray in found],
        unread=report.unread,
        cut=report.cut,
    )


def _place(stray: StrayLog) -> Place:
    return stray.broker, TopicPartition(stray.topic, stray.partition)


def _kept(strays: Iterable[StrayLog]) -> dict[Place, str]:
    """Returns the logs that no request is sent for: StopReplica would not reach them, or would end a move."""
    found: dict[Place, str] = {}
    for stray in strays:
        if stray.is_future:
            found[_place(stray)] = FUTURE
        elif stray.reason == StrayReason.DIRECTORY_OFFLINE.value:
            found.setdefault(_place(stray), OFFLINE)
    return found


async def _sent(term: Term, wanted: Sequence[Place]) -> dict[Place, tuple[Outcome, str]]:
    """Sends StopReplica for logs, and waits for the responses; returns the outcome of each."""
    names: dict[int, list[TopicPartition]] = {}
    for broker, name in wanted:
        names.setdefault(broker, []).append(name)
    removals = [Removal(broker, some) for broker, some in names.items()]
    memory = term.controller.strays
    try:
        async with asyncio.timeout(RESPONSE_S_MAX):
            for removal in removals:
                await Calls(term.queue).remove_strays(removal)
            for removal in removals:
                await removal.done.wait()
    except TimeoutError:
        pass
    except NotController as ended:
        raise NotActive("the term ended, or its queue is full", "list the strays again; see 'regent status'") from ended
    finally:
        memory.removals = [removal for removal in memory.removals if removal not in removals]
    found: dict[Place, tuple[Outcome, str]] = dict.fromkeys(wanted, ("no response", NO_RESPONSE))
    for removal in removals:
        for name, why in removal.outcomes.items():
            found[removal.broker, name] = ("removed", "") if why is None else ("kept", why)
    return found


def _outcome(stray: StrayLog, outcome: Outcome, why: str) -> StrayOutcome:
    return StrayOutcome(
        outcome=outcome,
        broker=stray.broker,
        topic=stray.topic,
        partition=stray.partition,
        directory=stray.directory,
        size_bytes=stray.size_bytes,
        why=why,
    )
