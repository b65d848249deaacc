"""One listener for clients and brokers: the endpoint passes brokers' calls on to the active daemon."""

from __future__ import annotations

import pytest

from admin.rewriting import offer
from brokers.wire.messages.cluster import ApiVersion, ApiVersionsResponse
from tests.core.admin_kit import place

ALTER_PARTITION = b"\x00\x38\x00\x03\x00\x00\x00\x09" + b"\xff\xff\x00the rest"
ANSWER = b"\x00\x00\x00\x0e\x00\x00\x00\x09the answer"


async def test_a_brokers_call_and_its_answer_are_passed_on_as_they_are() -> None:
    async with place(shared=True) as p:
        p.controller.relays = ANSWER
        someone = await p.connect()
        for _ in range(2):
            someone.send(ALTER_PARTITION)
            assert await someone.reader.readexactly(len(ANSWER)) == ANSWER
        assert p.controller.relayed == [(ALTER_PARTITION, "User:ANONYMOUS", "127.0.0.1")] * 2
        assert p.broker.frames == [], "no broker is asked"


@pytest.mark.parametrize("shared", [True, False])
async def test_without_a_daemon_or_where_no_broker_belongs_the_connection_is_closed(shared: bool) -> None:
    async with place(shared=shared) as p:
        someone = await p.connect()
        someone.send(ALTER_PARTITION)
        assert await someone.reader.read() == b""
        assert len(p.controller.relayed) == shared


async def test_who_is_not_known_is_not_passed_on() -> None:
    async with place(shared=True) as p:
        p.directory.sasl = True
        p.controller.relays = ANSWER
        someone = await p.connect()
        someone.send(ALTER_PARTITION)
        assert await someone.reader.read() == b""
        assert p.controller.relayed == []


def test_brokers_are_offered_their_calls_in_the_daemons_versions() -> None:
    theirs = ApiVersionsResponse(0, tuple(ApiVersion(key, 0, 9) for key in (3, 7, 18, 56, 58)))
    offered = {key.api_key: (key.min_version, key.max_version) for key in offer(theirs, shared=True).api_keys}
    assert {key: offered[key] for key in (7, 56, 67)} == {7: (2, 3), 56: (0, 3), 67: (0, 0)}
    assert 58 not in offered
    plain = {key.api_key for key in offer(theirs).api_keys}
    assert offered.keys() - plain == {7, 56, 67}
