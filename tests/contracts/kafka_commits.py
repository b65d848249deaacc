"""Contract of the store: commits of partitions and topics, with every outcome."""

from __future__ import annotations

import pytest

from metadata_store import paths
from metadata_store.errors import Code, NotConnected, OutcomeUnknown
from metadata_store.fencing.fenced import WRITES_MAX
from metadata_store.fencing.outcome import Fence, Fenced
from metadata_store.port import IN_FLIGHT_MAX, Create, Kill
from state_machines.model.types import Leadership
from tests.contracts.kafka_support import after_election, created, elected, kafka, merged, rows_of
from tests.contracts.support import ALL_READ, CONNECTED, SUSPENDED, Backend, NthWrite, raising, session


class CommitContract:
    """Conditional, fenced writes of state znodes in bulk."""

    @pytest.mark.kafka("KafkaZkClientTest.testUpdateLeaderAndIsr")
    @pytest.mark.seed("S4-9")
    async def test_elections_are_written_in_few_multis(self, backend: Backend) -> None:
        async with kafka(backend, per_topic=50) as k:
            await k.make_topics(1_100)
            hooks = k.zk.hooks = NthWrite(at=-1)
            outcomes, error = await k.commit([elected(row) for row in range(1_100)])
            assert error is None
            assert rows_of(merged(outcomes).applied) == list(range(1_100))
            assert len(outcomes) == hooks.count == -(-1_100 // WRITES_MAX)
            assert hooks.most <= IN_FLIGHT_MAX
            assert await k.states(range(1_100)) == [after_election()] * 1_100

    async def test_a_commit_without_changes_sends_nothing(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            hooks = k.zk.hooks = NthWrite(at=-1)
            assert await k.commit([]) == ([], None)
            assert hooks.count == 0

    @pytest.mark.kafka("KafkaZkClientTest.testUpdateLeaderAndIsr")
    @pytest.mark.seed("S4-86")
    async def test_a_stale_epoch_writes_nothing_and_is_fenced(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.make_topics(10)
            await k.zk.set(paths.CONTROLLER_EPOCH, b"2", 0)
            outcomes, error = await k.commit([elected(row) for row in range(10)])
            assert outcomes == []
            assert isinstance(error, Fenced)
            assert [state.version for state in await k.states(range(10))] == [0] * 10

    async def test_outcomes_before_a_fenced_write_come_before_the_error(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.make_topics(100)
            k.zk.hooks = hooks = NthWrite(at=5)

            async def depose() -> None:
                k.zk.hooks = None
                await k.zk.set(paths.CONTROLLER_EPOCH, b"2", 0)
                k.zk.hooks = hooks

            hooks.acts = depose
            outcomes, error = await k.commit([elected(row) for row in range(100)], writes_max=10)
            assert isinstance(error, Fenced)
            applied = rows_of(merged(outcomes).applied)
            assert applied
            written = [row for row, state in enumerate(await k.states(range(100))) if state.version == 1]
            assert applied == written

    @pytest.mark.kafka("KafkaZkClientTest.testUpdateLeaderAndIsr")
    @pytest.mark.seed("S4-80")
    async def test_a_leader_that_changed_its_isr_makes_its_multi_a_conflict(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.make_topics(30)
            await k.set_raw(13, b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1]}')
            outcomes, error = await k.commit([elected(row) for row in range(30)], writes_max=10)
            total = merged(outcomes)
            assert error is None
            assert rows_of(total.applied) == [*range(10), *range(20, 30)]
            assert sorted(total.conflicts) == list(range(10, 20))
            assert total.unsettled == set(range(10, 20))
            assert (await k.states([12, 13])) == [
                Leadership(1, 0, (1, 2, 3), 1, 0),
                Leadership(1, 0, (1,), 1, 1),
            ]

    async def test_of_changes_sent_singly_only_the_contended_one_fails(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.make_topics(5)
            await k.set_raw(3, b"{}")
            total = merged((await k.commit([elected(row) for row in range(5)], writes_max=1))[0])
            assert (rows_of(total.applied), total.conflicts) == ([0, 1, 2, 4], [3])

    @pytest.mark.kafka("KafkaZkClientTest.testUpdateLeaderAndIsr")
    async def test_a_deleted_znode_is_gone_and_the_rest_of_its_multi_a_conflict(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.make_topics(10)
            await k.zk.delete(k.path(4), 0)
            total = merged((await k.commit([elected(row) for row in range(10)]))[0])
            assert (total.gone, total.applied) == ([4], [])
            assert sorted(total.conflicts) == [0, 1, 2, 3, 5, 6, 7, 8, 9]

    async def test_a_change_without_permission_is_refused_with_its_code(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.make_topics(3)
            await k.zk.set_acls(k.path(1), [ALL_READ], 0)
            total = merged((await k.commit([elected(row) for row in range(3)]))[0])
            assert (total.refused, sorted(total.conflicts), total.applied) == ([(1, Code.NO_AUTH)], [0, 2], [])

    async def test_a_lost_reply_leaves_its_multi_unknown_and_reading_again_settles_it(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.make_topics(30)
            k.zk.hooks = NthWrite(at=1, after=OutcomeUnknown("lost"))
            outcomes, error = await k.commit([elected(row) for row in range(30)], writes_max=10)
            total = merged(outcomes)
            assert error is None
            assert rows_of(total.applied) == [*range(10), *range(20, 30)]
            assert sorted(total.unknown) == list(range(10, 20))
            found = await k.store.reread(sorted(total.unsettled), k.name)
            assert found == dict.fromkeys(range(10, 20), after_election())

    async def test_a_connection_lost_in_mid_commit_settles_or_leaves_out_every_change(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.make_topics(100)
            k.zk.hooks = NthWrite(at=5, before=lambda: backend.suspend(k.zk))
            outcomes, error = await k.commit([elected(row) for row in range(100)], writes_max=10)
            total = merged(outcomes)
            k.zk.hooks = None
            backend.resume(k.zk)
            await k.s.reaches(SUSPENDED, CONNECTED)
            await k.zk.sync()
            written = {row for row, state in enumerate(await k.states(range(100))) if state.version == 1}
            assert isinstance(error, NotConnected)
            assert (total.conflicts, total.gone, total.refused) == ([], [], [])
            assert set(rows_of(total.applied)) <= written <= {*rows_of(total.applied), *total.unknown}
            assert total.applied
            assert len(total.applied) + len(total.unknown) < 100

    async def test_a_closed_fence_sends_nothing(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.make_topics(3)
            k.fence = Fence(0, lambda: False)
            hooks = k.zk.hooks = NthWrite(at=-1)
            outcomes, error = await k.commit([elected(row) for row in range(3)])
            assert (outcomes, hooks.count) == ([], 0)
            assert isinstance(error, NotConnected)

    async def test_after_a_kill_at_a_write_no_further_one_is_sent(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.make_topics(100)
            hooks = k.zk.hooks = NthWrite(at=4, before=raising(Kill()))
            with pytest.raises(Kill):
                await k.commit([elected(row) for row in range(100)], writes_max=5)
            assert hooks.count < 20

    async def test_the_commit_stops_where_its_consumer_stops(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.make_topics(100)
            hooks = k.zk.hooks = NthWrite(at=-1)
            outcomes = k.store.commit([elected(row) for row in range(100)], k.name, k.fence, writes_max=1)
            await anext(outcomes)
            await outcomes.aclose()
            await k.zk.sync()
            assert hooks.count < 100


class CreationContract:
    """First states of new partitions, with their parents."""

    @pytest.mark.seed("S4-6")
    async def test_states_of_new_topics_are_created_with_their_parents(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.make_topics(30, parents=False, states=False)
            outcomes, error = await k.commit([created(row) for row in range(30)])
            assert error is None
            assert [rows_of(outcome.applied) for outcome in outcomes] == [list(range(30))]
            assert await k.states(range(30)) == [Leadership(1, 0, (1, 2), 1, 0)] * 30
            assert await k.s.data(paths.partitions("t0")) is None
            assert await k.s.data(paths.partition("t0", 3)) is None

    @pytest.mark.seed("S4-79")
    async def test_states_of_added_partitions_are_created_below_parents_that_exist(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.make_topics(4)
            await k.zk.create(paths.partition("t0", 5), None)
            total = merged((await k.commit([created(row) for row in range(4, 8)]))[0])
            assert rows_of(total.applied) == [4, 5, 6, 7]

    async def test_a_topic_larger_than_a_multi_takes_several(self, backend: Backend) -> None:
        async with kafka(backend, per_topic=40) as k:
            await k.make_topics(80, parents=False, states=False)
            hooks = k.zk.hooks = NthWrite(at=-1)
            outcomes, error = await k.commit([created(row) for row in range(80)], writes_max=30)
            assert error is None
            assert rows_of(merged(outcomes).applied) == list(range(80))
            assert max(map(len, hooks.writes)) <= 31

    async def test_elections_and_creations_share_a_commit(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.make_topics(5)
            changes = [elected(row) if row < 5 else created(row) for row in range(10)]
            assert rows_of(merged((await k.commit(changes))[0]).applied) == list(range(10))

    @pytest.mark.kafka("PartitionStateMachineTest.testNewPartitionToOnlinePartitionTransitionErrorCodeFromCreateStates")
    async def test_a_state_that_exists_already_is_a_conflict(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.make_topics(4)
            total = merged((await k.commit([created(row) for row in (3, 4, 5)]))[0])
            assert (total.applied, sorted(total.conflicts)) == ([], [3, 4, 5])

    async def test_all_partitions_of_a_deleted_topic_are_gone(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.make_topics(10, parents=False, states=False)
            total = merged((await k.commit([created(row) for row in (8, 9, 10, 11)]))[0])
            assert (total.applied, total.conflicts, total.gone) == ([], [8, 9], [10, 11])

    async def test_a_parent_that_another_client_creates_meanwhile_is_no_conflict(self, backend: Backend) -> None:
        async with kafka(backend) as k, session(backend) as other:
            await k.make_topics(10, parents=False, states=False)
            ops = [Create(paths.partitions("t0"), None), Create(paths.partition("t0", 0), None)]
            k.zk.hooks = NthWrite(at=0, before=lambda: other.zk.apply(ops))
            total = merged((await k.commit([created(row) for row in range(10)]))[0])
            assert rows_of(total.applied) == list(range(10))
