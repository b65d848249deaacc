"""Configuration calls that name the daemon beside topics and brokers: a broker responds for the others."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from admin.own_configs import about_configs
from brokers.wire.messages.nodes import AlterConfigsRequest, AlteredConfig
from tests.kit.admin_kit import NODE, corr, endpoint_world, response_frame
from tests.kit.admin_requests import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, about
from tests.kit.wire_kit import part, read_request

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
OWN, OWN_LOGGERS = (BROKER, str(NODE.id)), (BROKER_LOGGER, str(NODE.id))
MIXED = (OWN, (TOPIC, "t"), (BROKER, ""), OWN_LOGGERS, (TOPIC, "missing"))
VERSIONS = [(key, v) for key, last in ((DESCRIBE_CONFIGS, 4), (ALTER_CONFIGS, 2), (44, 1)) for v in range(last + 1)]
KINDS = {DESCRIBE_CONFIGS: "DescribeConfigsResource", ALTER_CONFIGS: "AlterConfigsResource", 44: "AlterConfigsResource"}


def broker_response(key: int, version: int, frame: bytes) -> bytes:
    """Writes outcomes in the order of the request, with an error for the missing topic."""
    outcomes = tuple(outcome(key, version, r.resource_type, r.resource_name) for r in read_request(frame)[1].resources)
    named: dict[str, Any] = {"results" if key == DESCRIBE_CONFIGS else "responses": outcomes}
    return response_frame(key, version, corr(frame), **named)


def outcome(key: int, version: int, kind: int, name: str) -> Any:
    described = key == DESCRIBE_CONFIGS
    error, why = (ErrorCode(3), "there is none") if name == "missing" else (ErrorCode(0), None)
    fields: dict[str, Any] = {"error_code": error, "error_message": why, "resource_type": kind, "resource_name": name}
    if not described:
        return part(key, version, "AlterConfigsResourceResponse", response=True, **fields)
    synonym = (
        part(key, version, "DescribeConfigsSynonym", response=True, name="x", value="y", source=5) if version else 0
    )
    entry: dict[str, Any] = {"name": "retention.ms", "value": "1", "read_only": True, "is_sensitive": False}
    entry |= {"is_default": True, "config_source": 5, "synonyms": (synonym,), "config_type": 5, "documentation": "why"}
    configs = (part(key, version, "DescribeConfigsResourceResult", response=True, **entry),)
    return part(key, version, "DescribeConfigsResult", response=True, configs=configs, **fields)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
async def test_results_of_a_broker_and_of_the_daemon_come_in_the_order_of_the_request(key: int, version: int) -> None:
    async with endpoint_world() as w:
        w.broker.script = lambda frame: broker_response(key, version, frame)
        response = await (await w.connect()).call(key, version, **about(key, version, *MIXED))
        found = response.results if key == DESCRIBE_CONFIGS else response.responses
        own = [r for r in found if (r.resource_type, r.resource_name) in (OWN, OWN_LOGGERS)]
        assert [(r.resource_type, r.resource_name) for r in found] == list(MIXED)
        assert [(r.error_code, r.error_message) for r in own] == [(0, None)] * 2
        theirs = [outcome(key, version, *named) for named in MIXED if named not in (OWN, OWN_LOGGERS)]
        assert [r for r in found if r not in own] == theirs, "every field of the broker's results is passed on"


@pytest.mark.parametrize("version", range(2))
async def test_the_broker_receives_the_clients_changes_of_the_others(version: int) -> None:
    key = INCREMENTAL_ALTER_CONFIGS
    change: dict[str, Any] = {"name": "retention.ms", "value": "7", "config_operation": 2}
    configs = (
        part(key, version, "AlterableConfig", **change),
        part(key, version, "AlterableConfig", **change | {"value": None}),
    )
    named = [part(key, version, KINDS[key], resource_type=a, resource_name=b, configs=configs) for a, b in MIXED]
    async with endpoint_world() as w:
        w.broker.script = lambda frame: broker_response(key, version, frame)
        client = await w.connect()
        await client.call(key, version, validate_only=True, resources=tuple(named))
        header, body = read_request(w.broker.frames[0])
        assert (header.client_id, body.validate_only) == ("me", True)
        assert body.resources == tuple(r for r, at in zip(named, MIXED, strict=True) if at not in (OWN, OWN_LOGGERS))


async def test_a_client_may_send_more_calls_after_one_that_was_split() -> None:
    async with endpoint_world() as w:
        w.broker.script = lambda frame: broker_response(DESCRIBE_CONFIGS, 4, frame)
        client = await w.connect()
        for _ in range(3):
            response = await client.call(DESCRIBE_CONFIGS, 4, **about(DESCRIBE_CONFIGS, 4, *MIXED))
            assert len(response.results) == len(MIXED)
        assert w.broker.opened == 1


@pytest.mark.parametrize(
    ("limits", "body", "why"),
    [({}, b"\xff" * 60, "cannot be read"), ({"frame_bytes_max": 2_000}, bytes(3_000), "too many to be merged")],
    ids=["not a response", "too large"],
)
async def test_a_response_that_cannot_be_merged_ends_the_clients_connection(
    limits: dict[str, Any], body: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with endpoint_world(**limits) as w:
        w.broker.script = lambda frame: frame[4:8] + body
        client = await w.connect()
        client.request(DESCRIBE_CONFIGS, 4, **about(DESCRIBE_CONFIGS, 4, *MIXED))
        assert await client.closed()
    assert why in caplog.text


@pytest.mark.parametrize(("size", "merged"), [(70_000, True), (150_000, False)])
async def test_a_merged_response_counts_by_its_bytes_against_the_bound_of_all_clients(size: int, merged: bool) -> None:
    """The response comes in pieces of at most 64 KiB."""
    outcomes = tuple(outcome(DESCRIBE_CONFIGS, 4, TOPIC, f"topic-{i}") for i in range(size // 46))
    async with endpoint_world(buffered_bytes_max=110_000) as w:
        w.broker.script = lambda frame: response_frame(DESCRIBE_CONFIGS, 4, corr(frame), results=outcomes)
        client = await w.connect()
        client.request(DESCRIBE_CONFIGS, 4, **about(DESCRIBE_CONFIGS, 4, OWN, (TOPIC, "t")))
        if merged:
            assert len(await client.frame()) > 66_000
        else:
            assert await client.closed()


def test_values_are_left_out_of_the_representation() -> None:
    assert "hidden" not in repr(AlteredConfig("ssl.keystore.password", "hidden"))
    assert about_configs(AlterConfigsRequest(()))
