"""The claim: one step whoever holds the role, never an epoch twice, refused with the reason; and giving it up."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from controller.handover.rollback import keep_in_zookeeper, present
from controller.role import own_znodes as own
from controller.role.claim import CLAIMS_MAX
from controller.role.errors import ClaimRefused
from metadata_store import paths
from metadata_store.acl import OPEN
from metadata_store.codecs.controller import Migration, encode_migration
from metadata_store.errors import OutcomeUnknown, ZkError
from metadata_store.port import ANY_VERSION, Check, Create, Delete, SetData
from tests.core.claim_kit import DIGEST, claimed, process, queued
from tests.core.controller_parts import DAEMON
from tests.core.controller_world import Seat, World, world
from tests.core.virtual_time import in_virtual_time


@pytest.mark.kafka("ControllerIntegrationTest.testEmptyCluster")
@in_virtual_time
async def test_the_first_claim_of_a_cluster() -> None:
    async with queued() as (w, [seat]):
        claim, ops = await claimed(seat)
        assert (claim.epoch, claim.fence_version, claim.displaced) == (1, 1, None)
        flag = w.node(own.ROLE)
        assert flag is not None
        assert ops[:3] == [
            Check(seat.role.position_path or "", ANY_VERSION),
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
        assert await seat.role.is_ours(claim)


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


@pytest.mark.kafka("ControllerIntegrationTest.testControllerMoveIncrementsControllerEpoch")
@in_virtual_time
async def test_switching_between_the_modes() -> None:
    async with world() as w:
        holding = await w.seat(hold=True, credentials=DIGEST)
        await w.operator.create(paths.CONTROLLER_EPOCH, b"4")
        await keep_in_zookeeper(holding.role, await present(holding.role, "a take-over"))
        first = await holding.role.claim()
        await holding.role.verify_lock_out()
        await holding.crash()
        node = w.node(paths.CONTROLLER)
        assert node is not None
        assert node.stat.ephemeral_owner == 0, "it outlives its session"
        with pytest.raises(ZkError, match="NO_AUTH"):
            await w.operator.set(paths.CONTROLLER_EPOCH, b"9", -1)

        letting = await w.seat(credentials=DIGEST)
        second = await letting.role.claim()
        assert (second.epoch, second.displaced) == (first.epoch + 1, None)
        await letting.role.verify_lock_out()
        assert (await w.operator.get_acls(paths.CONTROLLER_EPOCH))[0] == list(OPEN)
        await letting.crash()
        assert w.node(paths.CONTROLLER) is None, "brokers may elect one of them"

        again = await w.seat(hold=True, credentials=DIGEST)
        third = await again.role.claim()
        assert third.epoch == second.epoch + 1
        await again.role.verify_lock_out()
        zxid = w.server.tree.zxid
        await again.role.verify_lock_out()
        assert w.server.tree.zxid == zxid


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_an_epoch_that_others_raise_meanwhile_is_claimed_above() -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(paths.CONTROLLER_EPOCH, b"5")
        seat.script.at(paths.CONTROLLER_EPOCH, lambda: w.seize(3))
        claim = await seat.role.claim()
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
            await seat.role.claim()
        assert len(seat.script.writes) >= CLAIMS_MAX


@pytest.mark.seed("S4-86")
@pytest.mark.parametrize(("fault", "epoch"), [("lose_replies", 2), ("lose_requests", 1)])
@in_virtual_time
async def test_a_claim_of_unknown_outcome_is_claimed_again_with_the_next_epoch(fault: str, epoch: int) -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(paths.CONTROLLER_EPOCH, b"0")
        getattr(w.server, fault)(seat.zk.session_id)
        with pytest.raises(OutcomeUnknown):
            await seat.role.claim()
        await asyncio.sleep(0.1)
        claim = await seat.role.claim()
        assert (claim.epoch, claim.displaced) == (epoch, None)
        assert await seat.role.is_ours(claim)
        node = w.node(paths.CONTROLLER)
        assert node is not None
        assert node.stat.ephemeral_owner == seat.zk.session_id


@pytest.mark.kafka("KafkaZkClientTest.testConcurrentKRaftControllerClaim")
@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_two_daemons_that_both_believe_in_their_turn_never_share_an_epoch() -> None:
    async with queued(2) as (_w, [first, second]):
        claims = await asyncio.gather(first.role.claim(), second.role.claim())
        assert len({claim.epoch for claim in claims}) == 2
        newest = max(claims, key=lambda claim: claim.epoch)
        ours = [await seat.role.is_ours(claim) for seat, claim in zip([first, second], claims, strict=True)]
        assert ours == [claim is newest for claim in claims]


@in_virtual_time
async def test_is_ours_needs_epoch_and_nonce() -> None:
    async with queued() as (w, [seat]):
        claim = await seat.role.claim()
        node = w.node(paths.CONTROLLER)
        assert node is not None
        for data in (b'{"version":2,"brokerid":1000001,"timestamp":"0"}', b"nonsense", None):
            await w.operator.set(paths.CONTROLLER, data, -1)
            assert not await seat.role.is_ours(claim)
        await w.operator.set(paths.CONTROLLER, node.data, -1)
        assert await seat.role.is_ours(claim)
        await w.operator.set(paths.CONTROLLER_EPOCH, b"1", -1)
        assert not await seat.role.is_ours(claim), "written again is written by somebody else"


@in_virtual_time
async def test_a_cluster_that_migrates_to_kraft_is_left_alone() -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(paths.MIGRATION, encode_migration(Migration(3000, 1, 0, 0)))
        with pytest.raises(ClaimRefused, match="names KRaft controller 3000"):
            await seat.role.claim()
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
            await seat.role.claim()
        assert w.node(paths.CONTROLLER) is None


@pytest.mark.parametrize("path", [paths.CONTROLLER_EPOCH, paths.MIGRATION])
@in_virtual_time
async def test_what_cannot_be_understood_is_named(path: str) -> None:
    async with queued() as (w, [seat]):
        await w.operator.create(path, b"nonsense")
        with pytest.raises(ClaimRefused, match=rf"{path} cannot be understood .* repair it"):
            await seat.role.claim()


@pytest.mark.parametrize(
    ("data", "says"), [(b'{"version":2}', "is 2, this release knows formats up to 1"), (b"{", "cannot be understood")]
)
@in_virtual_time
async def test_what_a_later_release_stored_is_not_touched(data: bytes, says: str) -> None:
    async with queued() as (w, [_]):
        await w.operator.set(own.FORMAT, data, -1)
        older = Seat(w, me=process(id=DAEMON + 1))
        w.seats.append(older)
        with pytest.raises(ClaimRefused, match=says):
            await older.sit()
        assert older.role.position_path is None


@in_virtual_time
async def test_without_the_credentials_of_the_lock_the_message_says_so() -> None:
    async with world() as w:
        holding = await w.seat(hold=True, credentials=DIGEST)
        await holding.role.claim()
        await holding.role.verify_lock_out()
        await holding.crash()
        stranger = await w.seat()
        with pytest.raises(ClaimRefused, match=r"no permission to write /controller_epoch: set zookeeper\.digest"):
            await stranger.role.claim()
