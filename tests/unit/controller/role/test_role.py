"""Queues daemons for the role, and reads and writes the role flag."""

from __future__ import annotations

import subprocess
from typing import Any

import msgspec
import pytest

from controller.role import own_znodes as own
from controller.role.claim import Role
from controller.role.errors import ClaimRefused
from controller.role.own_znodes import started_ticks, this_process
from metadata_store import paths
from metadata_store.acl import ALL, READ, Acl, digest_acl
from metadata_store.errors import OutcomeUnknown
from metadata_store.own.registry import ENDPOINTS
from tests.kit.claim_kit import dead_pid, process, queued, unseated
from tests.kit.controller_parts import DAEMON, SECRET
from tests.kit.controller_world import Seat, World, in_world, world
from tests.kit.virtual_time import in_virtual_time


async def before_of(seat: Seat) -> str | None:
    """Returns the lock node right before a daemon's own."""
    position = await seat.role.predecessor()
    return position.path if position is not None else None


@in_virtual_time
async def test_each_daemon_waits_for_its_own_predecessor() -> None:
    async with queued(3) as (w, [first, second, third]):
        assert await first.role.predecessor() is None
        assert await before_of(second) == first.role.position_path
        assert await before_of(third) == second.role.position_path
        assert await first.role.daemons() == {DAEMON, DAEMON + 1, DAEMON + 2}
        w.server.expire(second.zk.session_id)
        assert await before_of(third) == first.role.position_path
        for _ in range(2):
            await first.role.leave_queue()
            assert await third.role.predecessor() is None


OWN_AND_OTHER: dict[str, tuple[dict[str, Any], bool]] = {
    "an ended process": ({"pid": "dead"}, False),
    "a former session of this process": ({"nonce": ""}, False),
    "a live process": ({}, True),
    "another id": ({"id": DAEMON + 5, "pid": "dead"}, True),
    "another machine": ({"host": "elsewhere", "pid": "dead"}, True),
    "another boot": ({"boot_id": "before", "pid": "dead"}, True),
    "another container": ({"pid_namespace": "pid:[1]", "pid": "dead"}, True),
}


@pytest.mark.parametrize("other", OWN_AND_OTHER)
@in_virtual_time
async def test_a_daemon_waits_for_all_but_its_own_dead_processes_and_sessions(other: str) -> None:
    changes, waits = OWN_AND_OTHER[other]
    me = process()
    values = {name: {"dead": dead_pid(), "": me.nonce}.get(value, value) for name, value in changes.items()}
    async with world() as w:
        before = await w.seat(me=process(**({"nonce": "another"} | values)))
        again = await w.seat(me=me)
        assert await before_of(again) == (before.role.position_path if waits else None)
        assert len(await again.role.queue()) == (2 if waits else 1)


def test_a_process_is_identified_by_pid_and_start_time() -> None:
    me = this_process(DAEMON)
    assert started_ticks(me.pid) == me.started
    assert not own.is_dead(me, process())
    assert own.is_dead(msgspec.structs.replace(me, started=me.started - 1), process()), "the pid was given again"
    assert started_ticks(dead_pid()) is None
    with subprocess.Popen(["true"]) as child:
        while started_ticks(child.pid) is not None:  # a zombie has ended, too
            pass


@in_world()
async def test_a_position_whose_creation_had_no_reply_is_kept(w: World) -> None:
    seat = unseated(w)
    await seat.zk.connect(1.0)
    seat.script.at(f"{own.LOCKS}/lock-", lambda: w.server.lose_replies(seat.zk.session_id))
    with pytest.raises(OutcomeUnknown):
        await seat.role.enter_queue()
    assert seat.role.position_path is None
    await seat.zk.sync()
    await seat.role.enter_queue()
    assert len(await seat.role.queue()) == 1
    assert await seat.role.predecessor() is None


@in_virtual_time
async def test_persistent_nodes_are_no_positions_and_other_names_are_no_ids() -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(f"{own.LOCKS}/lock-", b"by hand", sequential=True)
        await w.operator.create(f"{own.LOCKS}/a-note", b"")
        for name in ("²", "٣", "007", "-1", "+1", "1_0", str(2**31), "9" * 5_000, "x"):
            await w.operator.create(f"{own.DAEMONS}/{name}", b"")
        assert await seat.role.daemons() == {DAEMON}
        later = await w.seat(me=process(id=DAEMON + 1))
        assert await before_of(later) == seat.role.position_path
        assert [p is not None for _, p in await later.role.queue()] == [True, True]
        assert (await seat.role.claim()).epoch == 1


@in_world()
async def test_open_znodes_of_regent_are_closed_at_the_next_queue_position(w: World) -> None:
    await w.seat()
    await w.operator.create(ENDPOINTS, b"")
    await w.operator.create(own.BROKER_SETTINGS, b"{}")
    lone = Acl(READ, "world", "anyone")
    stat = await w.operator.set_acls(own.FORMAT, [lone, digest_acl("ops", "theirs")], 0)
    secured = unseated(w, me=process(nonce="another"), credentials="kafka:secret")
    secured.zk.set_acl = True
    await secured.sit()
    made = (own.ROOT, own.ROLE, own.DAEMONS, f"{own.DAEMONS}/{DAEMON}", own.LOCKS, ENDPOINTS, own.BROKER_SETTINGS)
    for path in made:
        assert (await w.operator.get_acls(path))[0] == [Acl(ALL, "digest", "kafka:x"), lone], path
        assert (await secured.zk.get_acls(path))[0] == [digest_acl("kafka", "secret"), lone], path
    assert (await w.operator.get_acls(own.FORMAT))[1].acl_version == stat.acl_version, "another client's ACL stays"


@in_world()
async def test_an_identity_other_than_the_brokers_creates_nothing(w: World) -> None:
    await w.operator.set_acls(paths.TOPICS, [digest_acl("kafka", "secret"), Acl(READ, "world", "anyone")], -1)
    seat = unseated(w, credentials="somebody:else")
    seat.zk.set_acl = True
    with pytest.raises(ClaimRefused, match=r"does not name this daemon's identity: set zookeeper\.sasl_file"):
        await seat.sit()
    assert w.node(own.ROOT) is None


@in_world()
async def test_seals_follow_the_cluster_id_and_the_secret(w: World) -> None:
    role = Role(w.operator, process(), hold=False, digest=None, secret=b"s" * 32)
    found = [await role.seals()]
    await w.operator.create("/cluster", b"")
    await w.operator.create(paths.CLUSTER_ID, b'{"version":"1","id":"abc"}')
    found.append(await role.seals())
    role.take_secret(b"t" * 32)
    found.append(await role.seals())
    assert [(seals.secret[:1], seals.cluster_id) for seals in found if seals is not None] == [
        (b"s", ""), (b"s", "abc"), (b"t", "abc"),
    ]  # fmt: skip
    assert await Role(w.operator, process(), hold=False, digest=None).seals() is None


@in_virtual_time
async def test_the_lock_node_is_sealed_again_once_after_a_new_secret() -> None:
    async with queued() as (w, [seat]):
        for secret, writes in ((SECRET, 0), (b"t" * 32, 1), (b"u" * 32, 1)):
            seat.role.take_secret(secret)
            for expected in (writes, 0):
                zxid = w.server.tree.zxid
                await seat.role.seal_again(None)
                assert w.server.tree.zxid == zxid + expected


# -- the role flag


@in_world()
async def test_an_absent_flag_means_brokers(w: World) -> None:
    seat = unseated(w)
    await seat.sit()
    flag, stat = await seat.role.flag()
    assert (flag.holder, stat) == ("brokers", None)
    with pytest.raises(ClaimRefused, match="is brokers: run 'regent takeover'"):
        await seat.role.claim()


@in_virtual_time
async def test_the_flag_is_written_where_it_changes_or_is_malformed() -> None:
    async with queued() as (w, [seat]):
        zxid = w.server.tree.zxid
        await seat.role.set_flag("regent", "once more", "uid 0")
        assert w.server.tree.zxid == zxid
        await seat.role.set_flag("brokers", "upgrade", "uid 0")
        assert (await seat.role.flag())[0].reason == "upgrade"
        await w.operator.set(own.ROLE, b"{", -1)
        await seat.role.set_flag("regent", "repaired", "uid 0")
        assert (await seat.role.claim()).epoch == 1
