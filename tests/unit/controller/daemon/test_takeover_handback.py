"""Hands the role back: by a daemon, interrupted at any write, undone where brokers do not follow, or offline."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from controller.daemon.daemon import Daemon
from controller.daemon.handback import (
    HandbackFailed,
    HandbackRefused,
    finish,
    hand_back,
    hand_back_offline,
    shell_lines,
)
from controller.daemon.state import Mode
from controller.role import own_znodes as own
from controller.role.own_znodes import this_process
from metadata_store import paths
from metadata_store.acl import OPEN, READ, Acl, digest_acl
from metadata_store.codecs.controller import ControllerZnode, encode_controller
from metadata_store.port import Delete, Kill, Write
from testing.memory import MemoryZooKeeper
from tests.kit.deadlines import eventually
from tests.kit.kafka.role import DAEMON, Kafka, KilledAt, MiniBroker, changed, kafka


async def test_a_hand_back_ends_once_a_broker_holds_the_role_and_every_broker_knows(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        await cluster.topic("orders", (1, 2, 3), (2, 3, 1))
        await cluster.take_over()
        await cluster.serving(daemon)
        epoch, steps, epochs_open = await cluster.epoch(), list[str](), list[bool]()
        assert daemon.term is not None
        gate = daemon.term.gate

        def note(step: str) -> None:
            steps.append(step)
            epochs_open.append(gate.open())

        seen = await hand_back(daemon, cluster.dial, "upgrade of regent", note, "uid 0")
        assert seen.holder in cluster.brokers
        assert (seen.by_daemon, seen.unaware) == (False, [])
        assert await cluster.epoch() == epoch + 1
        assert [step.split(":")[0] for step in steps[:2]] == ["/regent/role is brokers", "drained"]
        assert epochs_open == [True, True, False], "the gate closes before the role is released"
        await eventually(lambda: daemon.mode is Mode.STANDBY)
        assert (await cluster.flag()).reason == "upgrade of regent"
        before = cluster.snapshot()
        assert (await hand_back(daemon, cluster.dial, "again", steps.append, "uid 0")).holder == seen.holder
        assert cluster.snapshot() == before


class BrokerEndsAtRelease:
    """Ends a broker just before the daemon deletes ``/controller``, and records the daemon's writes from then on."""

    def __init__(self, daemon: Daemon, broker: MiniBroker) -> None:
        assert daemon.term is not None
        self.term, self.broker = daemon.term, broker
        self.handled: set[str | None] = set()
        self.written: list[str] | None = None

    async def before(self, ops: Sequence[Write]) -> None:
        if self.written is not None:
            self.written += [op.path for op in ops if op.path.startswith(paths.TOPICS)]
        elif Delete(paths.CONTROLLER, 0) in ops:
            self.written = []
            await self.broker.zk.close()
            for _ in range(TURNS):
                await asyncio.sleep(0)
                self.handled.add(self.term.handling)

    async def after(self, ops: Sequence[Write]) -> None:
        """Nothing."""


TURNS = 100
"""More turns of the loop than a broker change takes to be written."""


async def test_a_daemon_that_releases_the_role_decides_no_more(tmp_path: Path) -> None:
    """A broker ends while the multi that deletes /controller is in progress: the next controller handles that."""
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        await cluster.topic("orders", (1, 2, 3), (2, 3, 1))
        await cluster.take_over()
        await cluster.serving(daemon)
        assert daemon.role is not None
        hooks = BrokerEndsAtRelease(daemon, cluster.brokers[1])
        cast(MemoryZooKeeper, daemon.role.zk).hooks = hooks
        await hand_back(daemon, cluster.dial, "", lambda _: None, by="uid 0")
        assert "broker_change" in hooks.handled
        assert hooks.written == []


async def test_take_over_and_hand_back_may_alternate(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        for _ in range(3):
            await cluster.take_over()
            await cluster.serving(daemon)
            await hand_back(daemon, cluster.dial, "", lambda _: None, by="uid 0")
            assert await cluster.controller() in cluster.brokers


async def test_a_hand_back_restores_the_acls_from_before_the_lock(tmp_path: Path) -> None:
    async with kafka(tmp_path, hold=True) as cluster:
        before = [digest_acl("kafka", "pw"), digest_acl("regent", "secret"), Acl(31, "world", "anyone")]
        _, stat = await cluster.operator.get_acls(paths.CONTROLLER_EPOCH)
        await cluster.operator.set_acls(paths.CONTROLLER_EPOCH, before, stat.acl_version)
        async with cluster.active() as daemon:
            node = await cluster.operator.get(paths.CONTROLLER)
            assert node is not None
            assert node.stat.ephemeral_owner == 0
            await hand_back(daemon, cluster.dial, "", lambda _: None, by="uid 0")
            acls, _ = await cluster.operator.get_acls(paths.CONTROLLER_EPOCH)
            assert acls == before


async def test_a_role_that_a_broker_does_not_follow_is_taken_back(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        cluster.gives_up_soon()
        async with cluster.active() as daemon:
            cluster.brokers[2].deaf = True
            with pytest.raises(HandbackFailed, match=r"broker 2 \(names 1000001\) does not know it") as failed:
                await hand_back(daemon, cluster.dial, "", lambda _: None, by="uid 0")
            assert "controller.handback_timeout_ms" in failed.value.remedy
            cluster.brokers[2].deaf = False
            await cluster.serving(daemon)
            flag, _ = await cluster.role().flag()
            assert (flag.holder, "hand-back undone" in flag.reason) == ("regent", True)


async def test_a_role_that_no_broker_claims_is_taken_back(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        cluster.gives_up_soon()
        async with cluster.active() as daemon:
            cluster.stop_elections()
            with pytest.raises(HandbackFailed, match="the role has no holder"):
                await hand_back(daemon, cluster.dial, "", lambda _: None, by="uid 0")
            await cluster.serving(daemon)


async def test_a_hand_back_without_a_live_broker_is_refused(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.active() as daemon:
        for broker in cluster.brokers.values():
            broker.elects = False
            await broker.zk.close()
        with pytest.raises(HandbackRefused, match="no broker is live"):
            await hand_back(daemon, cluster.dial, "", lambda _: None, by="uid 0")
        assert (await cluster.flag()).holder == "regent"


async def test_a_standby_names_the_daemon_that_holds_the_role(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.active() as active:
        second = changed(cluster.settings, "controller", id=DAEMON + 1).controller
        async with cluster.daemon(controller=second) as standby:
            with pytest.raises(HandbackRefused, match=rf"\(pid {active.me.pid}\) holds the role, not this one"):
                await hand_back(standby, cluster.dial, "", lambda _: None, by="uid 0")
            assert (await cluster.flag()).holder == "regent"


WRITES = [(False, 1), (False, 2), (True, 1), (True, 2), (True, 3)]
"""Writes of a hand-back by mode: the flag, with ``hold`` the ACLs, and the multi that frees the role."""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("hold", "write"), WRITES)
async def test_a_hand_back_interrupted_at_any_write_is_completed_by_the_next_daemon(
    tmp_path: Path, when: str, hold: bool, write: int
) -> None:
    async with kafka(tmp_path, hold=hold) as cluster, cluster.active() as daemon:
        assert daemon.zk is not None
        daemon.zk.hooks = KilledAt(write, when)
        with pytest.raises(Kill):
            await hand_back(daemon, cluster.dial, "", lambda _: None, by="uid 0")
        daemon.zk.hooks = None
        epoch = await cluster.epoch()
        cluster.server.expire(daemon.zk.session_id)
        if (write, when) == (1, "before"):
            await eventually(lambda: daemon.counters.terms == 2)
            await cluster.serving(daemon)
            return
        await eventually(lambda: broker_holds(cluster))
        assert await cluster.epoch() <= epoch + 1
        assert await cluster.epoch_acls() == list(OPEN)


async def broker_holds(cluster: Kafka) -> bool:
    return await cluster.controller() in cluster.brokers


# -- completion by the next daemon


async def half_handed_back(cluster: Kafka) -> None:
    """Interrupts a hand-back in mode ``hold`` after the flag: ``/controller`` and the lock stay, without a daemon."""
    await cluster.hold_by_dead_daemon()
    await cluster.role().set_flag("brokers", "interrupted after this", "uid 0")


async def test_a_concurrent_take_over_wins_over_a_completion(tmp_path: Path) -> None:
    async with kafka(tmp_path, hold=True) as cluster:
        await half_handed_back(cluster)
        role = cluster.role()

        class TakenOver:
            async def before(self, ops: Sequence[Write]) -> None:
                cluster.operator.hooks = None
                await cluster.role().set_flag("regent", "another operator was faster", "uid 0")

            async def after(self, ops: Sequence[Write]) -> None: ...

        _, stat = await cluster.operator.get_acls(paths.CONTROLLER_EPOCH)
        await cluster.operator.set_acls(paths.CONTROLLER_EPOCH, list(OPEN), stat.acl_version)
        cluster.operator.hooks = TakenOver()
        assert await finish(role) is None
        assert await cluster.controller() == DAEMON


async def test_a_daemon_without_its_queue_position_completes_nothing(tmp_path: Path) -> None:
    """The daemon was frozen beyond its session: another one is first in the queue now."""
    async with kafka(tmp_path, hold=True) as cluster:
        await half_handed_back(cluster)
        role = cluster.role()
        role.position_path = f"{own.LOCKS}/lock-0000000099"
        assert await finish(role) is None
        assert await cluster.controller() == DAEMON


async def test_a_completion_leaves_the_role_of_a_broker_alone(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        for _ in range(2):
            before = cluster.snapshot()
            assert await finish(cluster.role()) is None
            assert cluster.snapshot() == before
            await cluster.role().set_flag("brokers", "", "uid 0")


# -- without a daemon


async def offline(cluster: Kafka, steps: list[str] | None = None, *, dry_run: bool = False) -> int | None:
    note = (steps if steps is not None else []).append
    seen = await hand_back_offline(
        cluster.settings, cluster.role(), cluster.dial, "by hand", note, by="uid 0", dry_run=dry_run
    )
    return seen.holder if seen is not None else None


async def test_an_offline_hand_back_frees_the_role_of_a_dead_daemon_and_may_be_repeated(tmp_path: Path) -> None:
    async with kafka(tmp_path, hold=True) as cluster:
        await cluster.hold_by_dead_daemon()
        steps: list[str] = []
        assert await offline(cluster, steps, dry_run=True) is None
        assert await cluster.controller() == DAEMON
        assert steps[0] == "set /regent/role to brokers"
        holder = await offline(cluster, steps)
        assert holder in cluster.brokers
        assert not [step for step in steps if "every broker knows" in step], "the end is no step"
        acls, _ = await cluster.operator.get_acls(paths.CONTROLLER_EPOCH)
        assert acls == list(OPEN)
        assert await offline(cluster) in cluster.brokers


async def test_an_offline_hand_back_is_refused_while_a_daemon_lives(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.active():
        me = this_process(DAEMON)
        with pytest.raises(HandbackRefused, match=rf"daemon {DAEMON} on {me.host} \(pid {me.pid}\) lives"):
            await offline(cluster)
        assert (await cluster.flag()).holder == "regent"


async def test_an_offline_hand_back_without_the_credentials_of_the_lock_is_refused(tmp_path: Path) -> None:
    async with kafka(tmp_path, hold=True) as cluster:
        await cluster.hold_by_dead_daemon()
        stranger = MemoryZooKeeper(cluster.server)
        await stranger.connect(1.0)
        cluster.change("zookeeper", digest=None)
        with pytest.raises(HandbackRefused, match="locked by the digest user regent") as refused:
            await hand_back_offline(
                cluster.settings, cluster.role(stranger), cluster.dial, "", lambda _: None, by="uid 0"
            )
        assert "zookeeper.digest_file" in refused.value.remedy
        assert (await cluster.flag()).holder == "regent"
        await stranger.close()


async def test_an_offline_hand_back_fails_where_no_broker_claims(tmp_path: Path) -> None:
    async with kafka(tmp_path, hold=True) as cluster:
        await cluster.hold_by_dead_daemon()
        cluster.stop_elections()
        cluster.gives_up_soon()
        with pytest.raises(HandbackFailed, match="the role is free, and after 1 s the role has no holder"):
            await offline(cluster)


async def test_an_offline_hand_back_leaves_a_foreign_controller(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        cluster.stop_elections()
        for broker in cluster.brokers.values():
            await broker.zk.close()
        await cluster.operator.create(paths.CONTROLLER, encode_controller(ControllerZnode(4711)))
        with pytest.raises(HandbackFailed, match="broker 4711 holds the role"):
            await offline(cluster)
        assert await cluster.controller() == 4711


def test_shell_lines_hand_the_role_back_without_regent() -> None:
    assert shell_lines() == [
        "ls /regent/locks",
        'set /regent/role {"holder":"brokers"}',
        "delete /controller",
        "get /controller",
    ]
    locked = shell_lines("regent", [Acl(READ, "world", "anyone"), digest_acl("kafka", "pw")])
    assert locked[0] == "addauth digest regent:PASSWORD"
    assert locked[3].startswith("setAcl /controller_epoch world:anyone:r,digest:kafka:")
    assert own.decode_role(b'{"holder":"brokers"}').holder == "brokers"
