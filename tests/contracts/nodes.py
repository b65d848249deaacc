"""Contract of the port: znodes, versions, multis, and faults injected around writes."""

from __future__ import annotations

import asyncio

import pytest

from metadata_store.acl import digest_acl
from metadata_store.errors import Code, MultiFailed, OutcomeUnknown, SessionLost
from metadata_store.port import ANY_VERSION, WRITE_BYTES_MAX, Check, Create, Created, Delete, Kill, Node, SetData, Stat
from tests.contracts.support import CONNECTED, LOST, OPEN, Backend, NthWrite, raising, refused, session
from tests.kit.deadlines import eventually


class NodeContract:
    """Znodes, versions and multis."""

    async def test_null_empty_and_absent_are_three_things(self, backend: Backend) -> None:
        async with session(backend) as s:
            made = await s.zk.create("/null", None)
            await s.zk.create("/empty", b"")
            null, empty = await s.node("/null"), await s.node("/empty")
            assert (null.data, empty.data) == (None, b"")
            assert made == Created("/null", null.stat)
            after = await s.zk.set("/empty", None, 0)
            assert (await s.zk.exists("/empty"), await s.zk.get("/empty")) == (after, Node(None, after))
            assert await s.zk.get("/none") is None
            assert await s.zk.exists("/none") is None
            assert await s.zk.children("/none") is None

    async def test_the_stat_counts_every_change(self, backend: Backend) -> None:
        async with session(backend) as s:
            first = (await s.zk.create("/a", b"1")).stat
            assert (first.version, first.czxid, first.ephemeral_owner) == (0, first.mzxid, 0)
            second = await s.zk.set("/a", b"2", 0)
            assert (second.version, second.czxid, second.mzxid > first.mzxid) == (1, first.czxid, True)
            child = (await s.zk.create("/a/b", None)).stat
            found = await s.zk.children("/a")
            assert found is not None
            names, third = found
            assert (names, third.num_children, third.pzxid) == (["b"], 1, child.czxid)
            assert (third.version, third.mzxid) == (1, second.mzxid)

    async def test_a_wrong_version_changes_nothing(self, backend: Backend) -> None:
        async with session(backend) as s:
            await s.zk.create("/a", b"1")
            await refused(s.zk.set("/a", b"2", 1), Code.BAD_VERSION, "/a")
            await refused(s.zk.delete("/a", 1), Code.BAD_VERSION, "/a")
            node = await s.node("/a")
            assert (node.data, node.stat.version) == (b"1", 0)
            await s.zk.set("/a", b"3", ANY_VERSION)
            await s.zk.delete("/a", ANY_VERSION)
            assert await s.zk.exists("/a") is None

    async def test_refusals_name_code_and_path(self, backend: Backend) -> None:
        async with session(backend) as s:
            await s.zk.create("/a", b"")
            await s.zk.create("/a/b", b"")
            await s.zk.create("/e", b"", ephemeral=True)
            await refused(s.zk.create("/a", b""), Code.NODE_EXISTS, "/a")
            await refused(s.zk.create("/none/b", b""), Code.NO_NODE, "/none/b")
            await refused(s.zk.create("/e/b", b""), Code.NO_CHILDREN_FOR_EPHEMERALS, "/e/b")
            await refused(s.zk.delete("/a", 0), Code.NOT_EMPTY, "/a")
            await refused(s.zk.delete("/none", 0), Code.NO_NODE, "/none")
            await refused(s.zk.set("/none", b"", 0), Code.NO_NODE, "/none")
            await refused(s.zk.get_acls("/none"), Code.NO_NODE, "/none")
            with pytest.raises(ValueError, match="begin with a slash"):
                await s.zk.get("a")

    async def test_a_multi_returns_a_result_per_operation_of_one_transaction(self, backend: Backend) -> None:
        async with session(backend) as s:
            await s.zk.create("/old", b"1")
            results = await s.zk.multi(
                [
                    Check("/old", 0),
                    Create("/new", None),
                    Create("/new/child", b"x", ephemeral=True),
                    SetData("/old", b"2", 0),
                    SetData("/old", b"3", 1),
                    Check("/old", 2),
                    Delete("/old", 2),
                ]
            )
            check, new, child, second, third, later, deleted = results
            assert (check, later, deleted) == (None, None, None)
            assert isinstance(new, Created)
            assert isinstance(child, Created)
            assert isinstance(second, Stat)
            assert isinstance(third, Stat)
            assert (new.path, child.path) == ("/new", "/new/child")
            assert child.stat.ephemeral_owner == s.zk.session_id
            assert {new.stat.czxid, child.stat.czxid, second.mzxid, third.mzxid} == {new.stat.czxid}
            assert (second.version, third.version) == (1, 2)
            assert await s.zk.apply([Delete("/new/child", 0)]) > new.stat.czxid
            assert await s.zk.multi([]) == []

    async def test_a_failed_multi_names_the_first_failure_and_leaves_no_trace(self, backend: Backend) -> None:
        async with session(backend) as s:
            await s.zk.create("/a", b"1")
            await s.zk.create("/b", b"1")
            before = await s.zk.read_many(["/", "/a", "/b"])
            with pytest.raises(MultiFailed) as failed:
                await s.zk.multi(
                    [
                        Check("/a", 0),
                        SetData("/a", b"2", 0),
                        Create("/c", b""),
                        Create("/c/d", b""),
                        Delete("/b", 0),
                        SetData("/a", b"3", 0),
                        SetData("/none", b"", 0),
                    ]
                )
            error = failed.value
            assert (error.index, error.code, error.path) == (5, Code.BAD_VERSION, "/a")
            assert error.codes == [Code.OK] * 5 + [Code.BAD_VERSION, Code.RUNTIME_INCONSISTENCY]
            assert await s.zk.read_many(["/", "/a", "/b"]) == before
            assert await s.zk.exists("/c") is None
            assert await s.names("/") == ["a", "b"]

    @pytest.mark.seed("S4-86")
    async def test_a_stale_epoch_check_stops_the_whole_multi(self, backend: Backend) -> None:
        async with session(backend) as s:
            await s.zk.create("/controller_epoch", b"1")
            await s.zk.create("/state", b"old")
            await s.zk.set("/controller_epoch", b"2", 0)
            for checked, code in (("/controller_epoch", Code.BAD_VERSION), ("/none", Code.NO_NODE)):
                with pytest.raises(MultiFailed) as failed:
                    await s.zk.apply([Check(checked, 0), SetData("/state", b"new", 0)])
                assert (failed.value.index, failed.value.code) == (0, code)
            assert await s.data("/state") == b"old"

    async def test_sequential_numbers_count_creations(self, backend: Backend) -> None:
        async with session(backend) as s:
            await s.zk.create("/q", None)
            first = await s.zk.create("/q/n_", b"", sequential=True)
            await s.zk.create("/q/other", b"")
            await s.zk.delete(first.path, 0)
            with pytest.raises(MultiFailed):
                await s.zk.multi([Create("/q/n_", None, sequential=True), Check("/q", 9)])
            second = await s.zk.create("/q/n_", b"", sequential=True, ephemeral=True)
            [third] = await s.zk.multi([Create("/q/n_", None, sequential=True)])
            assert isinstance(third, Created)
            assert [first.path, second.path, third.path] == ["/q/n_0000000000", "/q/n_0000000002", "/q/n_0000000003"]

    async def test_bulk_reads_keep_the_order_and_have_codes_for_what_cannot_be_read(self, backend: Backend) -> None:
        async with session(backend, credentials="me:secret") as s:
            await s.zk.create("/mine", b"x", acl=[digest_acl("me", "secret")])
            await s.zk.create("/null", None)
            await s.zk.apply([Create(f"/n{i}", str(i).encode()) for i in range(25)])
            await s.zk.set("/n7", b"seven", 0)
            async with session(backend) as other:
                await other.zk.sync()
                paths = ["/none", "/null", "/mine", *(f"/n{i}" for i in range(25))]
                found = await other.zk.read_many(paths, paths_max=10)
                assert found[0] is Code.NO_NODE
                assert found[2] is Code.NO_AUTH
                assert found[1] == await other.zk.get("/null")
                assert found[3 + 7] == await other.zk.get("/n7")
                decoded = await other.zk.read_decoded(paths, lambda data, version: (data, version), paths_max=10)
                assert decoded[:3] == [Code.NO_NODE, (None, 0), Code.NO_AUTH]
                assert decoded[3:] == [(b"seven", 1) if i == 7 else (str(i).encode(), 0) for i in range(25)]
                assert await other.zk.read_many([]) == []
                await refused(other.zk.get("/mine"), Code.NO_AUTH, "/mine")

    async def test_a_write_that_is_too_big_is_refused_and_the_session_lives(self, backend: Backend) -> None:
        async with session(backend) as s:
            await s.zk.create("/a", b"")
            await refused(s.zk.set("/a", bytes(WRITE_BYTES_MAX), 0), Code.TOO_BIG, "/a")
            await refused(s.zk.multi([SetData("/a", bytes(WRITE_BYTES_MAX), 0)]), Code.TOO_BIG, "/a")
            await s.zk.set("/a", bytes(WRITE_BYTES_MAX - 1_000), 0)
            assert s.states == [CONNECTED]

    async def test_the_last_zxid_never_falls_behind_a_reply(self, backend: Backend) -> None:
        async with session(backend) as s:
            made = await s.zk.create("/a", b"")
            assert s.zk.last_zxid >= made.stat.czxid
            await s.zk.sync("/")
            await s.zk.heartbeat()
            assert s.zk.last_zxid >= made.stat.czxid


class HookContract:
    """Faults injected around writes."""

    async def test_a_kill_before_a_write_writes_nothing(self, backend: Backend) -> None:
        async with session(backend) as s:
            for write in (lambda: s.zk.create("/a", b""), lambda: s.zk.multi([Create("/a", b"")])):
                s.zk.hooks = NthWrite(at=0, before=raising(Kill()))
                with pytest.raises(Kill):
                    await write()
            assert await s.zk.exists("/a") is None

    async def test_a_reply_lost_after_the_write_leaves_it_applied(self, backend: Backend) -> None:
        async with session(backend) as s:
            s.zk.hooks = NthWrite(at=0, after=OutcomeUnknown("lost"))
            with pytest.raises(OutcomeUnknown):
                await s.zk.apply([Create("/a", b"")])
            assert await s.zk.exists("/a") is not None

    async def test_every_kind_of_write_passes_the_hooks_and_no_read_does(self, backend: Backend) -> None:
        async with session(backend) as s:
            hooks = s.zk.hooks = NthWrite(at=-1)
            await s.zk.create("/a", b"")
            await s.zk.set("/a", b"x", 0)
            await s.zk.set_acls("/a", OPEN, 0)
            await s.zk.get("/a")
            await s.zk.read_many(["/a"])
            await s.zk.apply([Check("/a", 1)])
            await s.zk.multi([Delete("/a", 1)])
            kinds = [[type(op).__name__ for op in ops] for ops in hooks.writes]
            assert kinds == [["Create"], ["SetData"], ["SetAcls"], ["Check"], ["Delete"]]

    async def test_a_write_held_back_over_a_blip_is_sent_and_over_an_expiry_refused(self, backend: Backend) -> None:
        async with session(backend) as s:
            gate = asyncio.Event()
            hooks = s.zk.hooks = NthWrite(at=0, before=gate.wait)
            write = asyncio.create_task(s.zk.create("/a", b""))
            await eventually(lambda: hooks.writes)
            await s.reconnect(backend)
            gate.set()
            assert (await write).path == "/a"
            gate.clear()
            hooks = s.zk.hooks = NthWrite(at=0, before=gate.wait)
            write = asyncio.create_task(s.zk.create("/b", b""))
            await eventually(lambda: hooks.writes)
            await backend.expire(s.zk)
            await s.reaches(LOST)
            gate.set()
            with pytest.raises(SessionLost):
                await write
