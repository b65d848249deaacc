"""Contract of the port: watches."""

from __future__ import annotations

import asyncio

import pytest

from metadata_store.errors import MultiFailed
from metadata_store.port import Check, Create, Delete, SetData, WatchEvent
from tests.contracts.support import CHANGED, CHILD, CONNECTED, CREATED, DELETED, SUSPENDED, Backend, session


class WatchContract:
    """One-shot watches, armed in bulk."""

    async def test_each_kind_fires_once(self, backend: Backend) -> None:
        async with session(backend) as s, session(backend) as other:
            await other.zk.create("/data", b"")
            await other.zk.create("/parent", b"")
            await other.zk.create("/doomed", b"")
            await s.zk.sync()
            since = s.zk.last_zxid
            await s.zk.watch(data=["/data", "/doomed"], exists=["/later"], children=["/parent"], since_zxid=since)
            await s.quiet()
            for n in range(3):
                await other.zk.set("/data", b"x", n)
                await other.zk.create(f"/parent/{n}", b"")
            await other.zk.create("/later", b"")
            await other.zk.set("/later", b"x", 0)
            await other.zk.delete("/doomed", 0)
            await s.saw(("/data", CHANGED), ("/doomed", DELETED), ("/later", CREATED), ("/parent", CHILD))
            await s.quiet()

    async def test_what_changed_since_fires_at_once(self, backend: Backend) -> None:
        async with session(backend) as s:
            for path in ("/old", "/old-parent", "/new", "/parent", "/doomed"):
                await s.zk.create(path, b"")
            since = s.zk.last_zxid
            await s.zk.set("/new", b"x", 0)
            await s.zk.create("/parent/child", b"")
            await s.zk.delete("/doomed", 0)
            await s.zk.watch(
                data=["/old", "/new", "/doomed", "/never"],
                exists=["/old", "/absent"],
                children=["/parent", "/old-parent", "/never-parent"],
                since_zxid=since,
            )
            fired = [
                ("/new", CHANGED),
                ("/doomed", DELETED),
                ("/never", DELETED),
                ("/old", CREATED),
                ("/parent", CHILD),
                ("/never-parent", DELETED),
            ]
            await s.saw(*fired)
            await s.zk.set("/old", b"x", 0)
            await s.zk.create("/absent", b"")
            await s.zk.create("/old-parent/child", b"")
            await s.saw(("/old", CHANGED), ("/absent", CREATED), ("/old-parent", CHILD))

    async def test_a_new_session_sees_no_event_of_what_was_there_before(self, backend: Backend) -> None:
        async with session(backend) as other:
            await other.zk.create("/a", b"")
            async with session(backend) as s:
                await s.zk.watch(data=["/a"], children=["/"], since_zxid=s.zk.last_zxid)
                await s.quiet()

    async def test_a_deleted_znode_fires_one_event_though_two_watches_or_a_new_znode_are_there(
        self, backend: Backend
    ) -> None:
        async with session(backend) as s:
            for path in ("/a", "/controller"):
                await s.zk.create(path, b"", ephemeral=True)
            await s.zk.watch(data=["/a", "/controller"], children=["/a", "/"], since_zxid=s.zk.last_zxid)
            await s.zk.delete("/a", 0)
            await s.zk.multi([Delete("/controller", 0), Create("/controller", b"daemon")])
            await s.saw(("/a", DELETED), ("/", CHILD), ("/controller", DELETED))
            await s.quiet()

    async def test_a_failed_multi_fires_nothing(self, backend: Backend) -> None:
        async with session(backend) as s:
            await s.zk.create("/a", b"")
            await s.zk.watch(data=["/a"], children=["/"], since_zxid=s.zk.last_zxid)
            with pytest.raises(MultiFailed):
                await s.zk.apply([SetData("/a", b"x", 0), Create("/b", b""), Check("/a", 0)])
            await s.quiet()

    async def test_an_event_comes_before_the_reply_that_shows_its_change(self, backend: Backend) -> None:
        async with session(backend) as s, session(backend) as other:
            await other.zk.create("/a", b"old")
            await s.zk.sync()
            await s.zk.watch(data=["/a"], since_zxid=s.zk.last_zxid)
            await other.zk.set("/a", b"new", 0)
            assert (await s.data("/a"), s.events) == (b"new", [WatchEvent("/a", CHANGED)])

    async def test_arming_again_while_an_event_is_under_way_loses_nothing(self, backend: Backend) -> None:
        async with session(backend) as s, session(backend) as other:
            await other.zk.create("/a", b"")
            await s.zk.sync()
            for n in range(10):
                since = s.zk.last_zxid
                await s.zk.watch(data=["/a"], since_zxid=since)
                await asyncio.gather(other.zk.set("/a", b"x", n), s.zk.watch(data=["/a"], since_zxid=since))
                await s.zk.sync()
                assert WatchEvent("/a", CHANGED) in s.events
                s.events.clear()

    async def test_a_blip_drops_all_watches_and_arming_again_fires_those_of_missed_changes(
        self, backend: Backend
    ) -> None:
        async with session(backend) as s, session(backend) as other:
            await other.zk.create("/missed", b"")
            await other.zk.create("/kept", b"")
            await s.zk.sync()
            since = s.zk.last_zxid
            await s.zk.watch(data=["/missed", "/kept"], since_zxid=since)
            backend.suspend(s.zk)
            await s.reaches(SUSPENDED)
            await other.zk.set("/missed", b"x", 0)
            backend.resume(s.zk)
            await s.reaches(CONNECTED)
            await s.quiet()
            await s.zk.watch(data=["/missed", "/kept"], since_zxid=since)
            await s.saw(("/missed", CHANGED))
            await other.zk.set("/kept", b"x", 0)
            await s.saw(("/kept", CHANGED))
