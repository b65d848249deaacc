"""The contract of every store of procedure records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from msgspec.structs import replace

from metadata_store.records.port import RecordStore
from state_machines.procedures.record import NO_CALLER, NO_ENDING, Caller, Ending, Record, family
from state_machines.procedures.states import State

Stores = Callable[[], AbstractAsyncContextManager[RecordStore]]
"""Opens the same store each time, as a daemon does that starts."""


CALLER = Caller(principal="User:ops", reason="rack 3 is gone", nonce="n-1")


def record(pid: int, step: int = 0, data: bytes = b"\x00\xff") -> Record:
    """Returns a record with something in most fields."""
    return Record(pid, "drain", State.RUNNABLE, step, 1, 2, data=data, done=(0, 1), caller=CALLER)


WIDE = "\U0001f680"
"""A character of four bytes."""


def largest(pid: int, parent: int = 0) -> Record:
    """Returns a record whose texts are as long as requests may have them, or as errors are kept."""
    caller = Caller(WIDE * 500, WIDE * 500, WIDE * 1_000, "" if parent else WIDE * 500)
    ending = Ending("bypass", WIDE * 500, WIDE * 1_000, 1 << 60)
    ancestors = (parent,) if parent else ()
    return replace(
        record(pid, data=bytes(200)),
        parent=parent,
        ancestors=ancestors,
        caller=caller,
        ending=NO_ENDING if parent else ending,
        error="\x01" * (100 if parent else 2_000),
    )


class RecordsContract:
    """Subclasses have a fixture ``stores``."""

    @pytest.fixture
    def stores(self) -> Stores:
        raise NotImplementedError

    async def test_a_new_store_is_empty(self, stores: Stores) -> None:
        async with stores() as s:
            found = await s.load()
        assert (list(found.records), list(found.damaged), found.last_pid) == ([], [], 0)

    @pytest.mark.seed("S2-25")
    async def test_records_are_found_again_as_they_were_written_in_the_order_of_pids(self, stores: Stores) -> None:
        async with stores() as s:
            await s.load()
            await s.write([record(30), record(100), record(2)])
            await s.write([record(2, step=5)], deletes=[30])
        async with stores() as s:
            found = await s.load()
        assert list(found.records) == [record(2, step=5), record(100)]
        assert not found.damaged

    @pytest.mark.seed("S2-25")
    async def test_records_are_replaced_and_deleted_after_a_restart(self, stores: Stores) -> None:
        async with stores() as s:
            await s.load()
            await s.write([record(1), record(2)])
        async with stores() as s:
            await s.load()
            await s.write([record(1, step=1)], deletes=[2, 3])
            assert list((await s.load()).records) == [record(1, step=1)]

    async def test_pids_are_never_given_twice_also_after_their_records_are_gone(self, stores: Stores) -> None:
        async with stores() as s:
            await s.load()
            assert tuple(await asyncio.gather(s.reserve(100), s.reserve(2))) == (1, 101)
            await s.write([record(102)])
            await s.write([], deletes=[102])
        async with stores() as s:
            assert (await s.load()).last_pid == 102
            assert await s.reserve(1) == 103

    async def test_writes_that_wait_together_keep_their_order(self, stores: Stores) -> None:
        async with stores() as s:
            await s.load()
            writes = [s.write([record(1, step)]) for step in range(50)]
            writes += [s.write([record(pid)]) for pid in range(10, 700)]
            writes += [s.write([record(2)]), s.write([], deletes=[2]), s.write([], deletes=[3]), s.write([record(3)])]
            await asyncio.gather(*writes)
            found = {one.pid: one for one in (await s.load()).records}
        assert found.keys() == {1, 3, *range(10, 700)}
        assert found[1].step == 49

    async def test_large_records_go_in_several_requests(self, stores: Stores) -> None:
        async with stores() as s:
            await s.load()
            large = [record(pid, data=bytes(300_000)) for pid in range(1, 9)]
            await asyncio.gather(*(s.write([one]) for one in large))
            assert list((await s.load()).records) == large

    async def test_of_a_family_the_root_alone_is_stored_with_its_caller(self, stores: Stores) -> None:
        """Hundreds of children would repeat the longest reasons."""
        root, part = record(1), replace(record(2), parent=1, ancestors=(1,), caller=replace(CALLER, nonce=""))
        leaf = replace(part, pid=3, parent=2, ancestors=(2, 1))
        async with stores() as s:
            await s.load()
            await s.write([root, part, leaf])
            found = (await s.load()).records
        assert [one.caller for one in found] == [CALLER, NO_CALLER, NO_CALLER]
        assert family(found) == [root, part, leaf]
        own = replace(part, caller=Caller("User:another"))
        assert family([root, own]) == [root, own], "a record of before, which was stored with a caller"
        assert family([leaf]) == [leaf], "its root is missing"

    async def test_a_family_at_its_bounds_is_written_together(self, stores: Stores) -> None:
        children = [largest(pid, parent=1) for pid in range(2, 402)]
        async with stores() as s:
            await s.load()
            assert s.weigh([largest(1), *children]) <= (s.bytes_max or 1)
            await s.write([largest(1), *children])
            assert family((await s.load()).records) == [largest(1), *children]

    async def test_what_weighs_no_more_than_a_write_may_is_written(self, stores: Stores) -> None:
        async with stores() as s:
            await s.load()
            found: list[Record] = []
            while len(found) < 100 and s.weigh([*found, largest(len(found) + 1)]) <= s.bytes_max:
                found.append(largest(len(found) + 1))
            await s.write(found)
            more = [replace(one, data=one.data + bytes(1_000)) for one in found]
            if s.weigh(more) > s.bytes_max > 0:
                assert len(found) > 20, "the weight is about what is written"
            await s.write([], deletes=[one.pid for one in found])

    async def test_a_write_deletes_each_of_several_records(self, stores: Stores) -> None:
        async with stores() as s:
            await s.load()
            await s.write([record(pid) for pid in range(1, 8)])
            await asyncio.gather(s.write([record(8)], deletes=[1, 2, 3]), s.write([], deletes=[5, 6, 99]))
            assert [one.pid for one in (await s.load()).records] == [4, 7, 8]

    async def test_a_caller_that_gives_up_keeps_no_write_behind_it_waiting(self, stores: Stores) -> None:
        async with stores() as s:
            await s.load()
            writes = [asyncio.ensure_future(s.write([record(pid, data=bytes(200_000))])) for pid in range(1, 9)]
            await asyncio.sleep(0)
            for gone in writes[::2]:
                gone.cancel()
            await asyncio.gather(*writes[1::2])
            await s.write([record(9)])
            assert {2, 4, 6, 8, 9} <= {one.pid for one in (await s.load()).records}

    async def test_writes_that_wait_at_the_close_are_durable(self, stores: Stores) -> None:
        async with stores() as s:
            await s.load()
            writes = asyncio.gather(*(s.write([record(pid)]) for pid in range(1, 50)))
            await asyncio.sleep(0)
        await writes
        async with stores() as s:
            assert len((await s.load()).records) == 49
