"""Checks a broker's responses to a controller with the same scripts for simulated brokers and for a real one.

A subclass needs a fixture ``director`` (see :class:`tests.contracts.broker_support.Director`). It has a topic that no
other test names and a controller epoch above all earlier ones. Its broker has an empty metadata cache, or none of that
topic.
"""

from __future__ import annotations

import pytest

from brokers.wire.errors import Error
from tests.contracts.broker_support import CONTROLLER, ID, OLD, OTHER_ID, Director, Known, Logged, Logs, Response

OK = Response(0, {0: 0})
KNOWN_ALREADY = Response(0, {0: 11})
DONE = Response(0, {})
EMPTY = Logged(0, 0, False)


class EpochContract:
    """Checks the epochs that requests need."""

    @pytest.mark.kafka(
        "BrokerEpochIntegrationTest.testControlRequestWithStaleBrokerEpoch",
        "BrokerEpochIntegrationTest.testControlRequestWithCorrectBrokerEpoch",
    )
    async def test_a_request_for_an_earlier_incarnation_has_no_effect(self, director: Director) -> None:
        stale = director.subject.epoch - 1
        await director.update({0: 4})
        assert await director.lead({0: 5, 1: 5}, broker_epoch=stale) == Response(77, {0: 77, 1: 77})
        assert await director.update({0: 5}, live=(), broker_epoch=stale) == Response(77, {})
        assert await director.stop({0: 5}, broker_epoch=stale) == Response(77, {}), "StopReplica lists nothing"
        assert (await director.subject.metadata(director.topic))[1][0].leader_epoch == 4
        assert (await director.subject.live())[1] == {1, 2, 3, CONTROLLER}
        assert await director.lead(5) == OK

    @pytest.mark.kafka("BrokerEpochIntegrationTest.testControlRequestWithNewerBrokerEpoch")
    async def test_requests_without_a_broker_epoch_or_with_a_later_one_are_accepted(self, director: Director) -> None:
        assert await director.update(broker_epoch=-1) == DONE
        assert await director.lead(0, broker_epoch=-1) == OK
        assert await director.lead(1, broker_epoch=director.subject.epoch + 1) == OK
        assert await director.stop(1, broker_epoch=director.subject.epoch + 1) == OK

    @pytest.mark.kafka(
        "LeaderElectionTest.testLeaderElectionWithStaleControllerEpoch",
        "BrokerEpochIntegrationTest.testControlRequestWithCorrectBrokerEpoch",
    )
    async def test_requests_need_the_highest_controller_epoch_from_any_controller(self, director: Director) -> None:
        await director.update()
        assert await director.lead(0) == OK
        old = director.rise()
        assert await director.stop({7: -1}) == Response(0, {7: 0}), "StopReplica raises it as well"
        assert await director.lead({0: 1, 1: 0}, controller_epoch=old) == Response(11, {0: 11, 1: 11})
        assert await director.update({0: 1}, controller_epoch=old) == Response(11, {})
        assert await director.stop({0: 1}, controller_epoch=old) == Response(11, {})
        assert await director.lead(1, controller=CONTROLLER + 1) == OK, "an equal epoch of another id is accepted"

    async def test_after_a_restart_the_first_controller_counts_and_everything_is_new(self, director: Director) -> None:
        await director.update({0: 3})
        assert await director.lead(3) == OK
        before = director.subject.epoch
        await director.subject.restart()
        assert director.subject.epoch > before
        assert (await director.subject.metadata(director.topic))[1] == {}
        assert await director.lead(3, broker_epoch=before) == Response(77, {0: 77})
        await director.update()
        assert await director.lead(3, is_new=False) == OK
        assert await director.lead(3, is_new=False) == KNOWN_ALREADY

    async def test_requests_of_a_quorum_controller_are_refused(self, director: Director) -> None:
        assert (await director.lead({0: 0, 1: 0}, kraft=True)) == Response(-1, {0: -1, 1: -1})
        assert (await director.update(kraft=True)).top == -1
        assert await director.stop({0: 0}, kraft=True) == Response(-1, {0: -1})
        assert await director.update() == DONE
        assert await director.lead(0) == OK


class LeaderContract:
    """Checks LeaderAndIsr, partition by partition."""

    async def test_only_a_higher_leader_epoch_is_heeded(self, director: Director) -> None:
        await director.update()
        assert await director.lead(5) == OK
        assert await director.lead({0: 5, 1: 0}) == Response(0, {0: 11, 1: 0})
        assert await director.lead(4) == KNOWN_ALREADY
        assert await director.lead(6) == OK
        assert await director.lead(6, leader=2) == KNOWN_ALREADY

    async def test_a_request_with_an_older_partition_epoch_succeeds_without_effect(self, director: Director) -> None:
        await director.update()
        assert await director.lead(1, partition_epoch=9) == OK
        assert await director.lead(2, partition_epoch=8) == OK
        assert await director.lead(2, partition_epoch=8) == OK, "leader epoch 2 had no effect"
        assert await director.lead(2, leader=2, partition_epoch=8) == OK
        assert await director.lead(2, partition_epoch=9) == OK
        assert await director.lead(2, partition_epoch=9) == KNOWN_ALREADY

    async def test_a_follower_needs_a_leader_in_the_live_list(self, director: Director) -> None:
        await director.update(live=(1, 3))
        for _ in range(2):
            assert await director.lead(0, leader=2) == OK, "a success without effect"
        await director.update(live=(1, 2, 3))
        assert await director.lead(0, leader=2) == OK
        assert await director.lead(0, leader=2) == KNOWN_ALREADY

    async def test_no_leader_is_like_one_that_is_not_live(self, director: Director) -> None:
        await director.update()
        assert await director.lead(3, leader=2) == OK
        for _ in range(2):
            assert await director.lead(4, leader=-1) == OK
        assert await director.lead(3, leader=2) == KNOWN_ALREADY
        assert await director.lead(4, leader=3) == OK

    async def test_a_broker_that_is_no_replica_refuses(self, director: Director) -> None:
        await director.update()
        assert await director.lead(5, leader=2, replicas=(2, 3)) == Response(0, {0: 3})
        assert await director.stop(4) == OK, "the broker remembers no epoch of the partition"
        assert await director.lead(1) == OK
        assert await director.lead(2, leader=2, replicas=(2, 3)) == Response(0, {0: 3})
        assert await director.lead(2) == OK

    async def test_a_topic_keeps_its_id(self, director: Director) -> None:
        await director.update()
        assert await director.lead(0) == OK
        assert await director.lead(1, topic_id=OTHER_ID) == Response(0, {0: Error.INCONSISTENT_TOPIC_ID})
        assert await director.lead(0, topic_id=OTHER_ID) == Response(0, {0: Error.INCONSISTENT_TOPIC_ID})
        assert await director.lead(1, topic_id=None) == OK, "without an id nothing is compared"
        assert await director.lead(2, ibp=OLD) == OK
        await director.subject.restart()
        await director.update()
        assert await director.lead({0: 3, 1: 0}, topic_id=OTHER_ID) == Response(0, {0: 103, 1: 0})
        assert await director.lead(2) == OK, "a refused partition is as it was"

    async def test_a_topic_gets_its_first_id_without_another_epoch(self, director: Director) -> None:
        await director.update()
        assert await director.lead(0, topic_id=None) == OK
        assert await director.lead(0, topic_id=None) == KNOWN_ALREADY
        assert await director.lead(0, topic_id=ID) == OK
        assert await director.lead(0, topic_id=ID) == KNOWN_ALREADY
        assert await director.lead(1, topic_id=OTHER_ID) == Response(0, {0: 103})

    async def test_responses_to_old_requests_name_topics(self, director: Director) -> None:
        await director.update(ibp=OLD)
        assert await director.lead({0: 0, 1: 0}, ibp=OLD) == Response(0, {0: 0, 1: 0})
        assert await director.lead({0: 0, 1: 1}, ibp=OLD) == Response(0, {0: 11, 1: 0})
        assert await director.stop({0: 0, 1: 0}, ibp=OLD) == Response(0, {0: 0, 1: 74})

    @pytest.mark.kafka("LogDirFailureTest.testIOExceptionDuring*")
    async def test_replicas_on_a_failed_directory_are_offline_until_it_is_repaired(self, director: Director) -> None:
        await director.update()
        assert await director.lead(0) == OK
        await director.subject.fail_log(director.topic, 0)
        assert await director.lead(1) == Response(0, {0: 56})
        assert await director.stop(1) == Response(0, {0: 56})
        assert await director.stop(-2, delete=True) == Response(0, {0: 56})
        assert await director.lead({1: 0}, is_new=False) == Response(0, {1: 56}), "its log may be on that directory"
        assert await director.lead({1: 0}, is_new=True) == Response(0, {1: 56}), "the replica is offline by now"
        assert await director.lead({2: 0}, is_new=True) == Response(0, {2: 0}), "another directory accepts new replicas"
        await director.subject.repair_logs()
        await director.update()
        assert await director.lead({0: 1, 1: 0, 2: 0}, is_new=False) == Response(0, {0: 0, 1: 0, 2: 0})


class StopContract:
    """Checks StopReplica, partition by partition."""

    async def test_an_older_leader_epoch_does_not_stop_a_newer_replica(self, director: Director) -> None:
        await director.update()
        assert await director.lead(5) == OK
        for delete in (False, True):
            assert await director.stop(4, delete=delete) == Response(0, {0: Error.FENCED_LEADER_EPOCH})
        for epoch in (5, 6, -1, -2):
            assert await director.stop(epoch) == OK
        assert await director.lead(5) == KNOWN_ALREADY, "a stopped replica keeps its epoch"
        assert await director.lead(6) == OK

    async def test_a_deleted_replica_is_as_new(self, director: Director) -> None:
        await director.update()
        assert await director.lead(5) == OK
        assert await director.stop(5, delete=True) == OK
        assert await director.lead(0, topic_id=OTHER_ID) == OK, "lower epoch, other id"
        assert await director.stop(-2, delete=True) == OK
        assert await director.stop(-2, delete=True) == OK, "the deletion of a missing log succeeds"
        assert await director.stop({9: 3}) == Response(0, {9: 0})

    async def test_a_broker_that_was_not_sent_a_replica_deletes_its_log(self, director: Director) -> None:
        await director.update()
        assert await director.lead(5) == OK
        await director.subject.restart()
        assert await director.stop(2, delete=True) == OK
        await director.update()
        assert await director.lead(0, topic_id=OTHER_ID) == OK

    async def test_a_log_that_the_broker_hosts_no_replica_of_is_deleted_without_an_epoch(
        self, director: Director
    ) -> None:
        await director.update()
        assert await director.lead({0: 5, 1: 5}) == Response(0, {0: 0, 1: 0})
        await director.subject.restart()
        assert await director.logs([0, 1]) == Logs([0], {p: EMPTY._replace(offset_lag=-1) for p in (0, 1)})
        assert await director.stop(-1, delete=True) == OK
        assert await director.logs([0, 1]) == Logs([0], {1: EMPTY._replace(offset_lag=-1)})

    async def test_a_late_deletion_spares_a_replica_that_was_added_again(self, director: Director) -> None:
        await director.update()
        assert await director.lead(5) == OK
        assert await director.stop(6, delete=True) == OK
        assert await director.lead(7) == OK
        assert await director.stop(6, delete=True) == Response(0, {0: Error.FENCED_LEADER_EPOCH})
        assert await director.logs([0]) == Logs([0], {0: EMPTY})


class MetadataContract:
    """Checks UpdateMetadata."""

    async def test_the_live_list_is_replaced_and_partitions_are_merged(self, director: Director) -> None:
        assert await director.update({0: 1, 1: 1}) == DONE
        assert await director.update({1: 0, 2: 5}, leader=2, live=(1, 2)) == DONE
        topic_id, found = await director.subject.metadata(director.topic)
        assert topic_id == ID
        all_three = (1, 2, 3)
        assert {p: (known.leader, known.leader_epoch) for p, known in found.items()} == {
            0: (1, 1),
            1: (2, 0),
            2: (2, 5),
        }
        assert found[1] == Known(2, 0, all_three, all_three), "no epoch is compared"
        assert await director.subject.live() == (CONTROLLER, frozenset({1, 2, CONTROLLER}))
        assert await director.update(live=(1,), controller=CONTROLLER + 1) == DONE
        assert await director.subject.live() == (CONTROLLER + 1, frozenset({1, CONTROLLER}))
        assert (await director.subject.metadata(director.topic))[1].keys() == found.keys()

    async def test_a_partition_that_is_being_deleted_is_forgotten_with_the_topics_id(self, director: Director) -> None:
        await director.update({0: 1, 1: 1})
        assert await director.update({0: 0}, leader=-2) == DONE
        assert (await director.subject.metadata(director.topic))[1].keys() == {1}
        assert await director.update({0: 0, 1: 0}, leader=-2) == DONE, "one is not there any more"
        assert await director.subject.metadata(director.topic) == (None, {})

    async def test_a_request_without_the_topics_id_removes_the_id(self, director: Director) -> None:
        await director.update({0: 1})
        assert await director.update({1: 1}, topic_id=None) == DONE
        topic_id, found = await director.subject.metadata(director.topic)
        assert (topic_id, set(found)) == (None, {0, 1})
        await director.update({1: 1}, topic_id=ID)
        assert (await director.subject.metadata(director.topic))[0] == ID
        await director.update({1: 1}, ibp=OLD)
        assert (await director.subject.metadata(director.topic))[0] is None


class LogDirsContract:
    """Checks DescribeLogDirs; all logs are empty."""

    async def test_a_replica_has_a_log_from_its_first_leader_until_its_deletion(self, director: Director) -> None:
        await director.update()
        assert await director.logs([0, 1]) == Logs([0], {})
        assert await director.lead({0: 0, 1: 0}) == Response(0, {0: 0, 1: 0})
        assert await director.logs([0, 1, 2]) == Logs([0], {0: EMPTY, 1: EMPTY})
        assert await director.logs([1]) == Logs([0], {1: EMPTY})
        assert await director.logs([]) == Logs([0], {})
        assert await director.logs(None) == Logs([0], {0: EMPTY, 1: EMPTY})
        assert await director.stop(0) == OK
        assert await director.logs([0]) == Logs([0], {0: EMPTY}), "a stopped replica keeps its log"
        assert await director.stop(0, delete=True) == OK
        assert await director.logs([0, 1]) == Logs([0], {1: EMPTY})

    async def test_the_response_is_the_same_in_all_versions(self, director: Director) -> None:
        await director.update()
        assert await director.lead({0: 0, 1: 0}) == Response(0, {0: 0, 1: 0})
        for version in range(5):
            assert await director.logs([0, 1], version=version) == Logs([0], {0: EMPTY, 1: EMPTY})

    async def test_after_a_restart_the_lag_is_unknown_until_the_replica_is_sent(self, director: Director) -> None:
        await director.update()
        assert await director.lead({0: 0, 1: 0}) == Response(0, {0: 0, 1: 0})
        await director.subject.restart()
        await director.update()
        assert await director.lead(1) == OK
        assert await director.logs([0, 1]) == Logs([0], {0: EMPTY, 1: EMPTY._replace(offset_lag=-1)})

    async def test_a_failed_directory_has_an_error_and_lists_no_logs(self, director: Director) -> None:
        await director.update()
        assert await director.lead(0) == OK
        await director.subject.fail_log(director.topic, 0)
        assert await director.logs([0]) == Logs([0, 56], {})
        await director.subject.repair_logs()
        assert await director.logs([0]) == Logs([0], {0: EMPTY._replace(offset_lag=-1)})


class BrokerContract(EpochContract, LeaderContract, StopContract, MetadataContract, LogDirsContract):
    """Checks everything, with requests of the newest versions unless a test names others."""
