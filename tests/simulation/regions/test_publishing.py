"""A value reaches all processes of the service in two phases, or none; one that comes meanwhile has it, too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import msgspec
import pytest
from msgspec.structs import replace

from controller.regions.operator.progress import progress_of
from controller.regions.operator.records import detail_of
from controller.regions.operator.ways import of_procedure
from controller.regions.procedures import publish
from controller.regions.procedures.publish import PUBLISH_TASK, PublishTask
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import COMMIT, FAILED, PUBLISHED_MAX, STAGE, UNSTAGE, Operation, Published, Result, Work
from state_machines.procedures.states import State
from state_machines.regions.shapes import PublishedRow
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import OPTIONS, Server, ended, known, procedure, running, serving, until, virtual

PATIENT = replace(OPTIONS, lease_ms=100_000)


class Subscriber(Server):
    """A server with values. ``heard``: works and numbers of values; ``holds``: works that it does not do yet."""

    features = (protocol.PUBLISH,)

    def __init__(self, term: RegionsTerm, name: str, incarnation: int = 1) -> None:
        super().__init__(term, name, incarnation)
        self.heard: list[str] = []
        self.has_published: dict[str, bytes] = {}
        self.holds: set[str] = set()
        self.rejects: set[str] = set()
        self._held: list[Work] = []

    async def register(self, *owned: protocol.Owned) -> protocol.Registered | protocol.Refused:
        found = await super().register(*owned)
        assert isinstance(found, protocol.Registered)
        self.has_published |= {one.name: one.data for one in found.published}
        return found

    async def serve(self) -> None:
        while True:
            operations = await self.poll()
            self._held += [one for one in operations if isinstance(one, Work) and one.what in self.holds]
            if mine := [one for one in operations if one not in self._held]:
                await self.report(*map(self.do, mine))

    async def release(self) -> None:
        """Does what it held."""
        self.holds.clear()
        held, self._held = self._held, []
        await self.report(*map(self.do, held))

    @property
    def held(self) -> list[str]:
        return [one.what for one in self._held]

    def do(self, operation: Operation) -> Result:
        if not isinstance(operation, Work):
            return super().do(operation)
        assert (operation.region, operation.token) == (0, 0)
        value = msgspec.msgpack.decode(operation.data, type=Published)
        self.heard.append(operation.what)
        if operation.what in self.rejects:
            return Result(operation.pid, FAILED, text="no such user")
        if operation.what == COMMIT:
            self.has_published[value.name] = value.data
        return Result(operation.pid, protocol.DONE)


def publishes(term: RegionsTerm, value: bytes, name: str = "acl") -> Awaitable[int]:
    return procedure(term, publish.NAME, PUBLISH_TASK.encode(PublishTask(name, value)))


def all_have(value: bytes, *servers: Subscriber) -> bool:
    return all(one.has_published.get("acl") == value for one in servers)


@pytest.mark.seed("S2-35", "S2-44", "S2-45", "S2-52")
@virtual
async def test_no_process_commits_before_all_have_staged() -> None:
    async with running(RegionDisk(), PATIENT) as term:
        a, b, old = Subscriber(term, "a"), Subscriber(term, "b"), Server(term, "old")
        b.holds = {STAGE}
        async with serving(a, b, old):
            pid = await publishes(term, b"a=rw")
            await until(lambda: a.heard and b.held)
            await asyncio.sleep(5)
            assert (a.heard, b.heard, b.held) == ([STAGE], [], [STAGE])
            assert not term.env.model.published
            record = term.engine.records[pid]
            assert detail_of(record) == "value acl, 1 of 2 servers"
            assert progress_of(record, term.env, term.engine) == "it waits for b,1"
            assert of_procedure(record, term.env, term.engine) == (
                "'regent servers expire b' has b,1 fenced, where it never responds; "
                f"'regent regions procedures abort {pid}' takes the value back"
            )
            await b.release()
            assert await ended(term, known(pid)) == b"2"
            assert (a.heard, b.heard) == ([STAGE, COMMIT], [STAGE, COMMIT])
            assert all_have(b"a=rw", a, b)
            assert await ended(term, publishes(term, b"a=r")) == b"2"
            assert all_have(b"a=r", a, b)
            assert term.env.model.published["acl"].number > pid
            assert (term.engine.locks(), term.env.dispatcher._expected, term.env.bus._awaited) == ([], {}, {})


@pytest.mark.seed("S2-43", "S2-46", "S2-52")
@virtual
async def test_where_one_process_cannot_prepare_it_all_are_told_that_it_is_of_no_use() -> None:
    async with running(RegionDisk(), PATIENT) as term:
        a, b, c = Subscriber(term, "a"), Subscriber(term, "b"), Subscriber(term, "c")
        b.rejects = {STAGE}
        async with serving(a, b, c):
            record = await term.engine.result(await publishes(term, b"a=rw"))
            assert (record.state, record.error) == (
                State.ROLLEDBACK,
                "server b,1: b,1 said failed: no such user",
            )
            assert [one.heard for one in (a, b, c)] == [[STAGE, UNSTAGE]] * 3
            assert not term.env.model.published
            assert not any(one.has_published for one in (a, b, c))


@virtual
async def test_an_abort_undoes_it_on_all_and_overtakes_no_message_that_is_under_way() -> None:
    async with running(RegionDisk(), PATIENT) as term:
        a, b = Subscriber(term, "a"), Subscriber(term, "b")
        b.holds = {STAGE}
        async with serving(a, b):
            pid = await publishes(term, b"a=rw")
            await until(lambda: a.heard and b.held)
            assert await term.engine.abort(pid)
            await until(lambda: UNSTAGE in a.heard)
            await asyncio.sleep(5)
            assert b.held == [STAGE]
            await b.release()
            assert (await term.engine.result(pid)).state is State.ROLLEDBACK
            assert b.heard == [STAGE, UNSTAGE]


@virtual
async def test_once_it_is_stored_it_is_not_undone_and_a_process_that_cannot_commit_is_told_again() -> None:
    async with running(RegionDisk(), PATIENT) as term:
        a, b = Subscriber(term, "a"), Subscriber(term, "b")
        b.rejects = {COMMIT}
        async with serving(a, b):
            pid = await publishes(term, b"a=rw")
            await until(lambda: b.heard.count(COMMIT) > 2)
            assert not await term.engine.abort(pid)
            assert "abort" not in of_procedure(term.engine.records[pid], term.env, term.engine)
            assert all_have(b"a=rw", a)
            b.rejects.clear()
            assert await ended(term, known(pid)) == b"2"
            assert all_have(b"a=rw", a, b)
            assert a.heard.count(COMMIT) == 1


@pytest.mark.parametrize("while_", [STAGE, COMMIT])
def test_a_process_that_comes_meanwhile_has_the_value_in_the_end(while_: str) -> None:
    """Before it is stored, it hears the commit; afterwards it gets it with the response to its registration."""

    @virtual
    async def story() -> None:
        async with running(RegionDisk(), PATIENT) as term:
            a, late = Subscriber(term, "a"), Subscriber(term, "late")
            async with serving(a):
                await ended(term, publishes(term, b"old"))
                a.holds = {while_}
                pid = await publishes(term, b"a=rw")
                await until(lambda: a.held)
                async with serving(late):
                    assert all_have(b"old" if while_ == STAGE else b"a=rw", late)
                    await a.release()
                    await ended(term, known(pid))
                    assert all_have(b"a=rw", a, late)
                    assert late.heard == ([COMMIT] if while_ == STAGE else [])

    story()


@pytest.mark.seed("S2-36")
@virtual
async def test_a_process_that_crashes_is_awaited_until_its_fence_and_its_next_one_has_the_value() -> None:
    async with running(RegionDisk()) as term:
        a, b = Subscriber(term, "a"), Subscriber(term, "b")
        async with serving(a):
            async with serving(b):
                b.holds = {STAGE}
                pid = await publishes(term, b"a=rw")
                await until(lambda: b.held)
            assert not term.engine.records[pid].state.is_final
            assert await ended(term, known(pid)) == b"1"
            assert all_have(b"a=rw", a)
            assert ("b", 1) not in term.env.model.servers or term.env.model.is_fenced(("b", 1))
            again = Subscriber(term, "b", 2)
            async with serving(again):
                assert all_have(b"a=rw", again)


@virtual
async def test_a_daemon_that_follows_goes_on_and_knows_what_is_published() -> None:
    disk = RegionDisk()
    async with running(disk, PATIENT) as term:
        a = Subscriber(term, "a")
        a.holds = {STAGE}
        async with serving(a):
            pid = await publishes(term, b"a=rw")
            await until(lambda: a.held)
    async with running(disk, PATIENT) as term:
        a = Subscriber(term, "a")
        async with serving(a):
            assert await ended(term, known(pid)) == b"1"
            assert a.heard == [STAGE, COMMIT]
    async with running(disk, PATIENT) as term:
        assert term.env.model.published == {"acl": PublishedRow("acl", pid, b"a=rw")}
        b = Subscriber(term, "b")
        async with serving(b):
            assert all_have(b"a=rw", b)


@virtual
async def test_a_value_is_removed_and_processes_that_come_later_do_not_get_it() -> None:
    async with running(RegionDisk(), PATIENT) as term:
        a = Subscriber(term, "a")
        async with serving(a):
            await ended(term, publishes(term, b"a=rw"))
            await ended(term, procedure(term, publish.REMOVE, PUBLISH_TASK.encode(PublishTask("acl"))))
            late = Subscriber(term, "late")
            async with serving(late):
                assert (late.has_published, all_have(b"a=rw", a)) == ({}, True)
            gone = await procedure(term, publish.REMOVE, PUBLISH_TASK.encode(PublishTask("acl")))
            assert "no value 'acl' is published" in (await term.engine.result(gone)).error


@virtual
async def test_values_are_bounded() -> None:
    async with running(RegionDisk(), PATIENT) as term:
        for number in range(PUBLISHED_MAX):
            term.env.model.published[str(number)] = PublishedRow(str(number), 1, b"")
        record = await term.engine.result(await publishes(term, b"a=rw"))
        assert record.error == "100 values are published, which is the most: 'regent published remove NAME' removes one"
        assert await ended(term, publishes(term, b"another", "7")) == b"0"
