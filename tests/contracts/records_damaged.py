"""The contract of stores with damaged records: each is found, classified and left alone, and nothing else suffers."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import pytest
from msgspec.structs import replace

from cli.procedure_log import Judged, judged
from controller.kafka.procedures import drain, reassign
from metadata_store.errors import MultiFailed
from metadata_store.records.port import Content, Found, RecordStore, StoreFailed
from state_machines.decisions.drain import Drain
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan
from state_machines.procedures.record import Caller, Fault, Record
from state_machines.procedures.states import State

PLAN: Final = reassign.encode_plan(ReassignPlan((PlannedMove("t", 0, (1,), (2,)),)))
DRAIN: Final = drain.encode_drain(Drain((1,)))
CALLER: Final = Caller(principal="User:ops", reason="rack 3 is gone", nonce="n-1")
FAMILY: Final = (
    Record(1, drain.NAME, State.WAITING, 2, 1, 2, data=DRAIN, done=(0, 1), born=(2,), caller=CALLER),
    Record(2, reassign.NAME, State.RUNNABLE, 0, 1, 2, parent=1, ancestors=(1,), data=PLAN),
)
OTHERS: Final = (
    Record(3, reassign.NAME, State.WAITING_TIMEOUT, 0, 1, 2, data=PLAN, deadline_ms=5, locked=True),
    Record(4, reassign.NAME, State.SUCCESS, 0, 1, 2, data=PLAN, done=(0,), result=b"6 done"),
)
ALL: Final = (*FAMILY, *OTHERS)
NEWER: Final = b'{"version":2,"pid":%d,"kind":["?"],"caller":{"principal":"User:ops","nonce":"later"}}'
SAMPLES: Final = 12


class Shelf(Protocol):
    """A store whose bytes can be changed behind its back."""

    def open(self) -> AbstractAsyncContextManager[RecordStore]: ...
    async def body(self, pid: int) -> bytes: ...
    async def overwrite(self, pid: int, body: bytes) -> None: ...
    async def content(self) -> Content: ...
    async def move_aside(self, content: Content, entries: list[Found]) -> None: ...
    async def replace(self, content: Content, records: list[Record]) -> None: ...
    async def quarantined(self) -> list[bytes]: ...


def flipped(body: bytes, dice: random.Random) -> bytes:
    """Returns a body with one bit changed."""
    at = dice.randrange(len(body))
    return body[:at] + bytes([body[at] ^ 1 << dice.randrange(8)]) + body[at + 1 :]


def truncated(body: bytes, dice: random.Random) -> bytes:
    """Returns the begin of a body: less than the record."""
    return body[: dice.randrange(len(body) - 12)]


class DamagedContract:
    """Subclasses have a fixture ``shelf``, and ``samples`` where each costs much."""

    samples = SAMPLES

    @pytest.fixture
    async def filled(self, shelf: Shelf) -> Shelf:
        async with shelf.open() as store:
            await store.load()
            await store.reserve(len(ALL))
            await store.write(ALL)
        return shelf

    async def judged(self, shelf: Shelf) -> Judged:
        return judged(await shelf.content())

    async def test_a_sound_store_has_no_faults_and_nothing_is_moved(self, filled: Shelf) -> None:
        found = await self.judged(filled)
        assert [one.record for one in found.content.entries] == list(ALL)
        assert (found.unusable, found.aside, list(found.content.faults)) == ({}, [], [])

    async def test_a_damaged_record_that_is_removed_is_gone_at_the_next_load(self, filled: Shelf) -> None:
        pid = ALL[-1].pid
        await filled.overwrite(pid, (await filled.body(pid))[:-5])
        async with filled.open() as store:
            assert [one.pid for one in (await store.load()).damaged] == [pid]
            await store.write((), [pid])
        async with filled.open() as store:
            again = await store.load()
        assert ([one.pid for one in again.records], [*again.damaged]) == ([one.pid for one in ALL[:-1]], [])

    @pytest.mark.seed("S3-44", "S3-45")
    @pytest.mark.parametrize("damage", [flipped, truncated])
    @pytest.mark.parametrize("pid", [one.pid for one in ALL])
    async def test_damage_anywhere_is_found_and_moved_aside_with_its_family_alone(
        self, filled: Shelf, pid: int, damage: Callable[[bytes, random.Random], bytes]
    ) -> None:
        dice = random.Random(pid)
        family = {1, 2} if pid < 3 else {pid}
        sound = await filled.body(pid)
        for _ in range(self.samples):
            await filled.overwrite(pid, damage(sound, dice))
            async with filled.open() as store:
                stored = await store.load()
            assert {one.pid for one in stored.records} | {one.pid for one in stored.damaged} == {1, 2, 3, 4}
            assert [one.pid for one in stored.damaged] == [pid]
            found = await self.judged(filled)
            assert {one.pid for one in found.content.entries if one.place in found.unusable} == family
            assert [one.pid for one in found.aside] == sorted(family)
        body, found = await filled.body(pid), await self.judged(filled)
        await filled.move_aside(found.content, list(found.aside))
        assert body in await filled.quarantined()
        again = await self.judged(filled)
        assert (again.unusable, again.aside) == ({}, [])
        assert {one.pid for one in again.content.entries} == {1, 2, 3, 4} - family
        async with filled.open() as store:
            assert not (await store.load()).damaged
            assert await store.reserve(1) > 4, "no pid is given again"

    @pytest.mark.seed("S2-49", "S3-45")
    @pytest.mark.parametrize("pid", [one.pid for one in ALL])
    async def test_a_newer_record_stays_with_its_family_whatever_is_repaired(self, filled: Shelf, pid: int) -> None:
        await filled.overwrite(pid, NEWER % pid)
        found = await self.judged(filled)
        faults = {
            one.pid: found.unusable[one.place].fault for one in found.content.entries if one.place in found.unusable
        }
        family = {1: Fault.FAMILY, 2: Fault.FAMILY} if pid < 3 else {}
        assert faults == family | {pid: Fault.NEWER}
        assert found.aside == []
        async with filled.open() as store:
            [damaged] = (await store.load()).damaged
            assert (damaged.fault, damaged.caller.nonce) == (Fault.NEWER, "later")
            await store.write([OTHERS[0] if pid != 3 else OTHERS[1]])
        assert await filled.body(pid) == NEWER % pid

    @pytest.mark.seed("S3-45")
    async def test_a_damaged_child_of_a_family_that_a_newer_daemon_can_use_stays(self, filled: Shelf) -> None:
        await filled.overwrite(1, NEWER % 1)
        await filled.overwrite(3, b"{")
        found = await self.judged(filled)
        assert [one.pid for one in found.aside] == [3]

    async def test_records_are_replaced_together_and_only_where_each_is_as_it_was_read(self, filled: Shelf) -> None:
        """A daemon may have run meanwhile, and is gone again."""
        found = await filled.content()
        ended = [replace(one, bypassed=True) for one in FAMILY]
        gone_on = replace(FAMILY[1], state=State.WAITING_TIMEOUT, deadline_ms=9)
        async with filled.open() as store:
            await store.load()
            await store.write([gone_on])
        with pytest.raises((StoreFailed, MultiFailed)):
            await filled.replace(found, ended)
        found = await filled.content()
        assert [one.record for one in found.entries] == [FAMILY[0], gone_on, *OTHERS]
        await filled.replace(found, ended)
        assert [one.record for one in (await filled.content()).entries] == [*ended, *OTHERS]

    async def test_the_record_of_another_pid_is_named(self, filled: Shelf) -> None:
        await filled.overwrite(4, await filled.body(3))
        found = await self.judged(filled)
        assert list(found.unusable.values()) == [(Fault.OTHER_PID, "it is the record of pid 3")]
        assert [one.pid for one in found.aside] == [4]
