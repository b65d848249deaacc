"""Claims the role in one multi, never with an epoch twice; refuses with the reason; locks brokers out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
import pytest

from controller.daemon.takeover import keep_rollback, state_before
from controller.role import own_znodes as own
from controller.role.claim import CLAIMS_MAX, EPOCH_MAX, Role
from controller.role.queue import ClaimRefused, PositionLost
from metadata_store import paths
from metadata_store.acl import OPEN, READ, Acl, digest_acl
from metadata_store.codecs.controller import Migration, encode_migration
from metadata_store.errors import Code, MultiFailed, OutcomeUnknown, ZkError
from metadata_store.port import ANY_VERSION, Check, Create, Delete, Kill, SetData
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.daemons import DIGEST, claimed, controller, dead_pid, process, queued, unseated
from tests.kit.kafka.parts import DAEMON
from tests.kit.kafka.world import KafkaWorld, in_world, world

BROKER_2 = b'{"version":2,"brokerid":2,"timestamp":"0"}'
MIGRATING, ROLLED_BACK = (encode_migration(Migration(quorum, 1, 0, 0)) for quorum in (0, -1))


@pytest.mark.kafka("ControllerIntegrationTest.testEmptyCluster")
@in_virtual_time
async def test_the_first_claim_of_a_cluster_is_one_multi_on_position_flag_and_epoch() -> None:
    async with queued() as (w, [seat]):
        claim, ops = await claimed(seat)
        assert (claim.epoch, claim.fence_version, claim.displaced) == (1, 1, None)
        flag = w.node(own.ROLE)
        assert flag is not None
        *conditions, created = ops
        assert conditions == [
            Check(seat.role.position_path or "", ANY_VERSION),
            Check(own.ROLE, flag.stat.version),
            SetData(paths.CONTROLLER_EPOCH, b"1", 0),
        ]
        assert isinstance(created, Create)
        assert created.ephemeral
        record = msgspec.json.decode(created.data or b"")
        assert (record["brokerid"], record["version"], record["regent"]) == (DAEMON, 2, seat.me.nonce)
        assert record["kraftControllerEpoch"] == -1, "above 0 brokers refuse configuration writes"
        assert claim.zxid == w.server.tree.zxid
        assert await seat.role.is_ours(claim)


async def broker_holds(w: KafkaWorld) -> None:
    await w.brokers[2].create(paths.CONTROLLER, BROKER_2, ephemeral=True)


async def malformed_record_holds(w: KafkaWorld) -> None:
    await w.operator.create(paths.CONTROLLER, b"nonsense")


@pytest.mark.seed("S4-86")
@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize(
    ("before", "persistent", "displaced"), [(broker_holds, False, 2), (malformed_record_holds, True, -1)]
)
@in_world()
async def test_a_claim_displaces_the_holder_in_the_same_multi(
    w: KafkaWorld, before: Callable[[KafkaWorld], Awaitable[None]], persistent: bool, displaced: int, hold: bool
) -> None:
    await before(w)
    await w.operator.create(paths.CONTROLLER_EPOCH, b"7")
    seat = await w.seat(hold=hold, credentials=DIGEST if hold else None)
    claim, ops = await claimed(seat)
    assert (claim.epoch, claim.displaced) == (8, displaced)
    replaced = [SetData] if persistent and hold else [Delete, Create]
    assert [type(op) for op in ops[3:]] == replaced, "a record that stays wakes no broker for an election"
    assert controller(w).stat.ephemeral_owner == (0 if hold else seat.zk.session_id)


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_a_claim_that_lost_to_a_raised_epoch_is_repeated_above_it() -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(paths.CONTROLLER_EPOCH, b"5")
        seat.script.at(paths.CONTROLLER_EPOCH, lambda: w.seize(3))
        claim = await seat.role.claim()
        assert (claim.epoch, claim.displaced) == (7, 3)


@in_virtual_time
async def test_a_claim_that_always_loses_is_refused_after_its_rounds() -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(paths.CONTROLLER_EPOCH, b"5")
        before = len(seat.script.writes)

        async def foreign() -> None:
            await w.operator.set(paths.CONTROLLER_EPOCH, b"5", -1)
            seat.script.at(paths.CONTROLLER_EPOCH, foreign)

        seat.script.at(paths.CONTROLLER_EPOCH, foreign)
        with pytest.raises(ClaimRefused, match="something else rewriting /controller_epoch"):
            await seat.role.claim()
        assert len(seat.script.writes) == before + CLAIMS_MAX


@pytest.mark.seed("S4-86")
@pytest.mark.parametrize(("fault", "epoch"), [("lose_replies", 2), ("lose_requests", 1)])
@in_virtual_time
async def test_a_claim_of_unknown_outcome_is_repeated_with_the_next_epoch(fault: str, epoch: int) -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(paths.CONTROLLER_EPOCH, b"0")
        getattr(w.server, fault)(seat.zk.session_id)
        with pytest.raises(OutcomeUnknown):
            await seat.role.claim()
        await asyncio.sleep(0.1)
        claim = await seat.role.claim()
        assert (claim.epoch, claim.displaced) == (epoch, None)
        assert await seat.role.is_ours(claim)
        assert controller(w).stat.ephemeral_owner == seat.zk.session_id


@pytest.mark.kafka("KafkaZkClientTest.testConcurrentKRaftControllerClaim")
@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_two_concurrent_claims_never_share_an_epoch() -> None:
    async with queued(2) as (_w, [first, second]):
        claims = await asyncio.gather(first.role.claim(), second.role.claim())
        newest = max(claims, key=lambda claim: claim.epoch)
        ours = [await seat.role.is_ours(claim) for seat, claim in zip([first, second], claims, strict=True)]
        assert sorted(claim.epoch for claim in claims) == [1, 2]
        assert ours == [claim is newest for claim in claims]


@in_virtual_time
async def test_a_claim_is_ours_while_fence_and_nonce_hold() -> None:
    async with queued() as (w, [seat]):
        claim = await seat.role.claim()
        ours = controller(w).data
        twin = msgspec.json.encode(msgspec.json.decode(ours or b"") | {"regent": "another process with our id"})
        for data in (BROKER_2, twin, b"nonsense", None):
            await w.operator.set(paths.CONTROLLER, data, -1)
            assert not await seat.role.is_ours(claim)
        await w.operator.set(paths.CONTROLLER, ours, -1)
        assert await seat.role.is_ours(claim)
        await w.operator.set(paths.CONTROLLER_EPOCH, b"1", -1)
        assert not await seat.role.is_ours(claim), "the same epoch, rewritten, is another version"
        await w.operator.delete(paths.CONTROLLER_EPOCH, -1)
        assert not await seat.role.is_ours(claim)


# -- refusals


REFUSALS: dict[str, tuple[str, bytes, str]] = {
    "a migration": (paths.MIGRATION, MIGRATING, "names KRaft controller 0: this cluster migrates"),
    "a malformed migration": (paths.MIGRATION, b"nonsense", "/migration cannot be understood .* repair it"),
    "a malformed epoch": (paths.CONTROLLER_EPOCH, b"nonsense", "/controller_epoch cannot be understood .* repair it"),
    "the last epoch": (paths.CONTROLLER_EPOCH, b"%d" % EPOCH_MAX, "is 2147483647, and brokers take no larger one"),
    "the flag of brokers": (own.ROLE, b'{"holder":"brokers"}', "is brokers: run 'regent takeover'"),
    "a flag that is no JSON": (own.ROLE, b"{", "is malformed"),
    "a flag of null": (own.ROLE, b"null", "is malformed"),
    "a flag of another type": (own.ROLE, b'{"holder":5}', "is malformed"),
}


@pytest.mark.parametrize("cause", REFUSALS)
@in_virtual_time
async def test_a_refused_claim_writes_nothing_and_names_the_cause(cause: str) -> None:
    path, data, text = REFUSALS[cause]
    async with queued() as (w, [seat]):
        exists = w.node(path) is not None
        await (w.operator.set(path, data, -1) if exists else w.operator.create(path, data))
        before = [(each, w.node(each)) for each in (paths.CONTROLLER_EPOCH, own.ROLE, paths.MIGRATION)]
        with pytest.raises(ClaimRefused, match=text):
            await seat.role.claim()
        assert w.node(paths.CONTROLLER) is None
        assert all(w.node(each) == node for each, node in before if node is not None)


@in_virtual_time
async def test_the_last_epoch_is_claimed() -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(paths.CONTROLLER_EPOCH, b"%d" % (EPOCH_MAX - 1))
        assert (await seat.role.claim()).epoch == EPOCH_MAX


@pytest.mark.parametrize("begins", [False, True])
@in_virtual_time
async def test_a_migration_that_was_rolled_back_is_a_condition_of_the_claim(begins: bool) -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(paths.MIGRATION, ROLLED_BACK)
        if begins:
            seat.script.at(paths.CONTROLLER_EPOCH, lambda: w.operator.set(paths.MIGRATION, MIGRATING, -1))
            seat.script.at(paths.MIGRATION, lambda: w.operator.set(paths.MIGRATION, MIGRATING, -1))
            with pytest.raises(ClaimRefused, match="KRaft"):
                await seat.role.claim()
            assert w.node(paths.CONTROLLER) is None
        else:
            _, ops = await claimed(seat)
            assert ops[2] == Check(paths.MIGRATION, 0)


@in_virtual_time
async def test_a_flag_that_changes_during_a_claim_stops_it() -> None:
    async with queued() as (w, [seat]):
        operator = Role(w.operator, seat.me, hold=False, digest=None)
        seat.script.at(paths.CONTROLLER_EPOCH, lambda: operator.set_flag("brokers", "just now", "uid 0"))
        with pytest.raises(ClaimRefused, match="is brokers"):
            await seat.role.claim()
        assert w.node(paths.CONTROLLER) is None


@in_world()
async def test_without_the_credentials_of_the_lock_a_claim_is_refused_with_the_remedy(w: KafkaWorld) -> None:
    first = await w.seat(hold=True, credentials=DIGEST)
    await first.role.claim()
    await first.role.verify_lock_out()
    await first.crash()
    stranger = await w.seat()
    with pytest.raises(ClaimRefused, match=r"no permission to write /controller_epoch: set zookeeper\.digest"):
        await stranger.role.claim()


@in_virtual_time
async def test_a_daemon_without_its_queue_position_neither_waits_nor_claims() -> None:
    async with queued(2) as (w, [removed, left]):
        assert removed.role.position_path is not None
        await w.operator.delete(removed.role.position_path, -1)
        await left.role.leave_queue()
        for seat, text in ((removed, "is gone"), (left, "was given up meanwhile")):
            with pytest.raises(PositionLost, match=text):
                await seat.role.claim()
        with pytest.raises(PositionLost, match="is gone"):
            await removed.role.predecessor()
        assert w.node(paths.CONTROLLER) is None


@pytest.mark.parametrize(
    ("data", "text"), [(b'{"version":2}', "is 2, this release knows formats up to 1"), (b"{", "cannot be understood")]
)
@in_virtual_time
async def test_a_format_of_a_later_release_refuses_the_queue_position(data: bytes, text: str) -> None:
    async with queued() as (w, [_]):
        await w.operator.set(own.FORMAT, data, -1)
        older = unseated(w, me=process(id=DAEMON + 1))
        with pytest.raises(ClaimRefused, match=text):
            await older.sit()
        assert older.role.position_path is None


# -- release


@in_virtual_time
async def test_a_release_frees_role_and_position_in_one_multi_and_once() -> None:
    async with queued(2) as (w, [first, second]):
        claim = await first.role.claim()
        zxid = w.server.tree.zxid
        await first.role.release(claim)
        assert w.server.tree.zxid == zxid + 1
        assert w.node(paths.CONTROLLER) is None
        assert first.role.position_path is None
        assert await second.role.predecessor() is None
        await second.role.claim()
        zxid = w.server.tree.zxid
        await first.role.release(claim)
        with pytest.raises(PositionLost):
            await first.role.claim()
        assert w.server.tree.zxid == zxid, "the flag may be set back to regent by hand during a hand-back"


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_a_release_is_fenced_by_a_successor() -> None:
    async with queued(2) as (w, [first, second]):
        claim = await first.role.claim()
        await second.role.claim()
        with pytest.raises(MultiFailed):
            await first.role.release(claim)
        assert w.node(paths.CONTROLLER) is not None


@in_virtual_time
async def test_a_release_leaves_a_foreign_record() -> None:
    async with queued() as (w, [seat]):
        claim = await seat.role.claim()
        await w.operator.set(paths.CONTROLLER, BROKER_2, -1)
        await seat.role.release(claim)
        assert controller(w).data == BROKER_2


LOCK = {digest_acl("regent", "secret"), Acl(READ, "world", "anyone")}


async def epoch_acls(w: KafkaWorld) -> set[Acl]:
    owner = await w.seat(credentials=DIGEST)
    acls, _ = await owner.zk.get_acls(paths.CONTROLLER_EPOCH)
    await owner.role.leave_queue()
    return set(acls)


@pytest.mark.seed("S4-86")
@in_world()
async def test_brokers_are_locked_out_after_the_claim_until_another_mode_claims(w: KafkaWorld) -> None:
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
async def test_a_claim_in_mode_brokers_restores_the_acls_from_before_the_take_over(
    w: KafkaWorld, before: list[Acl]
) -> None:
    await w.operator.create(paths.CONTROLLER_EPOCH, b"4", acl=before)
    holding = await w.seat(hold=True, credentials=DIGEST)
    await keep_rollback(holding.role, await state_before(holding.role, "a take-over"))
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
