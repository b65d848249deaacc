"""Configuration calls that name the daemon beside topics and brokers: a broker answers for the others."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from admin.own_configs import about_configs
from brokers.wire.messages.nodes import AlterConfigsRequest, AlteredConfig
from tests.core.admin_kit import NODE, answer, corr, place
from tests.core.admin_requests import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, about
from tests.core.wire_kit import part, read_request

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
OWN, OWN_LOGGERS = (BROKER, str(NODE.id)), (BROKER_LOGGER, str(NODE.id))
MIXED = (OWN, (TOPIC, "t"), (BROKER, ""), OWN_LOGGERS, (TOPIC, "missing"))
VERSIONS = [(key, v) for key, last in ((DESCRIBE_CONFIGS, 4), (ALTER_CONFIGS, 2), (44, 1)) for v in range(last + 1)]
KINDS = {DESCRIBE_CONFIGS: "DescribeConfigsResource", ALTER_CONFIGS: "AlterConfigsResource", 44: "AlterConfigsResource"}


def broker_answers(key: int, version: int, frame: bytes) -> bytes:
    """Outcomes in the order of the request; the topic that is missing has an error."""
    outcomes = tuple(outcome(key, version, r.resource_type, r.resource_name) for r in read_request(frame)[1].resources)
    named: dict[str, Any] = {"results" if key == DESCRIBE_CONFIGS else "responses": outcomes}
    return answer(key, version, corr(frame), **named)


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
async def test_a_broker_answers_for_the_others_and_the_daemon_for_itself_in_the_order_of_the_request(
    key: int, version: int
) -> None:
    async with place() as p:
        p.broker.script = lambda frame: broker_answers(key, version, frame)
        answered = await (await p.connect()).ask(key, version, **about(key, version, *MIXED))
        found = answered.results if key == DESCRIBE_CONFIGS else answered.responses
        own = [r for r in found if (r.resource_type, r.resource_name) in (OWN, OWN_LOGGERS)]
        assert [(r.resource_type, r.resource_name) for r in found] == list(MIXED)
        assert [(r.error_code, r.error_message) for r in own] == [(0, None)] * 2
        theirs = [outcome(key, version, *named) for named in MIXED if named not in (OWN, OWN_LOGGERS)]
        assert [r for r in found if r not in own] == theirs, "every field of the broker's answers is passed on"


@pytest.mark.parametrize("version", range(2))
async def test_the_broker_gets_what_the_client_said_of_the_others(version: int) -> None:
    key = INCREMENTAL_ALTER_CONFIGS
    change: dict[str, Any] = {"name": "retention.ms", "value": "7", "config_operation": 2}
    configs = (
        part(key, version, "AlterableConfig", **change),
        part(key, version, "AlterableConfig", **change | {"value": None}),
    )
    named = [part(key, version, KINDS[key], resource_type=a, resource_name=b, configs=configs) for a, b in MIXED]
    async with place() as p:
        p.broker.script = lambda frame: broker_answers(key, version, frame)
        client = await p.connect()
        await client.ask(key, version, validate_only=True, resources=tuple(named))
        header, body = read_request(p.broker.frames[0])
        assert (header.client_id, body.validate_only) == ("me", True)
        assert body.resources == tuple(r for r, at in zip(named, MIXED, strict=True) if at not in (OWN, OWN_LOGGERS))


async def test_a_client_goes_on_after_a_call_that_was_split() -> None:
    async with place() as p:
        p.broker.script = lambda frame: broker_answers(DESCRIBE_CONFIGS, 4, frame)
        client = await p.connect()
        for _ in range(3):
            answered = await client.ask(DESCRIBE_CONFIGS, 4, **about(DESCRIBE_CONFIGS, 4, *MIXED))
            assert len(answered.results) == len(MIXED)
        assert p.broker.opened == 1


@pytest.mark.parametrize(
    ("limits", "said", "why"),
    [({}, b"\xff" * 60, "cannot be read"), ({"frame_bytes_max": 2_000}, bytes(3_000), "too many to be merged")],
    ids=["not an answer", "too large"],
)
async def test_an_answer_that_cannot_be_merged_ends_the_clients_connection(
    limits: dict[str, Any], said: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with place(**limits) as p:
        p.broker.script = lambda frame: frame[4:8] + said
        client = await p.connect()
        client.request(DESCRIBE_CONFIGS, 4, **about(DESCRIBE_CONFIGS, 4, *MIXED))
        assert await client.closed()
    assert why in caplog.text


def test_values_do_not_show() -> None:
    assert "hidden" not in repr(AlteredConfig("ssl.keystore.password", "hidden"))
    assert about_configs(AlterConfigsRequest(()))
