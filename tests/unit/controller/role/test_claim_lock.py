"""Locks brokers out in mode ``hold``, and continues after a process that dies at any write until its term."""

from __future__ import annotations

from contextlib import suppress

import pytest

from controller.daemon.rollback import keep_in_zookeeper, present
from metadata_store import paths
from metadata_store.acl import OPEN, READ, Acl, digest_acl
from metadata_store.errors import Code, MultiFailed, ZkError
from metadata_store.hooks import Kill
from metadata_store.port import Create, SetData
from tests.kit.claim_kit import DIGEST, controller, dead_pid, process, unseated
from tests.kit.controller_world import World, in_world, world
from tests.kit.virtual_time import in_virtual_time

LOCK = {digest_acl("regent", "secret"), Acl(READ, "world", "anyone")}


async def epoch_acls(w: World) -> set[Acl]:
    owner = await w.seat(credentials=DIGEST)
    acls, _ = await owner.zk.get_acls(paths.CONTROLLER_EPOCH)
    await owner.role.leave_queue()
    return set(acls)


@pytest.mark.seed("S4-86")
@in_world()
async def test_brokers_are_locked_out_after_the_claim_until_another_mode_claims(w: World) -> None:
    await w.operator.create(paths.CONTROLLER_EPOCH, b"4")
    seat = await w.seat(hold=True, credentials=DIGEST)
    first = await seat.role.claim()
    assert await epoch_acls(w) == set(OPEN), "claimed first, locked second"
    for _ in range(2):
        await seat.role.verify_lock_out()
        assert await epoch_acls(w) == LOCK
        await seat.zk.set_acls(paths.CONTROLLER_EPOCH, OPEN, -1)
    await seat.role.verify_lock_out()
    zxid = w.server.tree.zxid
    await seat.role.verify_lock_out()
    assert w.server.tree.zxid == zxid
    await seat.crash()
    assert controller(w).stat.ephemeral_owner == 0, "it outlives its session"
    await w.operator.delete(paths.CONTROLLER, -1)
    with pytest.raises(MultiFailed) as failed:
        await w.brokers[1].multi(
            [Create(paths.CONTROLLER, b"{}", ephemeral=True), SetData(paths.CONTROLLER_EPOCH, b"6", -1)]
        )
    assert failed.value.code is Code.NO_AUTH
    with pytest.raises(ZkError, match="NO_AUTH"):
        await w.operator.set(paths.CONTROLLER_EPOCH, b"9", -1)
    again = await w.seat(hold=True, credentials=DIGEST)
    assert (await again.role.claim()).epoch == first.epoch + 1


@pytest.mark.kafka("ControllerIntegrationTest.testControllerMoveIncrementsControllerEpoch")
@pytest.mark.parametrize(
    "before", [list(OPEN), [digest_acl("kafka", "pw"), digest_acl("regent", "secret"), Acl(READ, "world", "anyone")]]
)
@in_world()
async def test_a_claim_in_mode_brokers_restores_the_acls_from_before_the_take_over(w: World, before: list[Acl]) -> None:
    await w.operator.create(paths.CONTROLLER_EPOCH, b"4", acl=before)
    holding = await w.seat(hold=True, credentials=DIGEST)
    await keep_in_zookeeper(holding.role, await present(holding.role, "a take-over"))
    first = await holding.role.claim()
    await holding.role.verify_lock_out()
    await holding.crash()
    letting = await w.seat(credentials=DIGEST)
    second = await letting.role.claim()
    assert (second.epoch, second.displaced) == (first.epoch + 1, None)
    for _ in range(2):
        await letting.role.verify_lock_out()
        assert (await letting.zk.get_acls(paths.CONTROLLER_EPOCH))[0] == before
    await letting.crash()
    assert w.node(paths.CONTROLLER) is None, "a broker may be elected"


@pytest.mark.seed("S4-86")
@pytest.mark.parametrize("hold", [False, True])
@in_virtual_time
async def test_a_process_killed_at_any_write_is_neither_waited_for_nor_shares_its_epoch(hold: bool) -> None:
    """Covers each write from the first znode of the queue to the lock-out."""
    credentials = DIGEST if hold else None
    for number in range(1, 20):
        for when in ("before", "after"):
            async with world() as w:
                died = unseated(w, me=process(pid=dead_pid()), hold=hold, credentials=credentials)
                died.script.kill_at(number, when)
                with suppress(Kill):
                    await died.sit()
                    await died.role.set_flag("regent", "a test", "uid 0")
                    await died.role.claim()
                    await died.role.verify_lock_out()
                    if len(died.script.writes) < number:
                        assert number > 6
                        return
                node = w.node(paths.CONTROLLER_EPOCH)
                highest = int(node.data or b"0") if node is not None else 0
                again = await w.seat(me=process(), hold=hold, credentials=credentials)
                assert await again.role.predecessor() is None
                claim = await again.role.claim()
                assert claim.epoch == highest + 1
                await again.role.verify_lock_out()
                assert await again.role.is_ours(claim)
                acls, _ = await w.operator.get_acls(paths.CONTROLLER_EPOCH)
                assert (set(acls) == set(OPEN)) is not hold
    pytest.fail("it writes more often than expected")
