"""Procedures on regions that an earlier revision began are carried on, from each write where it may have died."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from unittest import mock

import msgspec
import pytest

from controller.journal.term_journal import TermJournal
from controller.regions import fencing
from controller.regions.environment import Options
from controller.regions.procedures import many, messages
from controller.regions.procedures.every import KINDS
from controller.regions.procedures.messages import Codec
from controller.regions.procedures.namespaces import NAMESPACE_TASK
from controller.regions.procedures.servers import MARK_TASK
from controller.regions.term import RegionsTerm
from controller.regions.zookeeper_claim import ROOT
from regent_agent.protocol import Result
from state_machines.procedures.record import Caller, Record
from tests.contracts.memory import MemoryBackend
from tests.kills import region_daemons
from tests.kills.harness import Clock, Deaths
from tests.kills.region_cases import CASES
from tests.kills.region_daemons import LEASE_MS, Domains, Life, play
from tests.kills.region_servers import Service
from tests.kills.test_regions import on_sqlite, on_zookeeper_of
from tests.kit.journals import DAEMON, Book
from tests.stories.upgrade.golden import SOME, Moment, check_journal, check_record, check_steps, recording, records_in
from tests.stories.upgrade.recording.moments import plain
from tests.stories.upgrade.znodes import restore

ON_ZOOKEEPER: Final = recording("regions_zookeeper")
ON_SQLITE: Final = recording("regions_sqlite")


RECORDS: Final = records_in(ON_ZOOKEEPER.cases.values(), f"{ROOT}/procedures")
MESSAGES: Final[dict[str, Codec[Any]]] = {
    **dict.fromkeys(("assign", "close", "close_stray"), messages.TRANSIT),
    **dict.fromkeys(("assign_many", "close_many"), messages.MANY),
    **dict.fromkeys(("crash", "drain_server"), messages.CRASH),
    **dict.fromkeys(("fence_log", "split_log"), messages.LOG_TASK),
    **dict.fromkeys(("create_table", "enable_table", "disable_table", "delete_table"), messages.TABLE_TASK),
    **dict.fromkeys(("mark", "unmark"), MARK_TASK),
    **dict.fromkeys(("create_namespace", "delete_namespace"), NAMESPACE_TASK),
    "move": messages.MOVE,
}
"""Codec of the message of each kind."""


def service_of(around: dict[str, Any]) -> Service:
    """Returns servers that live on, with what they had."""
    service = Service()
    for name, incarnation, alive, epoch, taken, lists, owned, results in around["servers"]:
        server = service.start(name, incarnation)
        server.alive, server.epoch, server.taken, server.lists = alive, epoch, taken, lists
        server.owned = dict(owned)
        server.results = {one.pid: one for one in msgspec.convert(results, list[Result])}
    service.tokens = dict(around["tokens"])
    service.failing = {region: list(outcomes) for region, outcomes in around["failing"]}
    service.fenced = {(name, incarnation) for name, incarnation in around["fenced"]}
    service.split = {(name, incarnation, part) for name, incarnation, part in around["split"]}
    service.strays = [service.servers[name, incarnation] for name, incarnation in around["strays"]]
    return service


def in_zookeeper(moment: Moment) -> Domains:
    """Returns the recorded znodes."""
    backend = MemoryBackend()
    restore(backend.server, moment.store, {})
    return on_zookeeper_of(backend)


def in_file(moment: Moment, folder: Path) -> Domains:
    """Writes the recorded rows into a file."""
    with contextlib.closing(sqlite3.connect(folder / "regions.db")) as db:
        db.executescript("PRAGMA synchronous=OFF;" + "".join(moment.store))
    return on_sqlite(folder)


async def carried_on(name: str, nonces: dict[str, str], moment: Moment, domains: Domains, book: Book) -> Any:
    """Begins a term on what the killed daemon left, and plays the case on to its end; clients repeat their requests."""
    case, clock, service = CASES[name], Clock(), service_of(moment.around)
    clock.ms = moment.around["clock_ms"]
    options = Options(lease_ms=LEASE_MS, fence_command=("/fence",), **case.options)
    pieces = mock.patch.multiple(many, TOGETHER=1, BATCHES_MAX=2) if case.pieces else contextlib.nullcontext()

    def begun(store: Any, catalog: Any, epoch: int, *args: Any, **more: Any) -> RegionsTerm:
        return RegionsTerm(store, catalog, epoch, *args, **more, journal=book.term(DAEMON, epoch, TermJournal))

    async def run(life: Life, kind: str, data: bytes, *args: Any, _run: Any = Life.run, **more: Any) -> Record:
        found = await _run(life, kind, data, *args, **more, caller=Caller("User:ops", nonce=nonces[kind]))
        assert isinstance(found, Record)
        return found

    with (
        pieces,
        mock.patch.object(fencing, "run_command", service.run_command),
        mock.patch.object(region_daemons, "RegionsTerm", begun),
        mock.patch.object(Life, "run", run),
    ):
        end = await play(domains, service, clock, options, case.story, Deaths(), pieces=case.pieces)
    assert not end.shapes, "the earlier revision knew none"
    return plain(end[:-1])


async def end_alike(name: str, moments: Iterable[Moment]) -> None:
    """Carries some moments in ZooKeeper on, each to the end of the recorded run; judges both journals."""
    case = ON_ZOOKEEPER.cases[name]
    for moment in moments:
        book = Book()
        assert await carried_on(name, case.nonces, moment, in_zookeeper(moment), book) == case.end, moment.when
        check_journal(moment.journal, book.entries)


async def end_alike_in_files(name: str, moments: Iterable[Moment], folder: Path) -> None:
    """Does the same with moments in SQLite, each in a file of its own."""
    case = ON_SQLITE.cases[name]
    for number, moment in enumerate(moments):
        (into := folder / str(number)).mkdir()
        assert await carried_on(name, case.nonces, moment, in_file(moment, into), Book()) == case.end, moment.when


def test_each_step_of_each_kind_was_recorded_and_steps_keep_their_numbers() -> None:
    check_steps(ON_ZOOKEEPER.kinds, KINDS)
    live = {(record.kind, record.step) for record, _ in RECORDS if not record.state.is_final}
    assert live == {(kind, number) for kind, steps in ON_ZOOKEEPER.kinds.items() for number in range(len(steps))}


def test_records_are_written_as_they_were() -> None:
    """A message may have further fields at its end."""
    for record, data in RECORDS:
        check_record(record, data)
        message, former = MESSAGES[record.kind], msgspec.msgpack.decode(record.data)
        present = msgspec.msgpack.decode(message.encode(message.decode(record.data)))
        assert present[: len(former)] == former


@pytest.mark.parametrize("name", ON_ZOOKEEPER.cases)
async def test_a_region_procedure_that_an_earlier_revision_began_ends_as_its_own(name: str) -> None:
    await end_alike(name, ON_ZOOKEEPER.cases[name].moments[::SOME])


@pytest.mark.parametrize("name", ON_SQLITE.cases)
async def test_a_region_procedure_in_a_file_of_an_earlier_revision_ends_as_its_own(name: str, tmp_path: Path) -> None:
    await end_alike_in_files(name, ON_SQLITE.cases[name].moments[1 :: 3 * SOME], tmp_path)
