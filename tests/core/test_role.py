"""The queue of daemons and the role flag, on a ZooKeeper in memory."""

from __future__ import annotations

import subprocess
from typing import Any

import msgspec
import pytest

from controller.role import own_znodes as own
from controller.role.claim import Role
from controller.role.errors import ClaimRefused, PositionLost
from controller.role.own_znodes import started_ticks, this_process
from metadata_store import paths
from metadata_store.acl import ADMIN, ALL, READ, Acl, digest_acl
from metadata_store.errors import OutcomeUnknown
from metadata_store.nodes.endpoint_znode import ENDPOINTS
from tests.core.claim_kit import dead_pid, process, queued
from tests.core.controller_parts import DAEMON
from tests.core.controller_world import Seat, world
from tests.core.virtual_time import in_virtual_time


async def before_of(seat: Seat) -> str | None:
    """The lock node before a daemon's own."""
    place = await seat.role.predecessor()
    return place.path if place is not None else None


@in_virtual_time
async def test_daemons_stand_in_the_order_in_which_they_came() -> None:
    async with queued(3) as (w, [first, second, third]):
        assert await first.role.predecessor() is None
        assert await before_of(second) == first.role.position_path
        assert await before_of(third) == second.role.position_path, "only its own predecessor wakes it"
        assert await first.role.daemons() == {DAEMON, DAEMON + 1, DAEMON + 2}
        w.server.expire(second.zk.session_id)
        assert await before_of(third) == first.role.position_path
        await first.role.leave_queue()
        assert await third.role.predecessor() is None
        await first.role.leave_queue()


@in_virtual_time
async def test_a_restart_on_the_same_machine_does_not_wait_for_its_own_dead_process() -> None:
    async with world() as w:
        died = await w.seat(me=process(pid=dead_pid()))
        again = await w.seat(me=process(nonce="a new life"))
        assert died.role.position_path != again.role.position_path
        assert await again.role.predecessor() is None


OTHERS = {
    "alive": {},
    "another id": {"id": DAEMON + 5, "pid": 0},
    "another machine": {"host": "elsewhere", "pid": 0},
    "another boot": {"boot_id": "before", "pid": 0},
    "another container": {"pid_namespace": "pid:[1]", "pid": 0},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@in_virtual_time
async def test_only_a_certainly_dead_process_of_its_own_is_not_waited_for(other: dict[str, Any]) -> None:
    async with world() as w:
        before = await w.seat(
            me=process(
                nonce="the other",
                **({"pid": dead_pid()} if "pid" in other else {})
                | {name: value for name, value in other.items() if name != "pid"},
            )
        )
        again = await w.seat(me=process())
        assert await before_of(again) == before.role.position_path


@in_virtual_time
async def test_a_name_that_is_no_id_is_nobodys() -> None:
    async with queued(1) as (w, [first]):
        for name in ("²", "٣", "007", "-1", "+1", "1_0", str(2**31), "9" * 5_000, "x"):
            await w.operator.create(f"{own.DAEMONS}/{name}", b"")
        assert await first.role.daemons() == {DAEMON}
        assert (await first.role.claim()).epoch == 1


@in_virtual_time
async def test_what_was_created_while_the_cluster_was_open_is_closed_at_the_next_place_in_the_queue() -> None:
    async with world() as w:
        await w.seat()
        await w.operator.create(ENDPOINTS, b"")
        await w.operator.create(own.BROKER_SETTINGS, b"{}")
        lone = Acl(READ, "world", "anyone")
        stat = await w.operator.set_acls(own.FORMAT, [lone, Acl(ADMIN, "world", "anyone")], 0)
        secured = Seat(w, me=process(nonce="another"), credentials="kafka:secret")
        secured.zk.set_acl = True
        await secured.sit()
        closed = [digest_acl("kafka", "secret"), lone]
        made = (own.ROOT, own.ROLE, own.DAEMONS, f"{own.DAEMONS}/{DAEMON}", own.LOCKS, ENDPOINTS, own.BROKER_SETTINGS)
        for path in made:
            assert (await w.operator.get_acls(path))[0] == [Acl(ALL, "digest", "kafka:x"), lone], path
            assert (await secured.zk.get_acls(path))[0] == closed, path
        assert (await w.operator.get_acls(own.FORMAT))[1].acl_version == stat.acl_version, "somebody's own list stays"


@in_virtual_time
async def test_seals_are_made_anew_once_the_cluster_has_an_id() -> None:
    async with world() as w:
        role = Role(w.operator, process(), hold=False, digest=None, secret=b"s" * 32)
        before = await role.seals()
        await w.operator.create("/cluster", b"")
        await w.operator.create(paths.CLUSTER_ID, b'{"version":"1","id":"abc"}')
        after = await role.seals()
        assert before is not None
        assert after is not None
        assert (before.cluster_id, after.cluster_id) == ("", "abc")


@in_virtual_time
async def test_who_is_not_whom_the_brokers_are_creates_nothing() -> None:
    async with world() as w:
        owned = [digest_acl("kafka", "secret"), Acl(READ, "world", "anyone")]
        await w.operator.set_acls(paths.TOPICS, owned, 0)
        seat = Seat(w, credentials="somebody:else")
        seat.zk.set_acl = True
        with pytest.raises(ClaimRefused, match=r"does not name this daemon's identity: set zookeeper\.sasl_file"):
            await seat.sit()
        assert w.node(own.ROOT) is None


def test_a_process_is_told_by_its_start_time() -> None:
    me = this_process(DAEMON)
    assert started_ticks(me.pid) == me.started
    assert not own.is_dead(me, process())
    assert own.is_dead(msgspec.structs.replace(me, started=me.started - 1), process()), "the pid was given again"
    assert started_ticks(dead_pid()) is None
    child = subprocess.Popen(["true"])
    while started_ticks(child.pid) is not None:
        pass
    child.wait()


@in_virtual_time
async def test_a_place_whose_creation_was_not_answered_is_kept() -> None:
    """Otherwise the daemon would wait for itself for ever."""
    async with world() as w:
        seat = Seat(w)
        w.seats.append(seat)
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
async def test_a_former_session_of_the_same_process_is_not_waited_for() -> None:
    async with world() as w:
        former = await w.seat()
        now = await w.seat(me=former.me)
        assert await now.role.predecessor() is None
        assert len(await now.role.queue()) == 1


@in_virtual_time
async def test_what_no_session_will_end_is_nobodys_place() -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(f"{own.LOCKS}/lock-", b"by hand", sequential=True)
        await w.operator.create(f"{own.LOCKS}/a-note", b"")
        later = await w.seat(me=process(id=DAEMON + 1))
        assert await before_of(later) == seat.role.position_path
        assert [p is not None for _, p in await later.role.queue()] == [True, True]


@in_virtual_time
async def test_a_place_that_somebody_removed_is_lost() -> None:
    async with queued() as (w, [seat]):
        assert seat.role.position_path is not None
        await w.operator.delete(seat.role.position_path, -1)
        with pytest.raises(PositionLost, match="is gone"):
            await seat.role.predecessor()
        with pytest.raises(PositionLost, match="is gone"):
            await seat.role.claim()


@in_virtual_time
async def test_an_absent_flag_means_brokers() -> None:
    async with world() as w:
        seat = Seat(w)
        w.seats.append(seat)
        await seat.sit()
        assert (await seat.role.flag())[0].holder == "brokers"
        with pytest.raises(ClaimRefused, match="is brokers: run 'regent takeover'"):
            await seat.role.claim()


@in_virtual_time
async def test_setting_the_flag_again_changes_nothing() -> None:
    async with queued() as (w, [seat]):
        zxid = w.server.tree.zxid
        await seat.role.set_flag("regent", "once more")
        assert w.server.tree.zxid == zxid
        await seat.role.set_flag("brokers", "upgrade")
        assert (await seat.role.flag())[0].reason == "upgrade"


@in_virtual_time
async def test_a_flag_that_changes_between_reading_and_claiming_stops_the_claim() -> None:
    async with queued() as (w, [seat]):
        operator = Role(w.operator, seat.me, hold=False, digest=None)
        seat.script.at(paths.CONTROLLER_EPOCH, lambda: operator.set_flag("brokers", "just now"))
        with pytest.raises(ClaimRefused, match="is brokers"):
            await seat.role.claim()
        assert w.node(paths.CONTROLLER) is None


@pytest.mark.parametrize("data", [b"{", b"null", b'{"holder":5}'])
@in_virtual_time
async def test_a_flag_that_cannot_be_understood_is_nobodys(data: bytes) -> None:
    async with queued() as (w, [seat]):
        await w.operator.set(own.ROLE, data, -1)
        with pytest.raises(ClaimRefused, match="is malformed"):
            await seat.role.claim()
        await seat.role.set_flag("regent", "mended")
        assert (await seat.role.claim()).epoch == 1
