"""One listener for clients and brokers: the endpoint relays brokers' calls to the active daemon."""

from __future__ import annotations

import pytest

from admin.rewriting import offer
from brokers.wire.messages.cluster import ApiVersion, ApiVersionsResponse
from tests.kit.admin_kit import endpoint_world

ALTER_PARTITION = b"\x00\x38\x00\x03\x00\x00\x00\x09" + b"\xff\xff\x00the rest"
RESPONSE = b"\x00\x00\x00\x10\x00\x00\x00\x09the response"


async def test_a_brokers_call_and_its_response_are_relayed_unchanged() -> None:
    async with endpoint_world(shared=True) as w:
        w.controller.relay_response = RESPONSE
        broker = await w.connect()
        for _ in range(2):
            assert await broker.exchange(ALTER_PARTITION) == RESPONSE[4:]
        assert w.controller.relayed == [(ALTER_PARTITION, "User:ANONYMOUS", "127.0.0.1")] * 2
        assert w.broker.frames == [], "no broker receives it"


@pytest.mark.parametrize("shared", [True, False])
async def test_without_a_daemon_or_a_shared_listener_a_brokers_call_ends_the_connection(shared: bool) -> None:
    async with endpoint_world(shared=shared) as w:
        assert await (await w.connect()).refused(ALTER_PARTITION)
        assert len(w.controller.relayed) == shared


async def test_a_caller_without_a_principal_is_not_relayed() -> None:
    async with endpoint_world(shared=True) as w:
        w.directory.sasl = True
        w.controller.relay_response = RESPONSE
        assert await (await w.connect()).refused(ALTER_PARTITION)
        assert w.controller.relayed == []


def test_a_shared_listener_offers_brokers_calls_in_the_daemons_versions() -> None:
    theirs = ApiVersionsResponse(0, tuple(ApiVersion(key, 0, 9) for key in (3, 7, 18, 56, 58)))
    offered = {key.api_key: (key.min_version, key.max_version) for key in offer(theirs, shared=True).api_keys}
    assert {key: offered[key] for key in (7, 56, 67)} == {7: (2, 3), 56: (0, 3), 67: (0, 0)}
    assert 58 not in offered
    plain = {key.api_key for key in offer(theirs).api_keys}
    assert offered.keys() - plain == {7, 56, 67}
