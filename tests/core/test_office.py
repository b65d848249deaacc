"""The role in ZooKeeper: the queue of daemons, the flag, the claim and the lock-out, on a ZooKeeper in memory."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from controller import own_znodes as own
from controller.office import CLAIMS_MAX, Claim, ClaimRefused, Office, PlaceLost
from controller.own_znodes import Process, started_ticks, this_process
from controller.rollback import keep_in_zookeeper, present
from metadata_store import paths
from metadata_store.acl import OPEN, READ, Acl, digest_acl
from metadata_store.codecs.controller import Migration, encode_migration
from metadata_store.errors import Code, MultiFailed, OutcomeUnknown, ZkError
from metadata_store.hooks import Kill
from metadata_store.port import Check, Create, Delete, Op, SetData, Write
from tests.core.controller_world import DAEMON, Seat, World, world
from tests.core.virtual_time import in_virtual_time

DIGEST = "regent:secret"


def process(**changes: Any) -> Process:
    """A daemon of this machine; by default one that still runs."""
    return msgspec.structs.replace(this_process(DAEMON), **changes)


def dead_pid() -> int:
    """A process id that was in use and is not any more."""
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


@asynccontextmanager
async def queued(number: int = 1, **options: Any) -> AsyncIterator[tuple[World, list[Seat]]]:
    """``number`` daemons with ids of their own in the queue, the role regent's."""
    async with world() as w:
        seats = [await w.seat(me=process(id=DAEMON + n), **options) for n in range(number)]
        yield w, seats


class Recorder:
    """Keeps the operations of every write."""

    def __init__(self) -> None:
        self.writes: list[Sequence[Write]] = []

    async def before(self, ops: Sequence[Write]) -> None:
        self.writes.append(ops)

    async def after(self, ops: Sequence[Write]) -> None: ...


async def claimed(seat: Seat) -> tuple[Claim, list[Op]]:
    """A won claim, and the operations of its multi."""
    recorder = seat.zk.hooks = Recorder()
    claim = await seat.office.claim()
    seat.zk.hooks = seat.script
    return claim, list(recorder.writes[-1])  # type: ignore[arg-type]


# -- the queue


@in_virtual_time
async def test_daemons_stand_in_the_order_in_which_they_came() -> None:
    async with queued(3) as (w, [first, second, third]):
        assert await first.office.predecessor() is None
        assert await second.office.predecessor() == first.office.lock_path
        assert await third.office.predecessor() == second.office.lock_path, "only its own predecessor wakes it"
        assert await first.office.daemons() == {DAEMON, DAEMON + 1, DAEMON + 2}
        w.server.expire(second.zk.session_id)
        assert await third.office.predecessor() == first.office.lock_path
        await first.office.leave_queue()
        assert await third.office.predecessor() is None
        await first.office.leave_queue()


@in_virtual_time
async def test_a_restart_on_the_same_machine_does_not_wait_for_its_own_dead_process() -> None:
    async with world() as w:
        died = await w.seat(me=process(pid=dead_pid()))
        again = await w.seat(me=process(nonce="a new life"))
        assert died.office.lock_path != again.office.lock_path
        assert await again.office.predecessor() is None


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
        before = await w.seat(me=process(nonce="the other", **({"pid": dead_pid()} if "pid" in other else {}) | {
            name: value for name, value in other.items() if name != "pid"
        }))
        again = await w.seat(me=process())
        assert await again.office.predecessor() == before.office.lock_path


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
            await seat.office.enter_queue()
        assert seat.office.lock_path is None
        await seat.zk.sync()
        await seat.office.enter_queue()
        assert len(await seat.office.queue()) == 1
        assert await seat.office.predecessor() is None


@in_virtual_time
async def test_a_former_session_of_the_same_process_is_not_waited_for() -> None:
    async with world() as w:
        former = await w.seat()
        now = await w.seat(me=former.me)
        assert await now.office.predecessor() is None
        assert len(await now.office.queue()) == 1


@in_virtual_time
async def test_what_no_session_will_end_is_nobodys_place() -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(f"{own.LOCKS}/lock-", b"by hand", sequential=True)
        await w.operator.create(f"{own.LOCKS}/a-note", b"")
        later = await w.seat(me=process(id=DAEMON + 1))
        assert await later.office.predecessor() == seat.office.lock_path
        assert [p is not None for _, p in await later.office.queue()] == [True, True]


@in_virtual_time
async def test_a_place_that_somebody_removed_is_lost() -> None:
    async with queued() as (w, [seat]):
        assert seat.office.lock_path is not None
        await w.operator.delete(seat.office.lock_path, -1)
        with pytest.raises(PlaceLost, match="is gone"):
            await seat.office.predecessor()
        with pytest.raises(PlaceLost, match="is gone"):
            await seat.office.claim()


# -- the role flag


@in_virtual_time
async def test_an_absent_flag_means_brokers() -> None:
    async with world() as w:
        seat = Seat(w)
        w.seats.append(seat)
        await seat.sit()
        assert (await seat.office.role())[0].holder == "brokers"
        with pytest.raises(ClaimRefused, match="says brokers: run 'regent takeover'"):
            await seat.office.claim()


@in_virtual_time
async def test_setting_the_flag_again_changes_nothing() -> None:
    async with queued() as (w, [seat]):
        zxid = w.server.tree.zxid
        await seat.office.set_role("regent", "once more")
        assert w.server.tree.zxid == zxid
        await seat.office.set_role("brokers", "upgrade")
        assert (await seat.office.role())[0].reason == "upgrade"


@in_virtual_time
async def test_a_flag_that_changes_between_reading_and_claiming_stops_the_claim() -> None:
    async with queued() as (w, [seat]):
        operator = Office(w.operator, seat.me, hold=False, digest=None)
        seat.script.at(paths.CONTROLLER_EPOCH, lambda: operator.set_role("brokers", "just now"))
        with pytest.raises(ClaimRefused, match="says brokers"):
            await seat.office.claim()
        assert w.node(paths.CONTROLLER) is None


@pytest.mark.parametrize("data", [b"{", b"null", b'{"holder":5}'])
@in_virtual_time
async def test_a_flag_that_cannot_be_understood_is_nobodys(data: bytes) -> None:
    async with queued() as (w, [seat]):
        await w.operator.set(own.ROLE, data, -1)
        with pytest.raises(ClaimRefused, match="nothing that can be understood"):
            await seat.office.claim()
        await seat.office.set_role("regent", "mended")
        assert (await seat.office.claim()).epoch == 1


# -- the claim


@in_virtual_time
async def test_the_first_claim_of_a_cluster() -> None:
    async with queued() as (w, [seat]):
        claim, ops = await claimed(seat)
        assert (claim.epoch, claim.fence_version, claim.displaced) == (1, 1, None)
        flag = w.node(own.ROLE)
        assert flag is not None
        assert ops[:3] == [
            Check(seat.office.lock_path or "", 0),
            Check(own.ROLE, flag.stat.version),
            SetData(paths.CONTROLLER_EPOCH, b"1", 0),
        ]
        [created] = ops[3:]
        assert isinstance(created, Create)
        assert created.ephemeral
        record = msgspec.json.decode(created.data or b"")
        assert record["brokerid"] == DAEMON
        assert record["version"] == 2
        assert record["kraftControllerEpoch"] == -1, "above 0 brokers refuse configuration writes"
        assert record["regent"] == seat.me.nonce
        assert claim.zxid == w.server.tree.zxid
        assert await seat.office.is_ours(claim)


async def broker_holds(w: World) -> None:
    await w.seize(2)


async def broker_holds_by_session(w: World) -> None:
    await w.brokers[2].create(paths.CONTROLLER, b'{"version":2,"brokerid":2,"timestamp":"0"}', ephemeral=True)
    await w.operator.create(paths.CONTROLLER_EPOCH, b"7")


async def nonsense_holds(w: World) -> None:
    await w.operator.create(paths.CONTROLLER, b"nonsense")
    await w.operator.create(paths.CONTROLLER_EPOCH, b"7")


@pytest.mark.seed("S4-86")
@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize(
    ("before", "persistent", "displaced"),
    [(broker_holds_by_session, False, 2), (nonsense_holds, True, -1)],
)
@in_virtual_time
async def test_whoever_holds_the_role_is_displaced_in_one_step(  # type: ignore[no-untyped-def]
    before, persistent: bool, displaced: int, hold: bool
) -> None:
    async with world() as w:
        await before(w)
        seat = await w.seat(hold=hold, credentials=DIGEST if hold else None)
        claim, ops = await claimed(seat)
        assert (claim.epoch, claim.displaced) == (8, displaced)
        if persistent and hold:
            assert [type(op) for op in ops[3:]] == [SetData], "it keeps its czxid: nobody is woken for an election"
        else:
            assert [type(op) for op in ops[3:]] == [Delete, Create]
        node = w.node(paths.CONTROLLER)
        assert node is not None
        assert node.stat.ephemeral_owner == (0 if hold else seat.zk.session_id)


@in_virtual_time
async def test_switching_between_the_modes() -> None:
    async with world() as w:
        holding = await w.seat(hold=True, credentials=DIGEST)
        await w.operator.create(paths.CONTROLLER_EPOCH, b"4")
        await keep_in_zookeeper(holding.office, await present(holding.office, "a take-over"))
        first = await holding.office.claim()
        await holding.office.verify_lock()
        await holding.crash()
        node = w.node(paths.CONTROLLER)
        assert node is not None
        assert node.stat.ephemeral_owner == 0, "it outlives its session"
        with pytest.raises(ZkError, match="NO_AUTH"):
            await w.operator.set(paths.CONTROLLER_EPOCH, b"9", -1)

        letting = await w.seat(credentials=DIGEST)
        second = await letting.office.claim()
        assert (second.epoch, second.displaced) == (first.epoch + 1, None)
        await letting.office.verify_lock()
        assert (await w.operator.get_acls(paths.CONTROLLER_EPOCH))[0] == list(OPEN)
        await letting.crash()
        assert w.node(paths.CONTROLLER) is None, "brokers may elect one of them"

        again = await w.seat(hold=True, credentials=DIGEST)
        third = await again.office.claim()
        assert third.epoch == second.epoch + 1
        await again.office.verify_lock()
        zxid = w.server.tree.zxid
        await again.office.verify_lock()
        assert w.server.tree.zxid == zxid


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_an_epoch_that_others_raise_meanwhile_is_claimed_above() -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(paths.CONTROLLER_EPOCH, b"5")
        seat.script.at(paths.CONTROLLER_EPOCH, lambda: w.seize(3))
        claim = await seat.office.claim()
        assert (claim.epoch, claim.displaced) == (7, 3)


@in_virtual_time
async def test_a_claim_that_always_loses_is_given_up_with_the_question_why() -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(paths.CONTROLLER_EPOCH, b"5")

        async def foreign() -> None:
            await w.operator.set(paths.CONTROLLER_EPOCH, b"5", -1)
            seat.script.at(paths.CONTROLLER_EPOCH, foreign)

        seat.script.at(paths.CONTROLLER_EPOCH, foreign)
        with pytest.raises(ClaimRefused, match="something else rewriting /controller_epoch"):
            await seat.office.claim()
        assert len(seat.script.writes) >= CLAIMS_MAX


@pytest.mark.seed("S4-86")
@pytest.mark.parametrize(("fault", "epoch"), [("lose_replies", 2), ("lose_requests", 1)])
@in_virtual_time
async def test_a_claim_of_unknown_outcome_is_claimed_again_with_the_next_epoch(fault: str, epoch: int) -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(paths.CONTROLLER_EPOCH, b"0")
        getattr(w.server, fault)(seat.zk.session_id)
        with pytest.raises(OutcomeUnknown):
            await seat.office.claim()
        await asyncio.sleep(0.1)
        claim = await seat.office.claim()
        assert (claim.epoch, claim.displaced) == (epoch, None)
        assert await seat.office.is_ours(claim)
        node = w.node(paths.CONTROLLER)
        assert node is not None
        assert node.stat.ephemeral_owner == seat.zk.session_id


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_two_daemons_that_both_believe_in_their_turn_never_share_an_epoch() -> None:
    async with queued(2) as (_w, [first, second]):
        claims = await asyncio.gather(first.office.claim(), second.office.claim())
        assert len({claim.epoch for claim in claims}) == 2
        newest = max(claims, key=lambda claim: claim.epoch)
        ours = [await seat.office.is_ours(claim) for seat, claim in zip([first, second], claims, strict=True)]
        assert ours == [claim is newest for claim in claims]


@in_virtual_time
async def test_is_ours_needs_epoch_and_nonce() -> None:
    async with queued() as (w, [seat]):
        claim = await seat.office.claim()
        node = w.node(paths.CONTROLLER)
        assert node is not None
        for data in (b'{"version":2,"brokerid":1000001,"timestamp":"0"}', b"nonsense", None):
            await w.operator.set(paths.CONTROLLER, data, -1)
            assert not await seat.office.is_ours(claim)
        await w.operator.set(paths.CONTROLLER, node.data, -1)
        assert await seat.office.is_ours(claim)
        await w.operator.set(paths.CONTROLLER_EPOCH, b"1", -1)
        assert not await seat.office.is_ours(claim), "written again is written by somebody else"


# -- what stands in the way


@in_virtual_time
async def test_a_cluster_that_migrates_to_kraft_is_left_alone() -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(paths.MIGRATION, encode_migration(Migration(3000, 1, 0, 0)))
        with pytest.raises(ClaimRefused, match="names KRaft controller 3000"):
            await seat.office.claim()
        await w.operator.set(paths.MIGRATION, encode_migration(Migration(-1, 0, 0, 0)), -1)
        _, ops = await claimed(seat)
        assert ops[2] == Check(paths.MIGRATION, 1)


@in_virtual_time
async def test_a_migration_that_begins_at_the_last_moment_wins() -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(paths.MIGRATION, encode_migration(Migration(-1, 0, 0, 0)))
        begun = encode_migration(Migration(3000, 1, 0, 0))
        seat.script.at(paths.CONTROLLER_EPOCH, lambda: w.operator.set(paths.MIGRATION, begun, -1))
        seat.script.at(paths.MIGRATION, lambda: w.operator.set(paths.MIGRATION, begun, -1))
        with pytest.raises(ClaimRefused, match="KRaft"):
            await seat.office.claim()
        assert w.node(paths.CONTROLLER) is None


@pytest.mark.parametrize("path", [paths.CONTROLLER_EPOCH, paths.MIGRATION])
@in_virtual_time
async def test_what_cannot_be_understood_is_named(path: str) -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(path, b"nonsense")
        with pytest.raises(ClaimRefused, match=rf"{path} cannot be understood .* mend it"):
            await seat.office.claim()


@pytest.mark.parametrize(
    ("data", "says"), [(b'{"version":2}', "says 2, this release knows formats up to 1"), (b"{", "cannot be understood")]
)
@in_virtual_time
async def test_what_a_later_release_stored_is_not_touched(data: bytes, says: str) -> None:
    async with queued() as (w, [_]):
        await w.operator.set(own.FORMAT, data, -1)
        older = Seat(w, me=process(id=DAEMON + 1))
        w.seats.append(older)
        with pytest.raises(ClaimRefused, match=says):
            await older.sit()
        assert older.office.lock_path is None


@in_virtual_time
async def test_without_the_credentials_of_the_lock_the_message_says_so() -> None:
    async with world() as w:
        holding = await w.seat(hold=True, credentials=DIGEST)
        await holding.office.claim()
        await holding.office.verify_lock()
        await holding.crash()
        stranger = await w.seat()
        with pytest.raises(ClaimRefused, match="no permission to write /controller_epoch: set zookeeper.digest"):
            await stranger.office.claim()


# -- the lock-out


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_brokers_are_locked_out_after_the_claim_and_only_then() -> None:
    async with world() as w:
        await w.operator.create(paths.CONTROLLER_EPOCH, b"4")
        seat = await w.seat(hold=True, credentials=DIGEST)
        await seat.office.claim()
        assert (await w.operator.get_acls(paths.CONTROLLER_EPOCH))[0] == list(OPEN)
        await seat.office.verify_lock()
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
        await seat.office.claim()
        await seat.office.verify_lock()
        await seat.zk.set_acls(paths.CONTROLLER_EPOCH, OPEN, 1)
        await seat.office.verify_lock()
        assert set((await seat.zk.get_acls(paths.CONTROLLER_EPOCH))[0]) == set(seat.office.lock_acls() or ())


@in_virtual_time
async def test_lifting_the_lock_brings_back_what_was_before_the_take_over() -> None:
    async with world() as w:
        before = [digest_acl("kafka", "pw"), digest_acl("regent", "secret"), Acl(READ, "world", "anyone")]
        await w.operator.create(paths.CONTROLLER_EPOCH, b"4", acl=before)
        holding = await w.seat(hold=True, credentials=DIGEST)
        await keep_in_zookeeper(holding.office, await present(holding.office, "a take-over"))
        await holding.office.claim()
        await holding.office.verify_lock()
        await holding.crash()
        letting = await w.seat(credentials=DIGEST)
        await letting.office.claim()
        await letting.office.verify_lock()
        assert (await letting.zk.get_acls(paths.CONTROLLER_EPOCH))[0] == before


# -- giving it up


@in_virtual_time
async def test_releasing_frees_the_role_and_the_place_at_once() -> None:
    async with queued(2) as (w, [first, second]):
        claim = await first.office.claim()
        zxid = w.server.tree.zxid
        await first.office.release(claim)
        assert w.server.tree.zxid == zxid + 1, "one transaction"
        assert w.node(paths.CONTROLLER) is None
        assert first.office.lock_path is None
        assert await second.office.predecessor() is None


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_a_successors_role_is_not_released() -> None:
    async with queued(2) as (w, [first, second]):
        claim = await first.office.claim()
        await second.office.claim()
        with pytest.raises(MultiFailed):
            await first.office.release(claim)
        assert w.node(paths.CONTROLLER) is not None


@in_virtual_time
async def test_a_foreign_record_is_not_deleted() -> None:
    async with queued() as (w, [seat]):
        claim = await seat.office.claim()
        await w.operator.set(paths.CONTROLLER, b'{"version":2,"brokerid":9,"timestamp":"0"}', -1)
        await seat.office.release(claim)
        assert w.node(paths.CONTROLLER) is not None


# -- killed anywhere


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
                    await died.office.set_role("regent", "a test")
                    epochs.append((await died.office.claim()).epoch)
                    await died.office.verify_lock()
                    if died.script.writes == [] or len(died.script.writes) < number:
                        return
                except Kill:
                    pass
                node = w.node(paths.CONTROLLER_EPOCH)
                highest = int(node.data or b"0") if node is not None else 0
                again = await w.seat(me=process(), hold=hold, credentials=DIGEST if hold else None)
                assert await again.office.predecessor() is None
                claim = await again.office.claim()
                assert claim.epoch == highest + 1
                await again.office.verify_lock()
                assert await again.office.is_ours(claim)
                acls, _ = await w.operator.get_acls(paths.CONTROLLER_EPOCH)
                assert (set(acls) == set(OPEN)) is not hold
    pytest.fail("it writes more often than expected")
