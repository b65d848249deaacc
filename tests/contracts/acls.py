"""Contract of the port: permissions and chroots."""

from __future__ import annotations

import pytest

from metadata_store.acl import ALL, Acl, digest_acl
from metadata_store.errors import Code, ConnectFailed, MultiFailed
from metadata_store.port import Check, Create, Created, SetData
from tests.contracts.support import ALL_READ, CHANGED, CHILD, CONNECT_S, OPEN, Backend, refused, session

DAEMON = "regent:secret"
OWN = digest_acl("regent", "secret")
LOCK = [OWN, ALL_READ]


class AclContract:
    """Permissions as Kafka's controller and the lock-out of brokers meet them."""

    async def test_brokers_locked_out_of_the_epoch_never_win(self, backend: Backend) -> None:
        async with session(backend, credentials=DAEMON) as daemon, session(backend) as broker:
            await daemon.zk.create("/controller_epoch", b"5", acl=LOCK)
            for version in (0, 3):  # NO_AUTH comes before BAD_VERSION
                with pytest.raises(MultiFailed) as failed:
                    await broker.zk.multi(
                        [Create("/controller", b"{}", ephemeral=True), SetData("/controller_epoch", b"6", version)]
                    )
                assert (failed.value.index, failed.value.code) == (1, Code.NO_AUTH)
                assert failed.value.codes == [Code.OK, Code.NO_AUTH]
            assert await broker.zk.exists("/controller") is None
            assert await broker.data("/controller_epoch") == b"5"
            await broker.zk.multi([Check("/controller_epoch", 0)])
            await refused(broker.zk.set_acls("/controller_epoch", OPEN, 0), Code.NO_AUTH, "/controller_epoch")
            await daemon.zk.multi([SetData("/controller_epoch", b"6", 0), Create("/controller", b"{}")])

    async def test_a_locked_child_keeps_the_parent(self, backend: Backend) -> None:
        async with session(backend, credentials=DAEMON) as daemon, session(backend) as broker:
            await daemon.zk.create("/epoch", b"", acl=LOCK)
            await daemon.zk.create("/epoch/lock", b"", acl=LOCK)
            await refused(broker.zk.delete("/epoch", 0), Code.NOT_EMPTY, "/epoch")
            await refused(broker.zk.delete("/epoch/lock", 0), Code.NO_AUTH, "/epoch/lock")
            await refused(broker.zk.create("/epoch/lock", b""), Code.NO_AUTH, "/epoch/lock")

    async def test_acl_lists_have_versions_of_their_own(self, backend: Backend) -> None:
        async with session(backend, credentials=DAEMON) as daemon:
            await daemon.zk.create("/a", b"")
            acls, stat = await daemon.zk.get_acls("/a")
            assert (acls, stat.acl_version) == (OPEN, 0)
            after = await daemon.zk.set_acls("/a", LOCK, 0)
            assert (after.acl_version, after.version) == (1, 0)
            assert (await daemon.zk.get_acls("/a"))[0] == LOCK
            await refused(daemon.zk.set_acls("/a", acls, 0), Code.BAD_VERSION, "/a")
            await refused(daemon.zk.set_acls("/a", [], 1), Code.INVALID_ACL, "/a")

    async def test_the_scheme_auth_stands_for_the_own_identity(self, backend: Backend) -> None:
        async with session(backend, credentials=DAEMON) as daemon, session(backend) as broker:
            await daemon.zk.create("/a", b"", acl=[Acl(ALL, "auth", "")])
            assert (await daemon.zk.get_acls("/a"))[0] == [OWN]
            await broker.zk.sync()
            for read in (broker.zk.get, broker.zk.children, broker.zk.get_acls, broker.zk.exists):
                await refused(read("/a"), Code.NO_AUTH, "/a")
            await broker.zk.watch(data=["/a"], since_zxid=broker.zk.last_zxid)
            await daemon.zk.set("/a", b"x", 0)
            await broker.quiet()
            await refused(broker.zk.create("/b", b"", acl=[Acl(ALL, "auth", "")]), Code.INVALID_ACL, "/b")

    async def test_znodes_are_created_open_without_set_acl(self, backend: Backend) -> None:
        async with session(backend, credentials=DAEMON) as daemon:
            await daemon.zk.create("/brokers", None)
            await daemon.zk.multi([Create("/config", None)])
            for path in ("/brokers", "/config"):
                assert (await daemon.zk.get_acls(path))[0] == OPEN

    @pytest.mark.parametrize("chroot", ["", "/kafka"])
    async def test_with_set_acl_each_znode_gets_the_list_that_brokers_give_it(
        self, backend: Backend, chroot: str
    ) -> None:
        options = {"credentials": DAEMON, "set_acl": True, "chroot": chroot, "create_chroot": True}
        async with session(backend, **options) as daemon, session(backend, chroot=chroot) as stranger:
            await daemon.zk.create("/consumers", None)
            await daemon.zk.create("/config", None)
            await daemon.zk.multi([Create("/config/users", None), Create("/config/topics", None)])
            await daemon.zk.multi([Create("/config/users/alice", b"key"), Create("/config/topics/t", b"{}")])
            await daemon.zk.create("/mine", b"", acl=[ALL_READ])
            await stranger.zk.sync()
            wanted = {
                "/consumers": OPEN,
                "/config": LOCK,
                "/config/topics/t": LOCK,
                "/config/users": [OWN],
                "/config/users/alice": [OWN],
                "/mine": [ALL_READ],
            }
            assert {path: (await daemon.zk.get_acls(path))[0] for path in wanted if path != "/mine"} == {
                path: acls for path, acls in wanted.items() if path != "/mine"
            }
            assert (await stranger.zk.get_acls("/mine"))[0] == wanted["/mine"]
            await refused(stranger.zk.get("/config/users/alice"), Code.NO_AUTH, "/config/users/alice")
            await refused(stranger.zk.set("/config/topics/t", b"", 0), Code.NO_AUTH, "/config/topics/t")
            await refused(stranger.zk.create("/config/topics/u", b""), Code.NO_AUTH, "/config/topics/u")
            assert (await stranger.zk.get("/config/topics/t")) is not None

    async def test_set_acl_without_credentials_creates_nothing(self, backend: Backend) -> None:
        async with session(backend, set_acl=True) as nobody:
            await refused(nobody.zk.create("/a", b""), Code.INVALID_ACL, "/a")

    async def test_the_credentials_hold_after_a_blip(self, backend: Backend) -> None:
        async with session(backend, credentials=DAEMON) as daemon:
            await daemon.zk.create("/a", b"", acl=[OWN])
            await daemon.reconnect(backend)
            await daemon.zk.set("/a", b"x", 0)


class ChrootContract:
    """A cluster below a chroot: the daemon sees its own paths only."""

    async def test_paths_are_relative_to_the_chroot(self, backend: Backend) -> None:
        async with session(backend, chroot="/kafka/one", create_chroot=True) as s, session(backend) as outside:
            assert (await s.zk.create("/a", b"x")).path == "/a"
            made = await s.zk.multi([Create("/a/b", b""), SetData("/a", b"y", 0)])
            assert isinstance(made[0], Created)
            assert made[0].path == "/a/b"
            assert await outside.node("/kafka/one/a") == await s.zk.get("/a")
            assert await s.names("/") == ["a"]
            await refused(s.zk.create("/none/b", b""), Code.NO_NODE, "/none/b")
            with pytest.raises(MultiFailed) as failed:
                await s.zk.multi([Check("/a", 9)])
            assert failed.value.path == "/a"
            await s.zk.watch(data=["/a"], children=["/"], since_zxid=s.zk.last_zxid)
            await outside.zk.create("/kafka/one/c", b"")
            await outside.zk.set("/kafka/one/a", b"z", 1)
            await s.saw(("/a", CHANGED), ("/", CHILD))

    @pytest.mark.kafka("KafkaZkClientTest.testChrootExistsAndRootIsLocked")
    async def test_a_chroot_that_exists_needs_no_permission_above_it(self, backend: Backend) -> None:
        async with session(backend) as s:
            await s.zk.create("/locked", b"")
            await s.zk.create("/locked/kafka", b"")
            await s.zk.set_acls("/locked", [ALL_READ], 0)
            await refused(s.zk.create("/locked/other", b""), Code.NO_AUTH, "/locked/other")
        async with session(backend, chroot="/locked/kafka") as inside:
            assert (await inside.zk.create("/a", b"")).path == "/a"

    async def test_a_missing_chroot_fails_the_connect_by_its_name(self, backend: Backend) -> None:
        with pytest.raises(ConnectFailed, match=r"the chroot .*/typo does not exist"):
            await backend.client(chroot="/typo").connect(CONNECT_S)
