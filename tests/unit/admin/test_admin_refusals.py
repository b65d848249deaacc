"""Refusals of calls to the controller: every API and version has the error where its clients look for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.routes import HIDDEN, Route, route
from admin.wrong_node import wrong_node
from brokers.wire.messages import CARRIED, MESSAGES, request_codec, response_codec
from brokers.wire.messages.cluster import DescribeClusterResponse
from brokers.wire.primitives import Reader
from brokers.wire.refusals import refusal
from brokers.wire.versions import Api
from tests.kit.message_kit import Place, a_few, entities, name_of, schema_of
from tests.kit.wire_kit import written

CALLS: list[Place] = [(api, v, False) for api in sorted(CARRIED) for v in range(MESSAGES[api].last + 1)]
ON_TOP = {Api.ALTER_PARTITION_REASSIGNMENTS, Api.LIST_PARTITION_REASSIGNMENTS, Api.UPDATE_FEATURES}


def codes(response: Any) -> list[int]:
    """Lists every error code in a response, depth first."""
    found = []
    for name in response.__struct_fields__:
        value = getattr(response, name)
        if name == "error_code":
            found.append(int(value))
        elif isinstance(value, tuple):
            found += [code for item in value if hasattr(item, "__struct_fields__") for code in codes(item)]
    return found


@pytest.mark.parametrize("error", [41, 31])
@pytest.mark.parametrize("place", CALLS, ids=name_of)
@a_few
@given(data=st.data())
def test_a_refusal_has_the_error_at_each_item_and_can_be_written(place: Place, error: int, data: st.DataObject) -> None:
    api, version, _ = place
    request = request_codec(api, version).read(Reader(written(data.draw(entities(schema_of(place))))))
    codec = response_codec(api, version)
    response = codec.read(Reader(codec.write(refusal(request, error, "no"))))
    if api is Api.ELECT_LEADERS:
        assert set(codes(response)[:-1]) <= {error}
        on_top = version >= 1 and (error == 31 or request.topic_partitions is None)
        assert codes(response)[-1] == (error if on_top else 0)
    else:
        assert set(codes(response)) <= {error}
    if api in ON_TOP:
        assert response.error_code == error
    if api is Api.ALTER_PARTITION_REASSIGNMENTS:
        assert len(codes(response)) == 1 + sum(len(topic.partitions) for topic in request.topics)


def test_an_election_everywhere_is_refused_on_top() -> None:
    request = request_codec(Api.ELECT_LEADERS, 2).read(Reader(b"\1\0\0\0\0\0\0"))
    assert request.topic_partitions is None
    assert codes(refusal(request, 41)) == [41]


def test_a_user_that_is_named_twice_has_one_result() -> None:
    body = b"\2\2u\1\0\3\2u\1\0\0\x10\0\1\1\0\2v\2\0\0\x10\0\1\1\0\0"
    request = request_codec(Api.ALTER_USER_SCRAM_CREDENTIALS, 0).read(Reader(body))
    response: Any = refusal(request, 41, "no")
    assert [(r.user, r.error_code, r.error_message) for r in response.results] == [("u", 41, "no"), ("v", 41, "no")]


def test_secrets_are_left_out_of_the_representation() -> None:
    body = b"\1\2\2v\2\0\0\x10\0\5salt\5pass\0\0"
    request = request_codec(Api.ALTER_USER_SCRAM_CREDENTIALS, 0).read(Reader(body))
    assert request.upsertions[0].salted_password == b"pass"
    assert "pass" not in repr(request)
    assert "salt" not in repr(request)


def test_other_messages_have_no_refusal() -> None:
    other = DescribeClusterResponse(0, 0, None, "c", 1, (), 0)
    with pytest.raises(TypeError, match="DescribeClusterResponse"):
        refusal(other, 41)
    with pytest.raises(TypeError, match="DescribeClusterResponse"):
        wrong_node(other)


@pytest.mark.parametrize(
    ("api", "versions", "way"),
    [
        (19, range(8), Route.CARRY),
        (0, range(12), Route.REFUSE),
        (1, range(18), Route.REFUSE),
        (3, range(13), Route.REWRITE),
        (60, range(2), Route.REWRITE),
        (16, range(6), Route.OWN),
        (34, range(3), Route.OWN),
        (17, range(1, 2), Route.AUTHENTICATE),
        (36, range(3), Route.AUTHENTICATE),
        *((api, range(0), Route.CLOSE) for api in sorted(HIDDEN)),
    ],
)
def test_a_request_is_routed_in_offered_versions_and_refused_in_others(api: int, versions: range, way: Route) -> None:
    for version in range(-1, 20):
        assert route(api, version) is (way if version in versions else Route.CLOSE), version


@pytest.mark.parametrize(
    ("api", "version", "way"),
    [(18, 4, Route.REWRITE), (18, 5, Route.PASS), (18, -1, Route.PASS), (8, 9, Route.PASS), (-7, 0, Route.PASS)],
)
def test_a_request_that_is_unknown_here_goes_to_a_broker(api: int, version: int, way: Route) -> None:
    """The broker may know it, and hangs up if it does not."""
    assert route(api, version) is way


@pytest.mark.parametrize("api", range(70))
def test_where_brokers_share_the_listener_their_three_calls_are_relayed(api: int) -> None:
    relayed = {7: range(2, 4), 56: range(4), 67: range(1)}.get(api, range(0))
    for version in range(-1, 5):
        assert route(api, version, shared=True) is (Route.RELAY if version in relayed else route(api, version))
