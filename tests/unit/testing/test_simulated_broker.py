"""A simulated broker as an object: its memory, its records, and the comparison of its view."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from brokers.wire.kio_messages import decode_response
from brokers.wire.primitives import Malformed
from brokers.wire.versions import Api
from metadata_store.codecs.notifications import decode_log_dir_event
from testing.simulated.broker import Received, SimulatedBroker
from testing.simulated.digest import Truth, differences, expected_view, view
from testing.simulated.entries import digest, metadata_lines, replica_lines
from tests.kit.simulated_kit import CONTROLLER, ID, KEY, broker_with, known, lead, leaders, metadata, stop
from tests.kit.wire_kit import write_request

TRUTH = {KEY: Truth(1, 4, (1, 2, 3), 6, (1, 2, 3))}
LIVE = (1, 2, 3)


def test_every_request_is_recorded_after_its_effect_also_a_refused_one() -> None:
    recorded: list[tuple[Api, int, int, dict[tuple[str, int], int], int]] = []
    broker = SimulatedBroker(1, 10)

    def record(found: Received) -> None:
        recorded.append((found.api, found.partitions, found.error, found.errors, len(broker.replicas)))

    broker.recorded = record
    broker.take(metadata())
    broker.take(leaders(lead(), lead(1)))
    broker.take(leaders(lead(2), controller_epoch=4))
    broker.take(stop(7))
    assert recorded == [
        (Api.UPDATE_METADATA, 0, 0, {}, 0),
        (Api.LEADER_AND_ISR, 2, 0, {KEY: 0, ("orders", 1): 0}, 2),
        (Api.LEADER_AND_ISR, 1, 11, {("orders", 2): 11}, 2),
        (Api.STOP_REPLICA, 1, 0, {("orders", 7): 0}, 2),
    ]


def test_a_restarted_broker_keeps_its_logs_alone() -> None:
    broker = broker_with(lead(), lead(1, topic_id=None))
    assert broker.controller("INTERNAL") is not None
    broker.restart(11)
    assert (broker.replicas, broker.metadata, broker.live, broker.controller_id) == ({}, {}, {}, -1)
    assert (broker.epoch, broker.controller_epoch) == (11, 0)
    assert broker.controller("INTERNAL") is None
    assert broker.hosting.logs == {KEY: ID, ("orders", 1): None}


def test_a_copy_changes_apart() -> None:
    broker = broker_with(lead())
    other = broker.copy()
    assert view(other) == view(broker)
    other.apply(leaders(lead(epoch=5), lead(1)))
    other.apply(metadata(known(lead(epoch=5)), live=(1,)))
    assert broker.replicas.keys() == {KEY}
    assert broker.replicas[KEY].leader_epoch == broker.metadata[KEY].leader_epoch == 4
    assert broker.live.keys() == {*LIVE, CONTROLLER}
    other.isr.wish(lambda key: ())
    assert broker.isr.waiting == 0


def test_a_failed_directory_is_reported_by_a_znode() -> None:
    event = broker_with(lead()).fail_partition(*KEY)
    assert (event.path, event.sequential) == ("/log_dir_event_notification/log_dir_event_", True)
    assert decode_log_dir_event("", event.data) == 1


def test_api_versions_has_a_response_and_other_requests_are_malformed() -> None:
    software = {"client_software_name": "x", "client_software_version": "1"}
    response = decode_response(Api.API_VERSIONS, 3, SimulatedBroker(1).receive(write_request(18, 3, 9, **software)), 9)
    offered = {(api.api_key, api.min_version, api.max_version) for api in response.api_keys}
    assert offered == {(4, 4, 7), (5, 3, 4), (6, 6, 8)}
    for frame in (
        b"",
        b"\0",
        b"\0\x12",
        bytes(30),
        write_request(60, 0, 9, include_cluster_authorized_operations=False),
    ):
        with pytest.raises(Malformed):
            SimulatedBroker(1).receive(frame)


# -- views


def test_a_broker_that_was_sent_everything_has_the_expected_view() -> None:
    for broker_id in (1, 2, 4):
        entries = [lead()] if broker_id != 4 else []
        broker = broker_with(*entries, broker_id=broker_id)
        broker.apply(metadata(known(lead())))
        expected = expected_view(broker_id, LIVE, TRUTH)
        assert differences(view(broker), expected) == []
        assert view(broker).digest() == expected.digest()


def test_each_kind_of_difference_is_named_and_changes_the_digest() -> None:
    expected = expected_view(1, LIVE, TRUTH)
    cases = {
        "live (1, 2) instead of (1, 2, 3)": broker_with(lead(), live=(1, 2)),
        "led of orders-0: (4, (1, 2), 6, (1, 2, 3)) instead of (4, (1, 2, 3), 6, (1, 2, 3))": broker_with(
            lead(isr=(1, 2))
        ),
        "followed of orders-0: (2, 4, (1, 2, 3)) instead of None": broker_with(lead(leader=2)),
    }
    for sentence, broker in cases.items():
        assert sentence in differences(view(broker), expected)
        assert view(broker).digest() != expected.digest()
    unsent = SimulatedBroker(1)
    unsent.apply(metadata())
    assert differences(view(unsent), expected, limit=1) == [
        "metadata of orders-0: None instead of (1, 4, (1, 2, 3), 6, (1, 2, 3), ())"
    ]


def test_the_order_of_requests_and_the_controller_do_not_count() -> None:
    one, other = broker_with(lead(), lead(1)), broker_with(lead(1), lead())
    other.apply(metadata(live=(3, 2, 1), controller_epoch=6))
    assert view(one) == view(other)
    assert view(one).digest() == view(other).digest()


def test_a_replica_without_leader_or_stopped_is_not_compared() -> None:
    """Its state depends on earlier requests, which merged ones may leave out."""
    merged, unmerged = broker_with(lead(leader=2)), broker_with(lead(leader=3, epoch=3))
    unmerged.apply(leaders(lead(leader=2)))
    gone = lead(leader=-1, epoch=5)
    for broker in (merged, unmerged):
        broker.apply(leaders(gone))
        broker.apply(metadata(known(gone)))
    only_old = broker_with(lead(leader=3, epoch=3))
    only_old.apply(metadata(known(gone)))
    assert view(merged) == view(unmerged) == view(only_old)
    stopped = broker_with(lead(leader=2))
    stopped.apply(stop())
    assert view(stopped).followed == {}


def test_replicas_of_absent_and_leaving_brokers_are_offline_in_the_metadata() -> None:
    view_ = expected_view(1, (1, 2), TRUTH, leaving=(2,))
    assert view_.metadata[KEY][-1] == (2, 3)
    assert view_.live == (1, 2)


def test_views_have_lines_for_people_and_a_digest() -> None:
    broker = broker_with(lead(), lead(1, leader=2))
    broker.apply(metadata(known(lead(), offline=(3, 2))))
    broker.apply(stop(1))
    assert list(metadata_lines(broker.cache)) == ["orders|0|1|4|1,2,3|6|1,2,3|2,3", "orders|1|2|4|1,2,3|6|1,2,3|"]
    lines = list(replica_lines(broker.replicas.items()))
    assert lines == ["orders|0|1|4|1,2,3|6|1,2,3", "orders|1|2|4|1,2,3|6|1,2,3|stopped"]
    hashes = [int.from_bytes(blake2b(line.encode(), digest_size=8).digest(), "little") for line in lines]
    assert digest(lines) == digest(reversed(lines)) == (2, f"{sum(hashes) % 2**64:016x}")
    assert digest([]) == (0, "0" * 16)
