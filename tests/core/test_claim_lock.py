"""The lock-out, giving the role up, and a process that dies at any write on the way into office."""

from __future__ import annotations

import pytest

from controller.handover.rollback import keep_in_zookeeper, present
from controller.role.errors import PositionLost
from metadata_store import paths
from metadata_store.acl import OPEN, READ, Acl, digest_acl
from metadata_store.errors import Code, MultiFailed
from metadata_store.hooks import Kill
from metadata_store.port import Create, Op, SetData
from tests.core.claim_kit import DIGEST, dead_pid, process, queued
from tests.core.controller_world import Seat, world
from tests.core.virtual_time import in_virtual_time


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_brokers_are_locked_out_after_the_claim_and_only_then() -> None:
    async with world() as w:
        await w.operator.create(paths.CONTROLLER_EPOCH, b"4")
        seat = await w.seat(hold=True, credentials=DIGEST)
        await seat.role.claim()
        assert (await w.operator.get_acls(paths.CONTROLLER_EPOCH))[0] == list(OPEN)
        await seat.role.verify_lock_out()
        acls, _ = await seat.zk.get_acls(paths.CONTROLLER_EPOCH)
        assert set(acls) == {digest_acl("regent", "secret"), Acl(READ, "world", "anyone")}
        await seat.crash()
        node = w.node(paths.CONTROLLER_EPOCH)
        assert node is not None
        await w.operator.delete(paths.CONTROLLER, -1)
        election: list[Op] = [
            Create(paths.CONTROLLER, b"{}", ephemeral=True), SetData(paths.CONTROLLER_EPOCH, b"6", node.stat.version),
        ]  # fmt: skip
        with pytest.raises(MultiFailed) as failed:
            await w.brokers[1].multi(election)
        assert failed.value.code is Code.NO_AUTH


@in_virtual_time
async def test_a_lock_that_somebody_lifted_is_set_again_at_the_next_start() -> None:
    async with world() as w:
        seat = await w.seat(hold=True, credentials=DIGEST)
        await seat.role.claim()
        await seat.role.verify_lock_out()
        await seat.zk.set_acls(paths.CONTROLLER_EPOCH, OPEN, 1)
        await seat.role.verify_lock_out()
        assert set((await seat.zk.get_acls(paths.CONTROLLER_EPOCH))[0]) == set(seat.role.lock_out_acls() or ())


@in_virtual_time
async def test_lifting_the_lock_brings_back_what_was_before_the_take_over() -> None:
    async with world() as w:
        before = [digest_acl("kafka", "pw"), digest_acl("regent", "secret"), Acl(READ, "world", "anyone")]
        await w.operator.create(paths.CONTROLLER_EPOCH, b"4", acl=before)
        holding = await w.seat(hold=True, credentials=DIGEST)
        await keep_in_zookeeper(holding.role, await present(holding.role, "a take-over"))
        await holding.role.claim()
        await holding.role.verify_lock_out()
        await holding.crash()
        letting = await w.seat(credentials=DIGEST)
        await letting.role.claim()
        await letting.role.verify_lock_out()
        assert (await letting.zk.get_acls(paths.CONTROLLER_EPOCH))[0] == before


@in_virtual_time
async def test_releasing_frees_the_role_and_the_place_at_once() -> None:
    async with queued(2) as (w, [first, second]):
        claim = await first.role.claim()
        zxid = w.server.tree.zxid
        await first.role.release(claim)
        assert w.server.tree.zxid == zxid + 1, "one transaction"
        assert w.node(paths.CONTROLLER) is None
        assert first.role.position_path is None
        assert await second.role.predecessor() is None


@in_virtual_time
async def test_who_gave_the_place_up_meanwhile_does_not_claim() -> None:
    """A hand-back ends while somebody sets the role flag back to regent by hand."""
    async with queued() as (w, [seat]):
        await seat.role.release(await seat.role.claim())
        zxid = w.server.tree.zxid
        with pytest.raises(PositionLost):
            await seat.role.claim()
        assert w.server.tree.zxid == zxid


@in_virtual_time
async def test_what_was_handed_back_is_not_released_again() -> None:
    async with queued(2) as (w, [first, second]):
        claim = await first.role.claim()
        await first.role.release(claim)
        await second.role.claim()
        zxid = w.server.tree.zxid
        await first.role.release(claim)
        assert w.server.tree.zxid == zxid
        assert w.node(paths.CONTROLLER) is not None


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_a_successors_role_is_not_released() -> None:
    async with queued(2) as (w, [first, second]):
        claim = await first.role.claim()
        await second.role.claim()
        with pytest.raises(MultiFailed):
            await first.role.release(claim)
        assert w.node(paths.CONTROLLER) is not None


@in_virtual_time
async def test_a_foreign_record_is_not_deleted() -> None:
    async with queued() as (w, [seat]):
        claim = await seat.role.claim()
        await w.operator.set(paths.CONTROLLER, b'{"version":2,"brokerid":9,"timestamp":"0"}', -1)
        await seat.role.release(claim)
        assert w.node(paths.CONTROLLER) is not None


@pytest.mark.seed("S4-86")
@pytest.mark.parametrize("hold", [False, True])
@in_virtual_time
async def test_killed_before_and_after_every_write_the_next_process_goes_on(hold: bool) -> None:
    """From the first znode of the queue to the lock-out: the next life neither waits for the dead one nor shares."""
    for number in range(1, 20):
        for when in ("before", "after"):
            async with world() as w:
                died = Seat(w, me=process(pid=dead_pid()), hold=hold, credentials=DIGEST if hold else None)
                w.seats.append(died)
                died.script.kill_at(number, when)
                epochs = []
                try:
                    await died.sit()
                    await died.role.set_flag("regent", "a test")
                    epochs.append((await died.role.claim()).epoch)
                    await died.role.verify_lock_out()
                    if died.script.writes == [] or len(died.script.writes) < number:
                        return
                except Kill:
                    pass
                node = w.node(paths.CONTROLLER_EPOCH)
                highest = int(node.data or b"0") if node is not None else 0
                again = await w.seat(me=process(), hold=hold, credentials=DIGEST if hold else None)
                assert await again.role.predecessor() is None
                claim = await again.role.claim()
                assert claim.epoch == highest + 1
                await again.role.verify_lock_out()
                assert await again.role.is_ours(claim)
                acls, _ = await w.operator.get_acls(paths.CONTROLLER_EPOCH)
                assert (set(acls) == set(OPEN)) is not hold
    pytest.fail("it writes more often than expected")
