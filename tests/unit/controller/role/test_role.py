"""Queues daemons for the role; reads and writes the role flag with its history."""

from __future__ import annotations

import subprocess
from typing import Any, Final

import msgspec
import pytest

from controller.role import own_znodes as own
from controller.role.claim import Role
from controller.role.history import BYTES_MAX, CHANGES_MAX, CHARS_MAX, RoleChange, read_history
from controller.role.own_znodes import started_ticks, this_process
from controller.role.queue import ClaimRefused
from metadata_store import paths
from metadata_store.acl import ALL, READ, Acl, digest_acl
from metadata_store.errors import MultiFailed, OutcomeUnknown
from metadata_store.own import ENDPOINTS
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.daemons import dead_pid, process, queued, unseated
from tests.kit.kafka.parts import DAEMON, SECRET
from tests.kit.kafka.world import KafkaWorld, Seat, in_world, world


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
async def test_a_position_whose_creation_had_no_reply_is_kept(w: KafkaWorld) -> None:
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
async def test_open_znodes_of_regent_are_closed_at_the_next_queue_position(w: KafkaWorld) -> None:
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
async def test_an_identity_other_than_the_brokers_creates_nothing(w: KafkaWorld) -> None:
    await w.operator.set_acls(paths.TOPICS, [digest_acl("kafka", "secret"), Acl(READ, "world", "anyone")], -1)
    seat = unseated(w, credentials="somebody:else")
    seat.zk.set_acl = True
    with pytest.raises(ClaimRefused, match=r"does not name this daemon's identity: set zookeeper\.sasl_file"):
        await seat.sit()
    assert w.node(own.ROOT) is None


@in_world()
async def test_seals_follow_the_cluster_id_and_the_secret(w: KafkaWorld) -> None:
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
async def test_an_absent_flag_means_brokers(w: KafkaWorld) -> None:
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


UNUSABLE: Final = {
    "bytes that are no JSON": b"{",
    "a newer format": b'{"changes":[],"version":2}',
    "another form": b'{"changes":5}',
}


def in_short(found: tuple[RoleChange, ...] | None) -> list[tuple[str, str, str]]:
    return [(one.holder, one.by, one.reason) for one in found or ()]


@in_world()
async def test_a_change_is_one_multi_with_the_flag_and_our_lock_node(w: KafkaWorld) -> None:
    seat = await w.seat()
    seat.script.writes.clear()
    await seat.role.set_flag("brokers", "upgrade", "uid 1000")
    await seat.role.set_flag("brokers", "again", "uid 0")
    await seat.role.set_flag("regent", "done", "uid 0")
    assert seat.script.writes == [[own.ROLE, own.HISTORY], [seat.role.position_path, own.ROLE, own.HISTORY]]
    found = await read_history(w.operator)
    assert in_short(found)[-2:] == [("brokers", "uid 1000", "upgrade"), ("regent", "uid 0", "done")]
    assert found is not None
    assert [one.at_ms for one in found] == sorted(one.at_ms for one in found)


@in_world()
async def test_a_daemon_that_lost_its_position_takes_nothing_and_can_give_back(w: KafkaWorld) -> None:
    seat = await w.seat()
    assert seat.role.position_path is not None
    await w.operator.delete(seat.role.position_path, -1)
    await seat.role.set_flag("brokers", "enough", "uid 0")
    before = w.node(own.ROLE)
    with pytest.raises(MultiFailed, match="NO_NODE at /regent/locks/lock-"):
        await seat.role.set_flag("regent", "too late", "uid 0")
    assert w.node(own.ROLE) == before


@pytest.mark.parametrize("data", UNUSABLE.values(), ids=UNUSABLE)
@in_world()
async def test_what_is_not_understood_stays_and_holds_nothing_up(
    w: KafkaWorld, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    seat = await w.seat()
    await w.operator.set(own.HISTORY, data, -1)
    await seat.role.set_flag("brokers", "upgrade", "uid 0")
    assert (await seat.role.flag())[0].holder == "brokers"
    assert await read_history(w.operator) is None
    node = w.node(own.HISTORY)
    assert node is not None
    assert node.data == data
    assert "this change of the role has no entry in /regent/history: this release does not understand it" in caplog.text


@in_world()
async def test_a_history_that_cannot_be_written_holds_nothing_up(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    seat = await w.seat()
    await w.operator.set_acls(own.HISTORY, (Acl(READ, "world", "anyone"),), -1)
    await seat.role.set_flag("brokers", "upgrade", "uid 0")
    assert (await seat.role.flag())[0].holder == "brokers"
    assert "has no entry in /regent/history: NO_AUTH at /regent/history: check its ACL" in caplog.text


@in_world()
async def test_another_writer_of_the_history_loses_nothing(w: KafkaWorld) -> None:
    seat = await w.seat()
    other = RoleChange("regent", 1, "uid 7", "by another hand")

    async def foreign() -> None:
        await w.operator.set(own.HISTORY, msgspec.json.encode({"changes": [other]}), -1)

    seat.script.at(own.HISTORY, foreign)
    await seat.role.set_flag("brokers", "upgrade", "uid 0")
    found = in_short(await read_history(w.operator))
    assert found == [("regent", "uid 7", "by another hand"), ("brokers", "uid 0", "upgrade")]


@in_world()
async def test_the_latest_changes_are_kept_and_long_reasons_cut(w: KafkaWorld) -> None:
    seat = await w.seat()
    for number in range(CHANGES_MAX + 5):
        await seat.role.set_flag("regent" if number % 2 else "brokers", "w" * 5_000 + str(number), "uid 0")
    found = await read_history(w.operator)
    assert found is not None
    assert (len(found), {len(one.reason) for one in found}) == (CHANGES_MAX, {CHARS_MAX})
    node = w.node(own.HISTORY)
    assert node is not None
    assert len(node.data or b"") < 100_000


@in_world()
async def test_a_large_history_of_another_client_is_cut(w: KafkaWorld) -> None:
    seat = await w.seat()
    large = [RoleChange("regent", at, "é" * 500, "é" * (20_000 if at < 20 else 500)) for at in range(CHANGES_MAX)]
    await w.operator.set(own.HISTORY, msgspec.json.encode({"changes": large}), -1)
    await seat.role.set_flag("brokers", "upgrade", "uid 0")
    node = w.node(own.HISTORY)
    assert node is not None
    assert len(node.data or b"") <= BYTES_MAX
    found = in_short(await read_history(w.operator))
    assert found[-1] == ("brokers", "uid 0", "upgrade")
    assert CHANGES_MAX // 2 < len(found) < CHANGES_MAX, "the oldest go"
    assert max(len(reason) for _, _, reason in found) == CHARS_MAX


@in_world()
async def test_an_operator_without_a_position_changes_the_flag_too(w: KafkaWorld) -> None:
    seat = await w.seat()
    await w.give_role_to("brokers")
    assert in_short(await read_history(seat.zk))[-1] == ("brokers", "uid 0", "a test")
