"""Requests about procedures that have ended, were evicted, are parts, or never were: none fails the daemon."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import httpx
import pytest

from controller.procedures.engine import Engine
from controller.procedures.requests import KEPT_MS
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from state_machines.procedures.record import Caller
from tests.kit.deadlines import eventually
from tests.kit.regions.daemon import RegionsWorld, regions_world, settings_of

PIDS = [0, -1, 999_999, 2**63, 2**70]
ACTS = ["abort", "bypass", "remove"]


async def every_request(client: httpx.AsyncClient, pid: int) -> None:
    """Sends each request about a pid; none has a response of 500."""
    base = f"/v1/regions/procedures/{pid}"
    responses = [await client.post(f"{base}/{act}", json={"reason": "a test"}) for act in ACTS]
    responses += [await client.post(f"{base}/{act}") for act in ACTS]
    responses += [await client.get(base), await client.get(base, params={"waitS": 0.01})]
    for found in responses:
        assert found.status_code < 500, (found.request.url, found.text)
        body = found.json()
        assert ("items" in body) if found.is_success else (body["message"] and body["remedy"])


async def client_of(world: RegionsWorld) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=str(world.settings.http.socket))
    return httpx.AsyncClient(transport=transport, base_url="http://regent", timeout=30)


@pytest.mark.parametrize("evicted", [False, True])
async def test_requests_about_ended_and_unknown_procedures_and_their_parts(tmp_path: Path, evicted: bool) -> None:
    async with regions_world(settings_of(tmp_path)) as world, await client_of(world) as client:
        term = world.domain.term
        assert term is not None
        parts: set[int] = set()
        enter = term.engine._running.enter

        def noted(*given: object, **named: object) -> object:
            found = enter(*given, **named)  # type: ignore[arg-type]
            parts.update(term.engine.records)
            return found

        with mock.patch.object(term.engine._running, "enter", noted):
            pid = await term.engine.submit("create_table", TABLE_TASK.encode(TableTask("t", uniform=3)), Caller("ops"))
            await term.engine.result(pid)
        assert len(parts) > 3, "its parts are known"
        if evicted:
            later_ms = term.engine._running.age_ms() + 2 * KEPT_MS
            with mock.patch.object(term.engine._running, "age_ms", return_value=later_ms):
                term.engine._wanted()
                await eventually(lambda: pid not in term.engine.records)
        for one in (*sorted(parts), *PIDS):
            await every_request(client, one)


async def test_a_repeated_request_whose_result_goes_meanwhile_names_the_pid(tmp_path: Path) -> None:
    """The nonce is known when the request is decided, and the record is evicted in the same turn."""
    async with regions_world(settings_of(tmp_path)) as world, await client_of(world) as client:

        async def submit(*_: object, **__: object) -> int:
            return 77

        with mock.patch.object(Engine, "submit", submit):
            found = await client.post("/v1/regions/tables", json={"name": "t", "nonce": "once"})
    assert found.status_code == 404
    assert "pid 77, which this nonce has started, has ended" in found.json()["message"]
    assert "another nonce" in found.json()["remedy"]
