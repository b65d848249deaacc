"""Texts from outside: control characters are refused in each field of each request, by operators and by servers."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import given
from hypothesis import strategies as st

from controller.domain import create_app
from controller.http.models import RequestItem
from controller.kafka.metrics.exposition import KafkaCollector
from controller.kafka.metrics.values import Counters
from controller.kafka.term.dispatch import KAFKA_STATES
from controller.metrics import registry
from controller.process.wording import problem_in, text_problem
from controller.regions.operator.view import View
from controller.regions.process import domain_of
from regent_agent import protocol
from regent_agent.protocol import Refused, Register, Registered
from tests.kit.answering import Answering
from tests.kit.regions.daemon import regions_world, settings_of
from tests.kit.regions.term import stage

GOOD = [
    "",
    "disk 7 is broken",
    "\u78c1\u789f",
    "caf\u00e9\u00a0au lait",
    "\u0645\u06cc\u200c\u062e",
    "\U0001f4a5",
]
HIDDEN = ["\x00", "\x07", "\n", "\t", "\r", "\x1b[2J", "\x7f", "\x85", "\u2028", "\u202e", "\u200b", "\ufeff", "\ud800"]


@pytest.mark.parametrize("text", GOOD)
def test_texts_in_all_scripts_are_accepted(text: str) -> None:
    assert text_problem("reason", text) is None


@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_refusal_names_field_value_and_place_and_can_be_printed(hidden: str) -> None:
    problem = text_problem("reason", f"ab{hidden}c")
    assert problem is not None
    assert problem.startswith("reason: 'ab")
    assert "at place 3" in problem
    assert problem.isprintable()


@given(st.text(max_size=300))
def test_no_control_character_and_no_end_of_line_is_accepted(text: str) -> None:
    bad = [one for one in text if unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp")]
    problem = text_problem("name", text)
    assert not (bad and problem is None)
    assert problem is None or (problem.isprintable() and len(problem) < 1_300)


def test_texts_are_found_wherever_they_are_in_a_document() -> None:
    assert problem_in({"a": ["x", {"b": "y"}], "n": 5, "t": True, "none": None}) is None
    assert (problem_in({"moves": [{"topic": "a"}, {"topic": "\x07"}]}) or "").startswith("moves[1].topic: '\\x07' ")
    assert (problem_in({"options": {"k\n": "v"}}) or "").startswith("options: a name: 'k\\n' ")
    assert (problem_in({"\x00": 1}) or "").startswith("body: a name: '\\x00' ")
    assert (problem_in(["\x1b"]) or "").startswith("[0]: '\\x1b' ")


# -- operators


def app(folder: Path) -> FastAPI:
    """Returns the surface of a daemon with both domains."""
    view, settings = Answering(), settings_of(folder)
    metrics = registry(KafkaCollector(Counters(), view, KAFKA_STATES))
    return create_app([view, View(domain_of(settings, None), settings)], metrics)


def bodies(of: FastAPI) -> Iterator[tuple[str, Any]]:
    """Yields each changing route with the class of its body."""
    for route in of.routes:
        if isinstance(route, APIRoute) and route.body_field is not None:
            yield route.path, route.body_field.field_info.annotation


def test_the_body_of_each_change_is_checked(tmp_path: Path) -> None:
    found = dict(bodies(app(tmp_path)))
    assert len(found) > 20
    for path, body in found.items():
        kinds = [one for one in get_args(body) or (body,) if one is not type(None)]
        assert all(issubclass(kind, RequestItem) for kind in kinds), path


CHANGES = {
    "/v1/role/handback": ({"reason": "up\x1b[1mgrade"}, "reason: 'up\\x1b[1mgrade' has"),
    "/v1/cordons": ({"brokers": [1], "reason": "a\nb"}, "reason: 'a\\nb' has"),
    "/v1/procedures/7/bypass": ({"reason": "\x00"}, "reason: '\\x00' has"),
    "/v1/regions/tables": ({"name": "t", "options": {"path": "/a\x07"}}, "options.path: '/a\\x07' has"),
    "/v1/regions/namespaces": ({"name": "n\u202e"}, "name: 'n\\u202e' has"),
    "/v1/regions/tables/t/disable": ({"nonce": "\t"}, "nonce: '\\t' has"),
    "/v1/regions/procedures/7/abort": ({"reason": "\x9b"}, "reason: '\\x9b' has"),
    "/v1/regions/tables/t%0Au/disable": ({}, "path: '/v1/regions/tables/t\\nu/disable' has"),
}


@pytest.mark.parametrize("path", CHANGES)
async def test_a_change_with_a_control_character_is_refused_in_both_domains(tmp_path: Path, path: str) -> None:
    body, expected = CHANGES[path]
    surface = app(tmp_path)
    transport = httpx.ASGITransport(surface, client=("uid:0", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://regent") as client:
        response = await client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert expected in response.json()["message"]
    assert response.json()["message"].isprintable()


async def test_a_table_with_such_an_option_is_not_created(tmp_path: Path) -> None:
    async with regions_world(settings_of(tmp_path)) as world:
        transport = httpx.AsyncHTTPTransport(uds=str(world.settings.http.socket))
        async with httpx.AsyncClient(transport=transport, base_url="http://regent", timeout=30) as client:
            for body in ({"name": "t", "options": {"a": "\x01"}}, {"name": "t", "reason": "\n"}):
                assert (await client.post("/v1/regions/tables", json=body)).status_code == 400
            assert (await client.get("/v1/regions/tables")).json()["items"] == []
            assert (await client.post("/v1/regions/tables", json={"name": "t", "reason": "it is 7\u00b0"})).is_success


# -- servers


@pytest.mark.parametrize("field", ["server", "address", "software"])
async def test_names_of_servers_have_none(tmp_path: Path, field: str) -> None:
    good = Register("s1", 1, "s1:1", "v1")
    async with stage(tmp_path) as found:
        refused = await found.term.service.handle(msgspec.structs.replace(good, **{field: "a\x1bb"}))
        assert isinstance(refused, Refused)
        assert refused.code == protocol.INVALID
        assert refused.text.startswith(f"{field}: 'a\\x1bb' has the control character '\\x1b' at place 2")
        assert not found.term.env.model.servers
        assert isinstance(await found.term.service.handle(good), Registered)


async def test_figures_with_such_names_are_left_out(tmp_path: Path) -> None:
    async with stage(tmp_path) as found:
        await found.term.service.handle(Register("s1", 1, "s1:1"))
        poll = protocol.Poll("s1", 1, found.term.manager.epoch, 0, {"requests": 7, "re\x1bd": 8})
        assert isinstance(await found.term.service.handle(poll), protocol.Operations)
        assert found.term.env.model.servers["s1", 1].load == {"requests": 7}
