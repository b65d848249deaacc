"""The contract of closing: whatever is below ``/regent`` and open to any client is closed, whoever made it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from metadata_store import closing
from metadata_store.acl import ADMIN, ALL, CREATE, DELETE, READ, READABLE, WRITE, Acl, digest_acl
from metadata_store.closing import NAMED_MAX, PORTION, close_again, close_tree
from metadata_store.errors import Code
from metadata_store.fencing.fenced import confirm
from metadata_store.fencing.outcome import Fence, Fenced
from metadata_store.own import ENDPOINTS, LOCKS, OWN, PROCEDURES, REGIONS, ROOT, Access
from metadata_store.port import ANY_VERSION, Kill, ZooKeeper
from tests.contracts.support import ALL_READ, OPEN, Backend, NthWrite, raising, refused, session

DAEMON = "regent:secret"
MINE = digest_acl("regent", "secret")
MINE_ID = MINE.scheme, MINE.id
LOCK = (MINE, ALL_READ)
COMES_AND_GOES = Acl(CREATE | DELETE, "world", "anyone")
LISTS = dict.fromkeys(Access, LOCK) | {Access.ENDPOINTS: (*LOCK, COMES_AND_GOES)}
CLOSING = {"credentials": DAEMON, "own_acls": LISTS}
UNKNOWN = f"{ROOT}/of_a_later_release"
BUCKET = f"{REGIONS}/regions/x"

Acls = Mapping[str, frozenset[Acl]]


async def opened_tree(zk: ZooKeeper) -> list[str]:
    """Creates a znode for each path of the registry, and one that it lacks, as a daemon did in an open time."""
    made = [one.path.replace("*", "x") for one in OWN] + [UNKNOWN, f"{UNKNOWN}/x"]
    for path in made:
        await zk.create(path, b"1")
    return made


async def acls_below(zk: ZooKeeper, path: str = ROOT) -> dict[str, frozenset[Acl]]:
    """Reads all lists, by a way of its own."""
    await zk.sync()
    found = {path: frozenset((await zk.get_acls(path))[0])}
    listed = await zk.children(path)
    assert listed is not None
    for name in listed[0]:
        found |= await acls_below(zk, f"{path}/{name}")
    return found


def writable(found: Acls) -> list[str]:
    """Returns the znodes that any client may write; below the endpoints' parent any client may come and go."""
    least = {ENDPOINTS: CREATE | DELETE}
    return sorted(
        path
        for path, acls in found.items()
        if any(one.scheme == "world" and one.perms & ~(READ | least.get(path, 0)) for one in acls)
    )


class ClosingContract:
    """Runs on a ``backend``."""

    async def test_every_znode_of_an_open_time_is_closed_once(self, backend: Backend) -> None:
        async with session(backend) as stranger, session(backend, **CLOSING) as s:
            made = await opened_tree(stranger.zk)
            assert writable(await acls_below(stranger.zk)) == sorted(made)
            first = await close_tree(s.zk, ROOT)
            assert (first.closed, first.left) == (len(made), [])
            found = await acls_below(s.zk)
            assert writable(found) == []
            assert {path for path, acls in found.items() if acls != {*LOCK}} == {ENDPOINTS}
            for path in made:
                await refused(stranger.zk.set(path, b"2", ANY_VERSION), Code.NO_AUTH, path)
            again = await close_tree(s.zk, ROOT)
            assert (again.closed, again.left) == (0, [])

    async def test_what_is_created_while_it_is_closed_is_closed_by_its_path(self, backend: Backend) -> None:
        async with session(backend, **CLOSING) as s:
            await opened_tree(s.zk)
            found = await acls_below(s.zk)
            assert writable(found) == []
            assert {path for path, acls in found.items() if acls != {*LOCK}} == {ENDPOINTS}
            await s.zk.create("/regents", b"")
            assert (await s.zk.get_acls("/regents"))[0] == OPEN, "another client's"

    async def test_a_walk_stops_at_its_depth_and_leaves_other_stores_out(self, backend: Backend) -> None:
        async with session(backend) as stranger, session(backend, **CLOSING) as s:
            made = await opened_tree(stranger.zk)
            await close_tree(s.zk, REGIONS, depth=1)
            closed = set(made).difference(writable(await acls_below(s.zk)))
            assert closed == {path for path in made if path.startswith(REGIONS) and path.count("/") <= 3}
            await close_tree(s.zk, ROOT, without=(REGIONS,))
            left = writable(await acls_below(s.zk))
            assert left == sorted(path for path in made if path.startswith(REGIONS) and path.count("/") > 3)
            looked = await close_tree(s.zk, ROOT, only_look=True)
            assert sorted(looked.left) == left
            assert writable(await acls_below(s.zk)) == left, "a look changes nothing"

    async def test_a_parent_of_many_is_closed_after_them_so_that_a_walk_that_broke_off_is_repeated(
        self, backend: Backend
    ) -> None:
        count = PORTION + 5
        async with session(backend) as stranger, session(backend, **CLOSING) as s:
            await opened_tree(stranger.zk)
            for number in range(count):
                await stranger.zk.create(f"{BUCKET}/{number}", b"")
            portions = 0

            async def breaks() -> None:
                nonlocal portions
                portions += 1
                if portions == 2:
                    raise Fenced("a test")

            with pytest.raises(Fenced):
                await close_tree(s.zk, BUCKET, may_write=breaks)
            assert len(writable(await acls_below(s.zk, BUCKET))) == 2 + count - PORTION
            found = await close_tree(s.zk, BUCKET)
            assert found.closed == 2 + count - PORTION
            assert writable(await acls_below(s.zk, BUCKET)) == []
            assert (await close_tree(s.zk, BUCKET)).looked_at == 0, "its children were closed before it"

    @pytest.mark.parametrize("parent", [PROCEDURES, BUCKET])
    async def test_a_daemon_that_dies_while_it_closes_leaves_the_rest_to_the_next(
        self, backend: Backend, parent: str
    ) -> None:
        async with session(backend, **CLOSING) as s:
            await opened_tree(s.zk)
            for name in ("y", "z"):
                await s.zk.create(f"{parent}/{name}", b"")
            znodes = list(await acls_below(s.zk, parent))
            for at in range(len(znodes)):
                for path in znodes:
                    await s.zk.set_acls(path, OPEN, ANY_VERSION)
                s.zk.hooks = NthWrite(at=at, before=raising(Kill()))
                with pytest.raises(Kill):
                    await close_tree(s.zk, parent)
                s.zk.hooks = None
                await close_tree(s.zk, parent)
                assert writable(await acls_below(s.zk, parent)) == [], f"killed at write {at}"

    async def test_a_term_that_was_fenced_closes_nothing(self, backend: Backend) -> None:
        async with session(backend) as stranger, session(backend, **CLOSING) as s:
            made = await opened_tree(stranger.zk)
            epoch = f"{REGIONS}/epoch"
            fence = Fence((await s.zk.set(epoch, b"2", ANY_VERSION)).version, path=epoch)
            await s.zk.set(epoch, b"3", ANY_VERSION)
            with pytest.raises(Fenced):
                await close_tree(s.zk, ROOT, may_write=lambda: confirm(s.zk, fence))
            assert writable(await acls_below(s.zk)) == sorted(made)

    async def test_what_all_addresses_may_write_is_open_to_any_client(self, backend: Backend) -> None:
        async with session(backend) as stranger, session(backend, **CLOSING) as s:
            await opened_tree(stranger.zk)
            await close_tree(s.zk, ROOT)
            for path, every in ((f"{ROOT}/role", "0.0.0.0/0"), (f"{REGIONS}/epoch", "127.0.0.1/0")):
                await s.zk.set_acls(path, [*LOCK, Acl(ALL, "ip", every)], ANY_VERSION)
                found = await close_tree(s.zk, ROOT)
                assert (found.closed, found.complaint) == (1, ""), path
                assert (await acls_below(s.zk, path))[path] == {*LOCK}

    @pytest.mark.parametrize(
        ("theirs", "shown"),
        [
            (digest_acl("ops", "theirs", READ | WRITE), "digest:ops (rw)"),
            (Acl(CREATE, "ip", "10.0.0.7"), "ip:10.0.0.7 (c)"),
            (Acl(DELETE, "ip", "10.0.0.0/8"), "ip:10.0.0.0/8 (d)"),
            (digest_acl("ops", "theirs", ADMIN), "digest:ops (a)"),
        ],
    )
    async def test_what_another_identity_may_write_stays_and_is_shown_until_its_command_is_given(
        self, backend: Backend, theirs: Acl, shown: str
    ) -> None:
        path = f"{ROOT}/role"
        async with session(backend, **CLOSING) as s:
            await opened_tree(s.zk)
            await s.zk.set_acls(path, [*LOCK, theirs], ANY_VERSION)
            found = await close_tree(s.zk, ROOT)
            assert (found.closed, found.left) == (0, [])
            command = f"setAcl {path} auth::cdrwa,world:anyone:r"
            assert f"{path} by {shown}, until '{command}'" in found.complaint
            assert (await acls_below(s.zk, path))[path] == {*LOCK, theirs}
            await s.zk.set_acls(path, READABLE, ANY_VERSION)  # as the command does
            assert (await close_tree(s.zk, ROOT)).complaint == ""

    async def test_another_identity_that_may_read_alone_is_of_no_concern(self, backend: Backend) -> None:
        async with session(backend, **CLOSING) as s:
            await opened_tree(s.zk)
            await s.zk.set_acls(ROOT, [*LOCK, digest_acl("ops", "theirs", READ)], ANY_VERSION)
            assert (await close_tree(s.zk, ROOT)).complaint == ""

    async def test_of_many_that_another_identity_may_write_the_first_are_shown(self, backend: Backend) -> None:
        async with session(backend, **CLOSING) as s:
            await opened_tree(s.zk)
            for one in OWN[: NAMED_MAX + 2]:
                await s.zk.set_acls(one.path.replace("*", "x"), [*LOCK, digest_acl("ops", "theirs")], ANY_VERSION)
            found = await close_tree(s.zk, ROOT, only_look=True)
            assert len(found.first_shared) == NAMED_MAX
            assert "2 more znodes are like that" in found.others

    async def test_of_many_complaints_as_many_are_looked_at_again_as_the_bound_says(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(closing, "AGAIN_MAX", 2)
        shared = [one.path for one in OWN if "*" not in one.path][:4]
        async with session(backend, **CLOSING) as s:
            await opened_tree(s.zk)
            for path in shared:
                await s.zk.set_acls(path, [*LOCK, digest_acl("ops", "theirs")], ANY_VERSION)
            found = await close_tree(s.zk, ROOT)
            for path in shared[1:]:
                await s.zk.set_acls(path, READABLE, ANY_VERSION)
            again = await close_again(s.zk, found)
            assert [one.split(" ")[0] for one in again.first_shared] == shared[:1]
            assert "2 more znodes are like that; the next term looks at 2 of them again" in again.complaint
            await s.zk.set_acls(shared[0], OPEN, ANY_VERSION)
            await close_again(s.zk, again)
            assert writable(await acls_below(s.zk)) == [], "what any client may write by now is closed"

    async def test_an_own_identity_writes_what_the_settings_permit_it(self, backend: Backend) -> None:
        """The session proves the digest ``regent``; the records are to be another one's alone."""
        records = (digest_acl("records", "secret"), MINE, ALL_READ)
        lists = LISTS | {Access.REGIONS: (digest_acl("regions", "secret"), Acl(READ | ADMIN, *MINE_ID), ALL_READ)}
        async with session(backend) as stranger, session(backend, credentials=DAEMON, own_acls=lists) as s:
            for path in (ROOT, PROCEDURES, REGIONS):
                await stranger.zk.create(path, b"1")
            await s.zk.set_acls(PROCEDURES, records, ANY_VERSION)
            await s.zk.set_acls(REGIONS, LOCK, ANY_VERSION)
            found = await close_tree(s.zk, ROOT, depth=1)
            assert found.closed == 2, "the root, too"
            assert f"{PROCEDURES} by digest:records (cdrwa)" in found.complaint
            assert (await acls_below(s.zk, REGIONS))[REGIONS] == {*lists[Access.REGIONS]}

    async def test_lists_of_operators_stay_and_one_that_no_client_may_close_is_named(self, backend: Backend) -> None:
        theirs, half = [digest_acl("ops", "theirs"), ALL_READ], [Acl(READ | WRITE, "world", "anyone")]
        async with session(backend) as stranger, session(backend, **CLOSING) as s:
            await opened_tree(stranger.zk)
            for path, acls in (
                (f"{ROOT}/role", theirs),
                (f"{ROOT}/pause", half),
                (f"{ROOT}/history", [Acl(ALL, "world", "anyone"), MINE]),
            ):
                await stranger.zk.set_acls(path, acls, ANY_VERSION)
            found = await close_tree(s.zk, ROOT)
            assert found.left == [f"{ROOT}/pause"]
            assert f"any client may write {ROOT}/pause, by an ACL that another client has set" in found.complaint
            assert f"{ROOT}/role by digest:ops (cdrwa)" in found.complaint
            after = await acls_below(s.zk)
            assert writable(after) == [f"{ROOT}/pause"]
            shown = frozenset([Acl(ALL, "digest", "ops:x"), ALL_READ])
            assert (after[f"{ROOT}/role"], after[f"{ROOT}/history"]) == (shown, frozenset(LOCK))

    async def test_where_znodes_are_as_the_brokers_those_of_regent_are_closed_to_them(self, backend: Backend) -> None:
        """``set_acl`` alone: no list of its own; the position of another daemon is closed, too."""
        async with session(backend) as stranger, session(backend, credentials=DAEMON, set_acl=True) as s:
            await opened_tree(stranger.zk)
            await stranger.zk.create(f"{LOCKS}/lock-", b"", ephemeral=True, sequential=True)
            await close_tree(s.zk, ROOT)
            assert set((await acls_below(s.zk)).values()) == {frozenset(LOCK)}
