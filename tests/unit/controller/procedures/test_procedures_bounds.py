"""Bounds of procedures and of groups of their changes, and refusals that name the command that ends one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

import pytest

from controller.procedures import requests
from controller.procedures.broadcast import UNDER_WAY_MAX, Resending, Responses
from controller.procedures.kinds import Kind
from controller.procedures.refusals import as_ended, not_ended
from controller.procedures.requests import ProcedureRefused
from controller.procedures.stepping import ERROR_CHARS_MAX
from controller.procedures.waiting import Waiting
from controller.procedures.writes import CHANGE_BYTES_MAX, RECORDS_MAX, WEIGHT_MAX, Decided, Group
from state_machines.procedures.kernel import RETRY_MS_MIN, Change
from state_machines.procedures.outcome import RETRY_MS_MAX, Failed, Outcome, Wait
from state_machines.procedures.record import Ending, Record
from state_machines.procedures.states import State
from testing.memory.region_store import Disk, MemoryRecords
from tests.contracts.records import record
from tests.contracts.records_damaged import NEWER
from tests.kills.harness import IDLE_MS, Clock, Daemon, Notes, arrives, last, onwards, spreads, step, topic, twice
from tests.unit.controller.procedures.test_procedures_engine import NOBODY, OPS, Host, ended, state, submitted

HOUR_MS = 3_600_000


def hosting(*kinds: Kind[Notes]) -> Host:
    """Returns a host whose clock can be set back."""
    host = Host(*kinds)
    host.clock.ms = 100 * HOUR_MS
    return host


def grown(record: Record, command: bytes) -> bytes:
    return record.data + b"." * int(command)


async def test_a_command_that_makes_a_record_too_large_is_refused_and_changes_nothing() -> None:
    host = Host(Kind("root", (step(arrives), step(last)), topic, command=grown))
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    with pytest.raises(
        ProcedureRefused, match=f"pid {pid}: its records have {CHANGE_BYTES_MAX + 1} bytes, one step may write"
    ):
        await daemon.run(daemon.engine.command(pid, b"%d" % CHANGE_BYTES_MAX))
    assert await daemon.run(daemon.engine.command(pid, b"%d" % (CHANGE_BYTES_MAX - 1)))
    assert len(daemon.engine.records[pid].data) == CHANGE_BYTES_MAX


async def test_a_family_whose_messages_are_too_large_for_one_step_can_be_ended_as_it_is() -> None:
    """Its records are written together, and none gets another message: each is held, and shown, already."""
    root, part = (kind._replace(command=grown) for kind in KINDS)
    daemon = await Host(root, part).daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: len(daemon.engine.records) == 3)
    for one in (pid, pid + 1):
        assert await daemon.run(daemon.engine.command(one, b"%d" % (CHANGE_BYTES_MAX * 3 // 4)))
    assert await daemon.run(daemon.engine.bypass(pid + 1))
    with pytest.raises(ProcedureRefused, match="one step may write"):
        await daemon.run(daemon.engine.command(pid, b"%d" % (CHANGE_BYTES_MAX // 2)))


async def test_requests_whose_change_cannot_be_entered_get_an_answer() -> None:
    """A fault of the domain ends the term: none of the callers may wait for ever."""

    def fails(_: object) -> None:
        raise ValueError("a fault of the domain")

    daemon = Daemon(Notes(), (Kind("root", (step(last),), topic),), MemoryRecords(Disk()), Clock(), entered=fails)
    await daemon.engine.load()
    both = [asyncio.ensure_future(daemon.engine.submit("root", b"t", NOBODY)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="a fault of the domain"):
        await daemon.engine.turn()
    for answer in await asyncio.gather(*both, return_exceptions=True):
        assert isinstance(answer, ProcedureRefused)
        assert "a fault of the domain" in str(answer)


async def test_of_a_long_error_the_begin_is_kept() -> None:
    def fails_at_length(_: Notes, record: Record) -> Outcome:
        return Failed("x" * 100_000)

    daemon = await Host(Kind("root", (step(fails_at_length),), topic)).daemon()
    record = await ended(daemon, await submitted(daemon, "root"))
    assert (record.state, len(record.error)) == (State.ROLLEDBACK, ERROR_CHARS_MAX)


# -- clocks


async def test_a_retry_does_not_wait_for_the_clock_of_another_daemon() -> None:
    host = hosting(Kind("root", (step(twice), step(last)), topic))
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: state(daemon, pid) is State.WAITING_TIMEOUT)
    host.clock.ms -= HOUR_MS
    began_ms = host.clock.ms
    record = await ended(await host.daemon(), pid)
    assert record.state is State.SUCCESS
    assert host.clock.ms - began_ms <= RETRY_MS_MIN + 2 * IDLE_MS


async def test_a_stored_wait_ends_within_the_longest_pause_whatever_clock_set_it() -> None:
    def once(notes: Notes, record: Record) -> Outcome:
        return onwards(notes, record) if record.deadline_ms else Wait(record.updated_ms + 10 * HOUR_MS, record.data)

    host = hosting(Kind("root", (step(once), step(last)), topic))
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: state(daemon, pid) is State.WAITING_TIMEOUT)
    began_ms = host.clock.ms
    await ended(await host.daemon(), pid)
    assert host.clock.ms - began_ms <= RETRY_MS_MAX + IDLE_MS


async def test_a_clock_that_is_set_back_makes_no_wait_longer() -> None:
    host = hosting(Kind("root", (step(twice), step(last)), topic))
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: state(daemon, pid) is State.WAITING_TIMEOUT)
    host.clock.ms -= HOUR_MS
    began_ms = host.clock.ms
    await ended(daemon, pid)
    assert host.clock.ms - began_ms <= RETRY_MS_MIN + 2 * IDLE_MS


async def test_deadlines_keep_their_order_and_those_without_a_time_stay_so_where_the_clock_is_set_back() -> None:
    now = [10_000]
    waiting = Waiting(lambda: now[0], lambda: None)
    assert waiting.due() == []
    waiting.add(1, 12_000)
    waiting.add(2, 11_000)
    waiting.add(3, 0)
    now[0] = 4_000
    assert waiting.due() == []
    now[0] = 5_000
    assert waiting.due() == [2]
    now[0] = 6_000
    assert waiting.due() == [1]
    assert 3 in waiting


async def test_a_result_is_kept_no_longer_because_another_clock_was_ahead() -> None:
    host = Host(Kind("root", (step(last),), topic))
    host.clock.ms += HOUR_MS
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: state(daemon, pid).is_final)
    host.clock.ms -= HOUR_MS
    successor = await host.daemon()
    host.clock.ms += requests.KEPT_MS
    await successor.until(lambda: pid not in successor.engine.records)


# -- nonces of records that cannot be used


@pytest.mark.seed("S2-4", "S2-49")
@pytest.mark.parametrize("damage", ["newer", "corrupt", "broken json", "kind is gone"])
async def test_a_call_whose_record_cannot_be_used_starts_no_second_procedure(damage: str) -> None:
    host = Host(Kind("root", (step(arrives), step(last)), topic))
    pid = await submitted(await host.daemon(), "root", caller=OPS)
    body = host.disk.bodies[pid]
    kinds = list(host.kinds)
    if damage == "newer":
        host.disk.bodies[pid] = (NEWER % pid).replace(b"later", OPS.nonce.encode())
    elif damage == "corrupt":
        host.disk.bodies[pid] = body.replace(b'"step":0', b'"step":1')
    elif damage == "broken json":
        host.disk.bodies[pid] = body.replace(b'"step":0', b'"step";0')
    else:
        kinds = [Kind("other", (step(last),), topic)]
    kept = host.disk.bodies[pid]
    daemon = await host.daemon(kinds)
    with pytest.raises(ProcedureRefused, match=f"this call has pid {pid} already, and that cannot go on: "):
        await submitted(daemon, kinds[0].name, caller=OPS)
    assert host.disk.bodies == {pid: kept}
    assert await submitted(daemon, kinds[0].name, b"another", NOBODY) > pid, "others are served"
    host.disk.bodies[pid] = body
    again = await host.daemon()
    assert await submitted(again, "root", caller=OPS) == pid


# -- the point of no return


@pytest.mark.seed("S2-5")
async def test_children_of_the_step_before_the_point_of_no_return_are_undone_while_they_live() -> None:
    kinds = (
        Kind("root", (step(), step(spreads("part", 2)), step(arrives), step(last)), topic, no_return=2),
        Kind("part", (step(arrives), step(last)), topic),
    )
    host = Host(*kinds)
    daemon = await host.daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: len(daemon.engine.records) == 3)
    assert await daemon.run(daemon.engine.abort(pid))
    assert (await ended(daemon, pid)).state is State.ROLLEDBACK
    host.notes.arrived = True
    pid = await submitted(daemon, "root", b"second")
    await daemon.until(lambda: daemon.engine.records[pid].state is State.WAITING)
    await daemon.until(lambda: list(daemon.engine.records)[-1] == pid)
    assert not await daemon.run(daemon.engine.abort(pid))
    assert (await ended(daemon, pid)).state is State.SUCCESS
    await asyncio.sleep(0)


async def test_the_messages_of_a_procedure_that_are_under_way_are_bounded_however_often_it_looks() -> None:
    """A thousand servers are silent, and each look is a second after the one before."""
    answers = dict[int, asyncio.Future[str]]()
    tasks = list[asyncio.Task[None]]()

    async def send(server: int, _: bytes) -> str:
        answers[server] = asyncio.get_running_loop().create_future()
        return await answers[server]

    responses = Responses(lambda work: tasks.append(asyncio.ensure_future(work)))
    servers, phase, came = range(1_000), (0, False), set[int | str]()
    for _ in range(5):
        for server in responses.next(7, [one for one in servers if one not in came]):
            responses.send(7, server, phase, b"m", send, Resending())
        await asyncio.sleep(0)
        assert len(answers) - len(came) == UNDER_WAY_MAX
        for server in list(answers)[len(came) : len(came) + 28]:
            answers[server].set_result("in force")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        came |= {one.server for one in responses.take(7, phase)}
        assert len(came) % 28 == 0
        assert came
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


LIMIT = 400_000


class Narrow(MemoryRecords):
    """A store whose writes have a bound; a row weighs what it says."""

    bytes_max = LIMIT

    def weigh(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> int:
        """Weighs messages and rows."""
        return sum(len(put.data) for put in puts) + sum(int(str(row)) for row in rows)


def change(pid: int, *rows: int, data: bytes = b"") -> Decided:
    return Decided(Change(puts=(record(pid, data=data),)), rows=rows)


def test_rows_without_weight_never_fill_a_group() -> None:
    group = Group(MemoryRecords(Disk()))
    for pid in range(1, RECORDS_MAX):
        assert group.has_room(change(pid, *[LIMIT] * 10))
        group.add(change(pid, *[LIMIT] * 10))
    assert not group.is_full


def test_rows_count_as_records_do() -> None:
    group = Group(Narrow(Disk()))
    for pid in range(1, RECORDS_MAX // 2):
        group.add(change(pid, 1))
    assert not group.is_full
    group.add(change(RECORDS_MAX, 1, 1))
    assert group.is_full


def test_heavy_rows_fill_a_group_until_it_is_written() -> None:
    group = Group(Narrow(Disk()))
    group.add(change(1, WEIGHT_MAX))
    assert (group.is_full, len(group.decided)) == (True, 1)
    group.clear()
    assert (group.is_full, len(group.decided)) == (False, 0)


def test_a_change_that_does_not_fit_beside_the_others_goes_alone() -> None:
    group = Group(Narrow(Disk()))
    assert group.has_room(change(2, LIMIT, data=bytes(10))), "alone, whatever it weighs"
    group.add(change(1, 10))
    assert not group.has_room(change(2, LIMIT - 19, data=bytes(10)))
    assert not group.has_room(change(2, data=bytes(LIMIT - 9))), "nor without rows"
    assert group.has_room(change(2, LIMIT - 20, data=bytes(10)))


KINDS = (
    Kind("root", (step(spreads("part", 2)), step(last)), topic, no_return=0),
    Kind("part", (step(arrives), step(last)), topic),
)


async def family() -> tuple[Daemon[Notes], int]:
    daemon = await Host(*KINDS).daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: len(daemon.engine.records) == 3)
    return daemon, pid


@pytest.mark.parametrize(
    ("act", "why"),
    [
        ("bypass", "it has parts that go on, and ends with them"),
        ("abort", "it cannot be undone any more"),
        ("remove", "its record can be used (waiting), and is not removed"),
    ],
)
async def test_the_command_of_a_refusal_is_accepted(act: str, why: str) -> None:
    daemon, pid = await family()
    if act != "remove":
        assert not await daemon.run(getattr(daemon.engine, act)(pid))
    found = not_ended(daemon.engine, pid, act, "regent procedures")
    assert found.why == f"pid {pid}: {why}"
    [leaf] = map(int, re.findall(r"'regent procedures bypass (\d+)'", found.remedy))
    assert await daemon.run(daemon.engine.bypass(leaf))
    [other] = [one.pid for one in daemon.engine.live() if one.kind == "part" and not one.bypassed]
    assert await daemon.run(daemon.engine.bypass(other))
    assert (await ended(daemon, pid)).bypassed


async def test_a_bypass_that_was_refused_for_parts_that_have_ended_since_is_to_be_sent_again() -> None:
    """The refusal is worded a moment after it: a command that names itself as the way out would confuse."""
    daemon = await Host(*KINDS).daemon()
    pid = await submitted(daemon, "part")
    found = not_ended(daemon.engine, pid, "bypass", "regent procedures")
    assert found.why == f"pid {pid}: its parts ended only now"
    assert found.remedy == f"'regent procedures bypass {pid}' ends it as it is: try again"
    assert await daemon.run(daemon.engine.bypass(pid))


async def test_what_has_ended_is_said_to_have() -> None:
    daemon, _ = await family()
    found = not_ended(daemon.engine, 999, "bypass", "regent procedures")
    assert found == ("pid 999: it has ended already", "see 'regent procedures show 999'")


async def test_a_part_that_is_gone_before_the_response_has_its_end_in_it() -> None:
    daemon, pid = await family()
    part = daemon.engine.records[pid + 1]
    ending = Ending("bypass", "uid 7", "it hangs")
    assert await daemon.run(daemon.engine.bypass(part.pid, ending))
    await daemon.until(lambda: part.pid not in daemon.engine.records)
    found = as_ended(daemon.engine, part, ending)
    assert (found.state, found.bypassed, found.ending.reason) == (State.SUCCESS, True, "it hangs")
    assert as_ended(daemon.engine, daemon.engine.records[pid], ending) is daemon.engine.records[pid]
