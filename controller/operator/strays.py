"""Lists strays, logs on brokers that no assignment names: by the brokers' reports and the active daemon's model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import FastAPI, Query, Response
from pydantic import Field

from brokers.client import BrokerCallFailed
from brokers.queries import BrokerQueries, Dial
from controller.http.documents import NotActive, ViewRefused, document
from controller.http.models import Document, Item
from controller.kafka.term.term import Term
from controller.operator.brokers import BROKERS_MAX, BrokerId
from metadata_store import paths
from metadata_store.errors import ZooKeeperError
from state_machines.decisions.strays import Stray, strays
from state_machines.model.types import Broker, LogDirectory

BROKER_STRAYS_MAX: Final = 1_000
"""Most strays that are listed of one broker."""
TURN_LOGS: Final = 10_000
"""Logs that are judged in one turn of the event loop: some 10 ms."""
REPORTS_S_MAX: Final = 50.0
"""Longest time of all reports together; brokers that are left then are not read."""
REMEMBERED_MAX: Final = 1_000
"""Most remembered replicas that are listed; all are counted."""
Found = tuple[list[Stray], bool]
"""The first strays of a broker, and whether it has more."""
Brokers = Annotated[list[BrokerId] | None, Query(alias="broker", max_length=BROKERS_MAX)]


class StrayLog(Item):
    """A log that no assignment names. ``is_future``: it moves between two directories of its broker."""

    broker: int
    topic: str
    partition: int
    directory: str
    size_bytes: int
    is_future: bool = False
    reason: str


class UnreadBroker(Item):
    """A broker whose logs are not known, and why."""

    broker: int
    why: str


class RememberedReplica(Item):
    """A replica that was removed and that its broker has still to stop."""

    broker: int
    topic: str
    partition: int
    since: datetime
    registered: bool = Field(description="the broker is there, so that it is being stopped")


class StrayReport(Item):
    """Strays by broker. ``cut``: brokers with more strays than are listed."""

    brokers: list[int]
    strays: list[StrayLog] = []
    unread: list[UnreadBroker] = []
    cut: list[int] = []
    remembered: list[RememberedReplica] = []
    remembered_total: int = 0


class StrayView:
    """The strays as operators see them; only the active daemon judges them, one request at a time."""

    def __init__(self, active: Callable[[], Term], dial: Dial) -> None:
        self._active = active
        self._dial = dial
        self._running = asyncio.Lock()

    async def listed(self, brokers: Sequence[int]) -> StrayReport:
        """Lists strays on brokers, one after the other; without any, on all that are live or that assignments name.

        A stray counts where two reports have it and the model names it after neither: a log that is being deleted, or
        that belongs to a topic which the daemon has not read yet, is none. Raises :class:`NotActive`, and
        :class:`ViewRefused` while another request runs.
        """
        term = self._active()
        if self._running.locked():
            raise ViewRefused("another request lists strays", "try again once it is done")
        async with self._running:
            report = await self._report(term, sorted(set(brokers) or {*term.cluster.brokers, *term.cluster.hosts()}))
        listed, total = remembered(term, brokers)
        return report.model_copy(update={"remembered": listed, "remembered_total": total})

    async def _report(self, term: Term, wanted: Sequence[int]) -> StrayReport:
        found: list[Stray] = []
        cut: list[int] = []
        unread: dict[int, str] = {}
        ends_s = asyncio.get_running_loop().time() + REPORTS_S_MAX
        for broker in wanted:
            known = term.cluster.brokers.get(broker)
            if known is None:
                unread[broker] = "it is not registered: start it"
                continue
            try:
                async with asyncio.timeout_at(ends_s):
                    some, more = await self._of(term, known)
            except BrokerCallFailed as failed:
                unread[broker] = str(failed)
                continue
            except TimeoutError:
                unread[broker] = f"no report within the {REPORTS_S_MAX:.0f} s of the request: name fewer brokers"
                continue
            found += some
            cut += [broker] * more
        return StrayReport(
            brokers=[broker for broker in wanted if broker not in unread],
            strays=[_item(stray) for stray in found],
            unread=[UnreadBroker(broker=broker, why=why) for broker, why in unread.items()],
            cut=cut,
        )

    async def _of(self, term: Term, broker: Broker) -> Found:
        async with self._dial(broker) as queries:
            suspects, more = await self._suspects(term, broker, queries, None)
            if not suspects:
                return [], False
            named: dict[str, list[int]] = {}
            for stray in suspects:
                numbers = named.setdefault(stray.topic, [])
                if stray.partition not in numbers[-1:]:
                    numbers.append(stray.partition)
            confirmed, _ = await self._suspects(term, broker, queries, named)
            return confirmed, more

    async def _suspects(
        self, term: Term, broker: Broker, queries: BrokerQueries, partitions: Mapping[str, Sequence[int]] | None
    ) -> Found:
        """Judges one report by a model that is at least as new."""
        directories = await queries.replica_logs(partitions)
        unread = await _unread(term)
        found: list[Stray] = []
        for some in _slices(directories):
            found += strays({broker.id: [some]}, term.cluster, unread)
            if len(found) > BROKER_STRAYS_MAX:
                break
            await asyncio.sleep(0)
        return found[:BROKER_STRAYS_MAX], len(found) > BROKER_STRAYS_MAX


def add_stray_route(app: FastAPI, view: StrayView) -> None:
    """Adds the route to the surface of a daemon."""

    @app.get("/v1/strays", response_model=Document[StrayReport])
    async def listed(brokers: Brokers = None) -> Response:
        return document("StrayReport", [await view.listed(brokers or ())])


async def _unread(term: Term) -> frozenset[str]:
    """Reads which topics exist that the model lacks: malformed ones, and those that are being read."""
    try:
        await term.zk.sync(paths.TOPICS)
        listed = await term.zk.children(paths.TOPICS)
    except ZooKeeperError as error:
        raise NotActive(f"ZooKeeper does not send {paths.TOPICS}: {error}", "try again once it responds") from error
    if not term.gate.open():
        raise NotActive("the daemon may not act now, so its model may be old", "see 'regent status'")
    return frozenset(listed[0] if listed is not None else ()) - term.cluster.topic_index.keys()


def _slices(directories: Sequence[LogDirectory]) -> Iterator[LogDirectory]:
    for directory in directories:
        for start in range(0, len(directory.logs), TURN_LOGS):
            yield LogDirectory(directory.path, directory.error, directory.logs[start : start + TURN_LOGS])


def _item(stray: Stray) -> StrayLog:
    return StrayLog(
        broker=stray.broker,
        topic=stray.topic,
        partition=stray.partition,
        directory=stray.directory,
        size_bytes=stray.size_bytes,
        is_future=stray.is_future,
        reason=stray.reason.value,
    )


def remembered(term: Term, brokers: Sequence[int]) -> tuple[list[RememberedReplica], int]:
    """Returns the first removed replicas that their brokers have still to stop, on these brokers, and their number."""
    registered = term.cluster.brokers
    found = [
        RememberedReplica(
            broker=key.broker,
            topic=key.topic,
            partition=number,
            since=datetime.fromtimestamp(since_ms / 1000, UTC),
            registered=key.broker in registered,
        )
        for key, entry in sorted(term.controller.strays.entries.items())
        if not brokers or key.broker in brokers
        for number, since_ms in sorted(entry.content.partitions.items())
    ]
    return found[:REMEMBERED_MAX], len(found)
