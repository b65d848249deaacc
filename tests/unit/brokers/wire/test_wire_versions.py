"""IBPs and the versions that follow, and bytes behind a request within its frame."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from brokers.listener.envelopes import CarriedCall, read_admin_call
from brokers.wire import kio_messages
from brokers.wire.calls import SERVED, Call, read_call, read_header
from brokers.wire.envelope import Envelope
from brokers.wire.message_codec import codec
from brokers.wire.messages import CARRIED, MESSAGES, read_request
from brokers.wire.primitives import BadMessage, Reader
from brokers.wire.refusals import refusal
from brokers.wire.sasl import encode_authenticate, encode_handshake, read_auth_bytes, read_mechanism
from brokers.wire.versions import DEFAULT, LOWEST, Api, Ibp, UnknownIbp, accepted
from tests.kit.admin import endpoint_world
from tests.kit.wire import Place, a_few, entities, name_of, places, request_header, schema_of, written


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("3.9", "3.9-IV0"),
        ("3.9-IV0", "3.9-IV0"),
        ("2.7", "2.7-IV2"),
        ("2.7-IV1", "2.7-IV1"),
        ("2.4", "2.4-IV1"),
        ("2.8", "2.8-IV1"),
        ("3.3", "3.3-IV3"),
    ],
)
def test_a_short_string_means_the_last_internal_version(text: str, full: str) -> None:
    assert str(Ibp.parse(text)) == full


def test_accepted_values_read_back_and_are_ordered_by_age() -> None:
    parsed = [Ibp.parse(text) for text in accepted()]
    assert [str(ibp) for ibp in parsed] == accepted()
    assert parsed == sorted(parsed)
    assert (parsed[0], parsed[-1]) == (LOWEST, DEFAULT)


@pytest.mark.parametrize(
    "text", ["", "3", "3.10", "4.0", "4.0-IV0", "2.4-IV0", "2.3", "3.9-IV1", "3.9-IV", "3.9-IV00", "3.9-iv0", " 3.9 x"]
)
def test_an_unknown_value_is_refused_with_the_list_of_accepted_ones(text: str) -> None:
    with pytest.raises(UnknownIbp) as refused:
        Ibp.parse(text)
    assert repr(text) in str(refused.value)
    assert "2.4-IV1, 2.5-IV0" in str(refused.value)
    assert "3.9-IV0" in str(refused.value)


@pytest.mark.kafka(
    "ControllerChannelManagerTest.testLeaderAndIsrInterBrokerProtocolVersion",
    "ControllerChannelManagerTest.testUpdateMetadataInterBrokerProtocolVersion",
    "ControllerChannelManagerTest.testStopReplicaInterBrokerProtocolVersion",
)
@pytest.mark.seed("S4-85")
@pytest.mark.parametrize(
    ("text", "leader_and_isr", "update_metadata", "stop_replica"),
    [
        ("2.4-IV1", 4, 6, 3),
        ("2.6-IV0", 4, 6, 3),
        ("2.8-IV0", 4, 6, 3),
        ("2.8-IV1", 5, 7, 3),
        ("3.1-IV0", 5, 7, 3),
        ("3.2-IV0", 6, 7, 3),
        ("3.3-IV3", 6, 7, 3),
        ("3.4-IV0", 7, 8, 4),
        ("3.9-IV0", 7, 8, 4),
    ],
)
def test_request_versions_follow_the_ibp(
    text: str, leader_and_isr: int, update_metadata: int, stop_replica: int
) -> None:
    ibp = Ibp.parse(text)
    versions = ibp.leader_and_isr_version, ibp.update_metadata_version, ibp.stop_replica_version
    assert versions == (leader_and_isr, update_metadata, stop_replica)


@pytest.mark.seed("S4-85")
@pytest.mark.parametrize(
    ("feature", "since"),
    [
        ("features_enabled", "2.7-IV0"),
        ("alter_partition", "2.7-IV2"),
        ("topic_ids", "2.8-IV0"),
        ("producer_ids", "3.0-IV0"),
        ("recovery_state", "3.2-IV0"),
    ],
)
def test_features_begin_at_their_ibp(feature: str, since: str) -> None:
    having = [text for text in accepted() if getattr(Ibp.parse(text), feature)]
    assert having == accepted()[accepted().index(since) :]


def test_the_feature_znode_has_its_second_form_from_3_3() -> None:
    assert [Ibp.parse(text).feature_znode_version for text in ("2.7-IV0", "3.2", "3.3-IV0", "3.9")] == [1, 1, 2, 2]


REQUESTS = [place for place in places() if not place[2]]
CALLS: list[Place] = [(api, v, False) for api, (low, high) in SERVED.items() for v in range(low, high + 1)]
some_bytes = st.binary(min_size=1, max_size=20)


def request_of(place: Place, body: bytes) -> bytes:
    return request_header(*place[:2], 7, "me") + body


def brokers_call(frame: bytes) -> Call | str:
    """Reads a broker's call; returns it, or why it is malformed: Kafka's schema allows any recovery state."""
    reader = Reader(frame)
    try:
        return read_call(read_header(reader), reader)
    except BadMessage as error:
        return str(error).split(" at ")[0]


def least(place: Place) -> bytes:
    """Returns the shortest body: without items, with zeros."""
    layout = kio_messages.layout(place[0], place[1], response=False)
    return codec(layout, Struct).write(Struct())


def carried(frame: bytes) -> CarriedCall:
    """Reads a client's call as the daemon does."""
    return read_admin_call(Envelope(frame).sealed(b"secret", b"", bytes(16), 0, 0))


READ = [
    *((place, read_request) for place in REQUESTS),
    *((place, carried) for place in REQUESTS if place[0] in CARRIED),
    *((place, brokers_call) for place in CALLS),
]


@pytest.mark.parametrize(("place", "read"), READ, ids=[f"{name_of(place)} {read.__name__}" for place, read in READ])
@a_few
@given(data=st.data(), more=some_bytes)
def test_a_request_is_read_the_same_with_bytes_behind_it(
    place: Place, read: Callable[[bytes], object], data: st.DataObject, more: bytes
) -> None:
    frame = request_of(place, written(data.draw(entities(schema_of(place)))))
    assert read(frame + more) == read(frame)


@given(more=some_bytes)
def test_the_daemon_reads_a_brokers_sasl_messages_the_same_with_bytes_behind_them(more: bytes) -> None:
    handshake, authenticate = encode_handshake(1, "PLAIN")[4:] + more, encode_authenticate(1, b"\0me\0word")[4:] + more
    assert read_mechanism(Reader(handshake[8:])) == "PLAIN"
    assert read_auth_bytes(Reader(authenticate[8:])) == b"\0me\0word"


WITHOUT_RESPONSE = {Api.PRODUCE, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE}
WITH_RESPONSE = [place for place in REQUESTS if place[0] not in WITHOUT_RESPONSE]
"""Requests with a response even where they name nothing; Produce with acks 0 has none."""


async def test_the_endpoint_responds_the_same_to_a_request_with_bytes_behind_it() -> None:
    async with endpoint_world() as p:
        p.controller.respond = lambda call: refusal(call.body, 42, "refused")
        for at in WITH_RESPONSE:
            client = await p.connect()
            frame = request_of(at, least(at))
            client.send(frame)
            plain = await client.frame()
            for more in (b"\0", b"\xff" * 9, frame):
                client.send(frame + more)
                assert await client.frame() in (plain, frame[4:8] + frame + more), name_of(at)
            if at[0] in CARRIED:
                assert p.controller.calls[-1].frame == frame + frame
        assert {call.api for call in p.controller.calls} == CARRIED
        assert {api for api, _, _ in WITH_RESPONSE} | WITHOUT_RESPONSE == {
            api for api, message in MESSAGES.items() if message.request is not None
        }
