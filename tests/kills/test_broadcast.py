"""One message to many servers: a result of each, resent after silence; failures undo it everywhere; two phases."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controller.procedures.broadcast import (
    SERVERS_MAX,
    UNDER_WAY_MAX,
    Broadcast,
    BroadcastEnv,
    Phase,
    Rejected,
    Resending,
    Responses,
    Send,
    Unreachable,
    encode,
    results,
)
from controller.procedures.engine import Engine
from controller.procedures.kinds import Kind, Step
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from testing.memory.region_store import Disk, MemoryRecords
from tests.kills.harness import Clock, Daemon, Death, Deaths, KillingStore
from tests.kills.tally import RecordProperty, tally
from tests.kit.deadlines import in_exact_time

SERVERS = (1, 2, 3)
CALLER = Caller(principal="User:ops", nonce="n")


class Servers:
    """Servers that keep what they were sent last; some are silent for a while, or reject what they are sent."""

    def __init__(self) -> None:
        self.has: dict[int, str] = {}
        self.sent: Counter[tuple[str, int]] = Counter()
        self.silent: Counter[int] = Counter()
        self.rejects: Counter[tuple[str, int]] = Counter()

    def send(self, what: str) -> Send:
        async def send(server: int, message: bytes) -> str:
            await asyncio.sleep(0)
            self.sent[what, server] += 1
            if self.silent[server]:
                self.silent[server] -= 1
                raise Unreachable(f"server {server} is silent")
            if self.rejects[what, server]:
                self.rejects[what, server] -= 1
                raise Rejected(f"cannot {what}")
            self.has[server] = f"{what} {message.decode()}"
            return f"{what} on {server}"

        return send


MANY = tuple(range(1, 301))


class Env:
    """The servers, and the part of a daemon that a broadcast needs."""

    def __init__(self, servers: Servers, clock: Clock) -> None:
        self.servers = servers
        self.tasks: set[asyncio.Task[None]] = set()
        self.part = BroadcastEnv(Responses(self.spawn), clock.now_ms)

    def spawn(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def demand(_: Record) -> Demand:
    return Demand(Resource(Scope.SERVER, "all"), exclusive=True)


def phase(what: str, back: str | None = None, **more: object) -> Step[Env]:
    undo = None if back is None else lambda env: env.servers.send(back)
    made: Phase[Env] = Phase(lambda env: env.part, lambda env: env.servers.send(what), undo, **more)  # type: ignore[arg-type]
    return Step(what, made.execute, made.undo)


ONE = Kind[Env]("one", (phase("set", "unset"),), demand)
TWO = Kind[Env]("two", (phase("stage", "drop", last=False), phase("commit")), demand, no_return=1)
BOUNDED = Kind[Env]("bounded", (phase("set", "unset", how=Resending(tries_max=3)),), demand)
OTHER = Kind[Env]("other", (phase("set", "unset"),), lambda _: Demand(Resource(Scope.SERVER, "other"), exclusive=True))
TWICE = Kind[Env](
    "twice", (phase("open", "close", last=False), phase("fill", "empty", last=False), phase("seal", "break")), demand
)
KINDS = (ONE, TWO, BOUNDED, OTHER, TWICE)


@asynccontextmanager
async def daemon(servers: Servers, disk: Disk, clock: Clock, deaths: Deaths) -> AsyncIterator[Daemon[Env]]:
    env = Env(servers, clock)
    found = Daemon(env, KINDS, KillingStore(MemoryRecords(disk), deaths), clock)
    env.part.responses.wake = found.engine.wake
    await found.engine.load()
    yield found
    for task in env.tasks:
        task.cancel()


async def played(servers: Servers, kind: str, deaths: Deaths | None = None) -> Record:
    """Runs a broadcast to its end, with a new daemon after each death."""
    from metadata_store.port import Kill

    disk, clock, fates = Disk(), Clock(), deaths or Deaths()

    async def call(engine: Engine[Env]) -> Record:
        pid = await engine.submit(kind, encode(Broadcast(SERVERS, b"x")), CALLER)
        return await engine.result(pid)

    while True:
        async with daemon(servers, disk, clock, fates) as found:
            try:
                return await found.run(call(found.engine))
            except Kill:
                continue


@pytest.mark.seed("S2-2", "S2-6", "S2-8", "S2-40", "S2-41")
async def test_each_server_has_a_result() -> None:
    servers = Servers()
    record = await played(servers, "one")
    assert servers.has == dict.fromkeys(SERVERS, "set x")
    assert [(one.server, one.ok, one.text) for one in sorted(results(record.result), key=lambda r: r.server)] == [
        (server, True, f"set on {server}") for server in SERVERS
    ]


@pytest.mark.seed("S2-29", "S2-36", "S2-42")
async def test_a_silent_server_is_sent_the_message_again_and_the_others_are_not() -> None:
    servers = Servers()
    servers.silent[2] = 4
    record = await played(servers, "one")
    assert record.state is State.SUCCESS
    assert servers.sent == {("set", 1): 1, ("set", 2): 5, ("set", 3): 1}


@pytest.mark.seed("S2-43")
async def test_one_rejection_undoes_the_message_on_all_servers() -> None:
    servers = Servers()
    servers.rejects["set", 3] = 1
    record = await played(servers, "one")
    assert (record.state, record.error) == (State.ROLLEDBACK, "server 3: cannot set")
    assert servers.has == dict.fromkeys(SERVERS, "unset x")


@pytest.mark.seed("S2-30", "S2-42")
async def test_a_server_that_stays_silent_fails_the_step_after_its_tries_and_is_undone_once_it_responds() -> None:
    servers = Servers()
    servers.silent[1] = 10
    record = await played(servers, "bounded")
    assert record.state is State.ROLLEDBACK
    assert servers.sent["set", 1] == 3
    assert servers.has == dict.fromkeys(SERVERS, "unset x")


@pytest.mark.seed("S2-44", "S2-45", "S2-52")
async def test_two_phases_commit_only_what_all_have_staged() -> None:
    servers = Servers()
    assert (await played(servers, "two")).state is State.SUCCESS
    assert servers.has == dict.fromkeys(SERVERS, "commit x")
    refusing = Servers()
    refusing.rejects["stage", 2] = 1
    assert (await played(refusing, "two")).state is State.ROLLEDBACK
    assert refusing.has == dict.fromkeys(SERVERS, "drop x")
    assert not any(what == "commit" for what, _ in refusing.sent)


async def test_a_commit_that_is_rejected_is_tried_until_it_succeeds() -> None:
    servers = Servers()
    servers.rejects["commit", 3] = 3
    assert (await played(servers, "two")).state is State.SUCCESS
    assert servers.sent["commit", 3] == 4
    assert [servers.sent["commit", one] for one in (1, 2)] == [1, 1], "those that have committed are left alone"
    assert servers.has == dict.fromkeys(SERVERS, "commit x")


async def test_each_step_is_undone_on_each_server_the_latest_first() -> None:
    servers = Servers()
    servers.rejects["seal", 2] = 1
    record = await played(servers, "twice")
    assert (record.state, record.error) == (State.ROLLEDBACK, "server 2: cannot seal")
    for what in ("break", "empty", "close"):
        assert [servers.sent[what, one] for one in SERVERS] == [1, 1, 1]
    assert servers.has == dict.fromkeys(SERVERS, "close x")


@in_exact_time
async def test_a_server_that_never_responds_has_a_result_in_time_and_its_late_phase_counts_for_no_other() -> None:
    tasks: list[asyncio.Future[None]] = []
    woken: list[int] = []
    responses = Responses(lambda work: tasks.append(asyncio.ensure_future(work)))
    responses.wake = woken.append

    async def hangs(_server: int, _message: bytes) -> str:
        await asyncio.Event().wait()
        return "never"

    async def responds(server: int, _message: bytes) -> str:
        return f"{server} has it"

    responses.send(7, 1, (0, False), b"", hangs, Resending(timeout_s=10, tries_max=1))
    assert responses.next(7, (1, 2)) == [2]
    responses.send(7, 1, (0, True), b"", responds, Resending())
    await asyncio.wait(tasks, timeout=60)
    assert (woken, len(tasks)) == ([7], 1), "one message to it is under way at a time"
    assert responses.take(7, (0, True)) == [], "what came is of the step, and not of its undo"
    assert responses.next(7, (1, 2)) == [1, 2]
    responses.send(7, 1, (0, True), b"", responds, Resending())
    await asyncio.wait(tasks, timeout=60)
    assert [(one.ok, one.text) for one in responses.take(7, (0, True))] == [(True, "1 has it")]


@pytest.mark.seed("S2-37", "S2-38")
@pytest.mark.parametrize("kind", ["one", "two"])
@pytest.mark.parametrize("rejects", [(), (("set", 2), ("stage", 2))], ids=["forward", "undone"])
async def test_a_broadcast_whose_daemon_is_killed_at_any_write_ends_as_the_clean_run(
    kind: str, rejects: tuple[tuple[str, int], ...], record_property: RecordProperty
) -> None:
    def servers() -> Servers:
        found = Servers()
        found.rejects.update(dict.fromkeys(rejects, 1_000))
        return found

    clean, deaths = servers(), Deaths()
    expected = await played(clean, kind, deaths)
    for number in range(1, deaths.writes + 1):
        for after in (False, True):
            found = servers()
            record = await played(found, kind, Deaths([Death(number, after)]))
            assert (record.state, record.error, found.has) == (expected.state, expected.error, clean.has)
    tally(record_property, f"broadcast {kind}", "memory", 2 * deaths.writes)


def test_more_servers_than_the_bound_are_refused() -> None:
    encode(Broadcast(tuple(range(SERVERS_MAX))))
    with pytest.raises(ValueError, match=f"{SERVERS_MAX + 1} servers, at most {SERVERS_MAX}"):
        encode(Broadcast(tuple(range(SERVERS_MAX + 1))))


@pytest.mark.seed("S2-29", "S2-36")
async def test_many_silent_servers_keep_no_other_server_and_no_other_procedure_waiting() -> None:
    servers, clock = Servers(), Clock()
    silent = MANY[: UNDER_WAY_MAX + 20]
    servers.silent.update(dict.fromkeys(silent, 1_000_000))
    others = {server for server in MANY if server not in silent}
    async with daemon(servers, Disk(), clock, Deaths()) as found:

        def has(message: str, wanted: set[int]) -> bool:
            return {server for server, sent in servers.has.items() if sent == f"set {message}"} >= wanted

        first = await found.run(found.engine.submit("one", encode(Broadcast(MANY, b"x")), CALLER))
        await found.until(lambda: has("x", others))
        assert not found.engine.records[first].state.is_final
        second = found.engine.submit("other", encode(Broadcast(SERVERS[:1] + MANY[200:], b"y")), Caller())
        await found.run(second)
        await found.until(lambda: has("y", set(MANY[200:])))
        assert max(servers.sent["set", server] for server in silent) > 1, "silent ones are sent to again"
        assert found.engine.records[first].state is not State.FAILED
