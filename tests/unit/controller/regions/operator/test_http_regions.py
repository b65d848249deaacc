"""The routes about regions over HTTP: shapes of documents and errors, who may change, a standby, and beside Kafka."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from controller.domain import create_app, running
from controller.http.documents import NotActive
from controller.kafka.metrics.exposition import KafkaCollector
from controller.kafka.metrics.values import Counters
from controller.kafka.term.dispatch import KAFKA_STATES
from controller.metrics import ProcessMetrics, registry
from controller.regions.domain import RegionsMode
from controller.regions.metrics import RegionsCollector
from controller.regions.operator.procedures import EndAct
from controller.regions.operator.servers import ServerChange
from controller.regions.operator.view import View
from controller.regions.process import domain_of
from controller.regions.sqlite_store import SqliteOpened
from tests.kit.answering import Answering
from tests.kit.deadlines import eventually
from tests.kit.regions.daemon import RegionsWorld, regions_world, settings_of

BODY: Final[dict[str, dict[str, Any]]] = {"": {}, "/enable": {"json": {}}}


async def with_world(
    folder: Path, work: Callable[[RegionsWorld, httpx.AsyncClient], Awaitable[None]], **regions: object
) -> None:
    """Runs a world, and ``work`` with a client of its socket."""
    async with regions_world(settings_of(folder, **regions)) as world:
        transport = httpx.AsyncHTTPTransport(uds=str(world.settings.http.socket))
        async with httpx.AsyncClient(transport=transport, base_url="http://regent", timeout=30) as client:
            await work(world, client)


async def items(client: httpx.AsyncClient, path: str, **params: Any) -> list[dict[str, Any]]:
    body = (await client.get(path, params=params)).raise_for_status().json()
    assert body["apiVersion"] == "regent/v1"
    found: list[dict[str, Any]] = body["items"]
    return found


async def ended(client: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    """Posts a change, and waits for the end of its procedure."""
    [begun] = (await client.post(path, json=body)).raise_for_status().json()["items"]
    [found] = await items(client, f"/v1/regions/procedures/{begun['pid']}", waitS=30)
    return found


async def test_a_report_is_a_document_and_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    async def work(world: RegionsWorld, client: httpx.AsyncClient) -> None:
        await ended(client, "/v1/regions/tables", name="t", uniform=3)
        [clean] = await items(client, "/v1/regions/report")
        assert clean == {"findings": [], "total": 0, "counts": {}, "inWork": 0, "tables": 1, "regions": 3}
        for region in await items(client, "/v1/regions/list"):
            await ended(client, f"/v1/regions/{region['id']}/unassign")
        [found] = await items(client, "/v1/regions/report", table="t", kind="not_open", limit=2)
        assert (found["total"], len(found["findings"]), found["counts"]) == (3, 2, {"not_open": 3})
        for params in ({"kind": "lost"}, {"limit": 0}, {"limit": 5_001}):
            refused = await client.get("/v1/regions/report", params=params)
            assert (refused.status_code, set(refused.json())) == (400, {"message", "remedy"})
        missing = await client.get("/v1/regions/report", params={"table": "none"})
        assert (missing.status_code, missing.json()["message"]) == (404, "table 'none' does not exist")

    await with_world(tmp_path, work)


async def test_a_repair_needs_a_reason_and_says_what_it_would_do(tmp_path: Path) -> None:
    async def work(world: RegionsWorld, client: httpx.AsyncClient) -> None:
        await ended(client, "/v1/regions/tables", name="t", uniform=3)
        [first, *_] = await items(client, "/v1/regions/list", table="t")
        bodies: dict[str, dict[str, Any]] = {
            f"{first['id']}/adopt": {"table": "t"},
            f"{first['id']}/forget": {},
            "tables/t/fix-keys": {},
            "tables/t/adopt": {},
            "rows/remove": {"place": "row 3 of table mark"},
            "servers/s1/recover": {},
        }
        for path, body in bodies.items():
            for reason in ({}, {"reason": "  "}):
                refused = await client.post(f"/v1/regions/{path}", json=body | reason)
                assert refused.status_code == 400, refused.text
                assert refused.json()["message"] == "reason is empty: a repair of the catalog needs one"
                assert refused.json()["remedy"] == "say why it is made, the journal keeps it"
        told = "is there: it is OPEN", "is the only one with the keys", "each key of table 't' has a region"
        for (path, body), what in zip(bodies.items(), told, strict=False):
            refused = await client.post(f"/v1/regions/{path}", json=body | {"reason": "a test", "dryRun": True})
            assert (refused.status_code, what in refused.json()["message"]) == (409, True), refused.text

    await with_world(tmp_path, work)


async def test_documents_errors_and_probes(tmp_path: Path) -> None:
    async def work(world: RegionsWorld, client: httpx.AsyncClient) -> None:
        assert (await client.get("/readiness")).json() == {"ok": True, "mode": "active", "why": "epoch 1"}
        assert (await ended(client, "/v1/regions/tables", name="t", uniform=5))["state"] == "success"
        page = (await client.get("/v1/regions/list", params={"limit": 2})).json()
        assert (page["kind"], len(page["items"])) == ("Region", 2)
        rest = (await client.get("/v1/regions/list", params={"after": page["next"]})).json()
        assert len(rest["items"]) == 3
        assert "next" not in rest
        refused = await client.get("/v1/regions/list", params={"state": "lost"})
        assert (refused.status_code, "FAILED_OPEN" in refused.json()["remedy"]) == (400, True)
        missing = await client.get("/v1/regions/999")
        assert (missing.status_code, set(missing.json())) == (404, {"message", "remedy"})
        wrong = await client.post("/v1/regions/tables", json={"name": "t2", "splits": ["a"], "uniform": 3})
        assert (wrong.status_code, "give one of them" in wrong.json()["message"]) == (400, True)
        unknown = await client.post("/v1/regions/tables", json={"name": "t2", "shape": "round"})
        assert "shape" in unknown.json()["message"]
        long = (await client.post("/v1/regions/tables/t/disable", json={"reason": "x" * 1_001})).json()
        assert long["message"].endswith("body.reason has 1,001 characters, at most 1,000 are possible")
        assert long["remedy"].startswith("correct it")
        many = {"name": "t2", "splits": [f"{number:05}" for number in range(10_001)]}
        too_many = await client.post("/v1/regions/tables", json=many)
        assert too_many.json()["message"].endswith("body.splits has 10,001 entries, at most 10,000 are possible")
        for named in ("", "/enable"):
            nowhere = await (client.post if named else client.get)(f"/v1/regions/tables/a%2Fb{named}", **BODY[named])
            assert nowhere.json()["message"] == "table 'a/b' does not exist"
        folder = await client.post("/v1/regions/tables", json={"name": "..", "uniform": 3})
        assert (folder.status_code, folder.json()["remedy"]) == (400, "give another name")
        kafka = await client.get("/v1/topics")
        assert kafka.json()["message"] == "this daemon assigns regions, and has no Kafka cluster"
        assert kafka.json()["remedy"] == "see 'regent regions status'"
        assert (await client.get("/v1/regions/of/mine")).json()[
            "message"
        ] == "this daemon has no path /v1/regions/of/mine"

    await with_world(tmp_path, work)


async def test_a_page_goes_on_where_its_last_region_was_deleted(tmp_path: Path) -> None:
    async def work(world: RegionsWorld, client: httpx.AsyncClient) -> None:
        for name in ("a", "b"):
            await ended(client, "/v1/regions/tables", name=name, uniform=3)
        page = (await client.get("/v1/regions/list", params={"limit": 2})).json()
        await ended(client, "/v1/regions/tables/a/disable")
        await ended(client, "/v1/regions/tables/a/delete")
        assert [one["table"] for one in await items(client, "/v1/regions/list", after=page["next"])] == ["b"] * 3

    await with_world(tmp_path, work)


async def test_a_daemon_that_waits_for_servers_says_so(tmp_path: Path) -> None:
    async def work(world: RegionsWorld, client: httpx.AsyncClient) -> None:
        [begun] = (await client.post("/v1/regions/tables", json={"name": "t"})).json()["items"]

        async def waits() -> str:
            found = await items(client, "/v1/regions/transitions")
            assert [one["waitsFor"] for one in found] == ["a server comes that may get regions"]
            return str(found[0]["id"])

        region = await eventually(waits)
        [status] = await items(client, "/v1/regions")
        assert status["warnings"] == ["2 of 3 servers have come (regions.servers_min): no region is placed yet"]
        [found] = await items(client, f"/v1/regions/{region}/explanation")
        assert "2 of 3 servers have come (regions.servers_min)" in found["procedureBecause"]
        [held] = [one for one in await items(client, "/v1/regions/locks") if one["pid"] == begun["pid"]]
        assert (held["resource"], held["exclusive"]) == ("table default t", True)
        await world.start("s3")
        [made] = await items(client, f"/v1/regions/procedures/{begun['pid']}", waitS=30)
        assert made["state"] == "success"

    await with_world(tmp_path, work, servers_min=3)


async def test_a_standby_says_where_it_stands(tmp_path: Path) -> None:
    async def work(world: RegionsWorld, client: httpx.AsyncClient) -> None:
        domain = domain_of(world.settings, None)
        async with running(domain):
            await eventually(lambda: domain.mode is RegionsMode.STANDBY)
            view = View(domain, world.settings)
            assert view.readiness().ok
            metrics = registry(RegionsCollector(domain.counters, view.region_gauges))
            transport = httpx.ASGITransport(create_app([view], metrics))
            async with httpx.AsyncClient(transport=transport, base_url="http://regent") as standby:
                refused = await standby.get("/v1/regions/servers")
                assert refused.status_code == 503
                assert "is standby: the daemon on " in refused.json()["message"]
                command = f"'regent --server {world.settings.http.socket}' on this machine sends requests to it"
                assert f"(pid {os.getpid()}) has the store; {command}" in refused.json()["message"]
                for change in (
                    view.servers.change_server("expire", "s1", ServerChange(), "User:ops"),
                    view.servers.change_server("forget", "s1", ServerChange(), "User:ops"),
                    view.procedures.end("leave-out", 7, "User:ops", "its file is gone"),
                ):
                    with pytest.raises(NotActive, match=r"is standby: the daemon on .* has the store") as failure:
                        await change
                    assert failure.value.remedy.startswith("send the request to the active daemon of the store")
                assert (await items(standby, "/v1/regions"))[0]["mode"] == "standby"
                assert "regent_regions_active 0.0" in (await standby.get("/metrics")).text
            acts: tuple[EndAct, ...] = ("abort", "bypass", "remove")
            for act in acts:
                with pytest.raises(NotActive, match="is standby: the daemon on "):
                    await asyncio.wait_for(view.procedures.end(act, 1, "User:ops", ""), 60)
        assert domain.mode is RegionsMode.STOPPED

    await with_world(tmp_path, work)


async def test_the_status_says_who_else_may_write_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqliteOpened, "complaint", lambda _: "sasl:eve may write")

    async def work(world: RegionsWorld, client: httpx.AsyncClient) -> None:
        [status] = await items(client, "/v1/regions")
        assert "sasl:eve may write" in status["warnings"]

    await with_world(tmp_path, work)


async def test_only_the_daemons_user_may_change_and_a_daemon_that_starts_has_a_status(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    domain = domain_of(settings, None)
    view = View(domain, settings)
    app = create_app([view], registry(ProcessMetrics(1, lambda: 0)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://regent") as stranger:
        found = await stranger.post("/v1/regions/tables", json={"name": "t"})
        assert (found.status_code, "may read, but not change" in found.json()["message"]) == (403, True)
        [status] = await items(stranger, "/v1/regions")
        assert (status["mode"], status["listener"]) == ("starting", "")
        assert (await stranger.get("/readiness")).status_code == 503


async def test_beside_kafka_both_have_their_routes(tmp_path: Path) -> None:
    async def work(world: RegionsWorld, client: httpx.AsyncClient) -> None:
        double = Answering()
        kafka = KafkaCollector(Counters(), double, KAFKA_STATES)
        metrics = registry(kafka, RegionsCollector(world.domain.counters, world.view.region_gauges))
        transport = httpx.ASGITransport(create_app([double, world.view], metrics))
        async with httpx.AsyncClient(transport=transport, base_url="http://regent") as both:
            assert (await items(both, "/v1/regions"))[0]["mode"] == "active"
            assert len(await items(both, "/v1/brokers")) == 3
            text = (await both.get("/metrics")).text
            assert "regent_regions_active 1.0" in text
            assert 'regent_role{mode="active"}' in text

    await with_world(tmp_path, work)


async def test_a_server_is_expired_once_however_often_that_is_requested(tmp_path: Path) -> None:
    """A request whose response was lost is sent again, when a next process with this name may have registered."""

    async def work(world: RegionsWorld, client: httpx.AsyncClient) -> None:
        path, body = "/v1/regions/servers/s1/expire", {"nonce": "n1", "reason": "it hangs"}
        [first] = (await client.post(path, json=body)).raise_for_status().json()["items"]
        await eventually(world.agents["s1"].died.is_set)
        await world.start("s1", 2)
        [again] = (await client.post(path, json=body)).raise_for_status().json()["items"]
        assert again["pid"] == first["pid"]
        crashes = await items(client, "/v1/regions/procedures", kind="crash")
        assert [one["pid"] for one in crashes] == [first["pid"]]
        assert "it hangs" in crashes[0]["detail"]
        await items(client, f"/v1/regions/procedures/{first['pid']}", waitS=30)
        gone = await client.post("/v1/regions/servers/s1,1/expire", json={"nonce": "n2"})
        assert (gone.status_code, gone.json()["message"]) == (404, "server s1,1 was fenced and is no member any more")
        [server] = await items(client, "/v1/regions/servers/s1")
        assert (server["incarnation"], server["state"]) == (2, "online")

    await with_world(tmp_path, work)


async def test_a_name_is_forgotten_once_however_often_that_is_requested(tmp_path: Path) -> None:
    async def work(world: RegionsWorld, client: httpx.AsyncClient) -> None:
        assert (await ended(client, "/v1/regions/servers/s1/expire"))["state"] == "success"
        first, again = [await ended(client, "/v1/regions/servers/s1/forget", nonce="n1") for _ in range(2)]
        assert (first["state"], again["pid"]) == ("success", first["pid"])
        missing = await client.post("/v1/regions/servers/s1/forget", json={"nonce": "n2"})
        assert (missing.status_code, "its log names the cause" in missing.json()["remedy"]) == (404, True)

    await with_world(tmp_path, work)
