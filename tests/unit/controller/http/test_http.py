"""The HTTP surface over a real unix socket: documents, pages, probes, errors, and the right to change."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import anyio
import httpx
import pytest

from controller.domain import create_app
from controller.http.documents import ViewRefused
from controller.http.models import Operation
from controller.http.peers import BODY_BYTES_MAX
from controller.kafka.metrics.values import ShownMode
from controller.operator.verify import Difference, Verification, VerifyView
from tests.kit.answering import Answering, served, socket_of
from tests.kit.deadlines import eventually

DOCUMENTS = {
    "/v1/status": "Status",
    "/v1/settings": "Setting",
    "/v1/verification": "Verification",
    "/v1/cluster": "Cluster",
    "/v1/brokers": "Broker",
    "/v1/brokers/2": "Broker",
    "/v1/topics": "Topic",
    "/v1/topics/orders": "Topic",
    "/v1/partitions": "Partition",
    "/v1/topics/orders/partitions/3": "Partition",
    "/v1/topics/orders/partitions/3/explanation": "Explanation",
    "/v1/role/history": "RoleChangeItem",
}
FRESH = ("/v1/status", "/v1/settings", "/v1/verification", "/v1/role/history")
"""Documents that are not read from the model."""


@pytest.mark.parametrize("path", DOCUMENTS)
async def test_a_document_has_version_kind_and_items_and_names_an_old_model(tmp_path: Path, path: str) -> None:
    view = Answering()
    async with served(tmp_path, view) as client:
        response = await client.get(path)
        view.grows_old("no heartbeat for 7 s")
        later = (await client.get(path)).json()
    body = response.json()
    assert (response.status_code, body["apiVersion"], body["kind"]) == (200, "regent/v1", DOCUMENTS[path])
    assert body["items"]
    assert "stale" not in body
    assert later.get("stale") == (None if path in FRESH else "no heartbeat for 7 s")


async def test_a_daemon_without_regions_says_what_would_give_it_some(tmp_path: Path) -> None:
    async with served(tmp_path, Answering()) as client:
        refused = (await client.get("/v1/regions")).json()
        assert refused["message"] == "this daemon assigns no regions"
        assert "a section [regions]" in refused["remedy"]
        assert (await client.get("/v1/nothing")).json()["message"] == "this daemon has no path /v1/nothing"


async def test_unknown_values_are_left_out(tmp_path: Path) -> None:
    async with served(tmp_path, Answering()) as client:
        status = (await client.get("/v1/status")).json()["items"][0]
    assert (status["controllerEpoch"], status["offlinePartitions"]) == (7, 2)
    assert "clusterId" not in status


async def test_long_lists_come_in_pages(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    pages = 0
    async with served(tmp_path, Answering()) as client:
        after: str | None = None
        while pages == 0 or after:
            query: dict[str, str | int] = {"limit": 4, **({"after": after} if after else {})}
            page = (await client.get("/v1/partitions", params=query)).json()
            seen += [(item["topic"], item["partition"]) for item in page["items"]]
            after = page.get("next")
            pages += 1
    assert pages == 3
    assert seen == [(topic, number) for topic in ("orders", "payments") for number in range(5)]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"only": "sideways"}, 400),
        ({"limit": 0}, 400),
        ({"limit": 1}, 200),
        ({"limit": 5_000}, 200),
        ({"limit": 5_001}, 400),
        ({"after": "0" * 300}, 200),
        ({"after": "0" * 301}, 400),
    ],
)
async def test_a_query_out_of_bounds_is_refused_by_the_name_of_its_parameter(
    tmp_path: Path, query: dict[str, str | int], code: int
) -> None:
    async with served(tmp_path, Answering()) as client:
        response = await client.get("/v1/partitions", params=query)
    assert response.status_code == code
    assert code == 200 or next(iter(query)) in response.json()["message"]


async def test_an_error_has_its_status_a_message_and_a_remedy(tmp_path: Path) -> None:
    view = Answering()
    async with served(tmp_path, view) as client:
        missing = await client.get("/v1/topics/nothing")
        nowhere = await client.get("/v2/status")
        view.mode = ShownMode.STANDBY
        standby = await client.get("/v1/brokers")
        view.answers["whole.status"] = RuntimeError("no model yet")
        broken = await client.get("/v1/status")
    assert (missing.status_code, standby.status_code, nowhere.status_code) == (404, 503, 404)
    assert missing.json() == {"message": "topic nothing does not exist", "remedy": "see `regent list topics`"}
    assert "1000002" in standby.json()["remedy"]
    assert broken.status_code == 500
    assert "RuntimeError" in broken.json()["message"]
    assert "log" in broken.json()["remedy"]


@pytest.mark.parametrize("mode", list(ShownMode))
async def test_probes_and_metrics_are_served_in_every_mode(tmp_path: Path, mode: ShownMode) -> None:
    view = Answering(mode=mode)
    view.ready = mode in (ShownMode.ACTIVE, ShownMode.STANDBY, ShownMode.SHADOW)
    async with served(tmp_path, view) as client:
        live, ready = await client.get("/liveness"), await client.get("/readiness")
        scrape = await client.get("/metrics")
    assert live.status_code == (503 if mode is ShownMode.STOPPING else 200)
    assert ready.status_code == (200 if view.ready else 503)
    assert ready.json()["mode"] == mode
    assert ready.json()["why"]
    assert f'regent_role{{mode="{mode}"}} 1.0' in scrape.text


async def test_the_daemons_user_may_change(tmp_path: Path) -> None:
    view = Answering()
    async with served(tmp_path, view) as client:
        response = await client.post("/v1/role/handback", json={"reason": "upgrade", "dryRun": True})
        after = await client.get("/v1/role/operation")
    assert response.json()["items"][0]["state"] == "planned"
    assert view.noted("role.handback")[0].reason == "upgrade"
    assert view.noted("role.handback")[0].dry_run
    assert after.json()["items"][0]["kind"] == "handback"


async def test_other_users_may_only_read(tmp_path: Path) -> None:
    """The kernel names the caller. It is neither root nor the owner of the surface."""
    view = Answering()
    async with served(tmp_path, view, owner=os.geteuid() + 1) as client:
        caller = await client.get("/v1/status")
        if os.geteuid() == 0:
            code = await as_other_user(tmp_path)
        else:
            code = (await client.post("/v1/role/handback", json={})).status_code
    assert caller.status_code == 200
    assert code == 403
    assert view.noted("role.handback") == []


async def as_other_user(folder: Path) -> int:
    """Requests a hand-back in a process without root's rights, for which the way to the socket is opened."""
    socket = socket_of(folder).socket
    for part in (socket, *socket.parents):
        if part.is_relative_to(folder.parents[2]) and part != part.parent:
            part.chmod(part.stat().st_mode | 0o007)
    script = (
        "import os, sys, socket\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        "s.sendall(b'POST /v1/role/handback HTTP/1.1\\r\\nHost: x\\r\\nX-Forwarded-For: uid:0\\r\\n"
        "Content-Length: 2\\r\\n\\r\\n{}')\n"
        "print(s.recv(100).split()[1].decode())\n"
    )
    process = await asyncio.create_subprocess_exec(
        "/usr/bin/env", "python3", "-c", script, str(socket), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return int(out)


@pytest.mark.parametrize(
    ("client", "code"),
    [
        (None, 403),
        (("127.0.0.1", 5), 403),
        (("", 0), 403),
        (("uid:4242", 1), 403),
        (("uid:7", 1), 200),
        (("uid:0", 1), 200),
    ],
)
async def test_only_root_and_the_daemons_user_may_change(client: tuple[str, int] | None, code: int) -> None:
    view = Answering()
    transport = httpx.ASGITransport(create_app([view], mock.Mock(), owner=7), client=client)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://regent") as http:
        assert (await http.get("/v1/status")).status_code == 200
        for path in ("/v1/role/handback", "/v1/role/takeover"):
            assert (await http.post(path, json={})).status_code == code
    assert len(view.noted("role.handback", "role.takeover")) == (2 if code == 200 else 0)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{}" + b" " * (BODY_BYTES_MAX - 2), 200),
        (b"{}" + b" " * (BODY_BYTES_MAX - 1), 413),
        (b'{"dryrun": true}', 400),
        (b'{"reason": "%s"}' % (b"x" * 1_000), 200),
        (b'{"reason": "%s"}' % (b"x" * 1_001), 400),
    ],
    ids=["largest", "too large", "unknown field", "longest reason", "too long a reason"],
)
async def test_a_request_for_a_change_is_bounded_and_checked(tmp_path: Path, body: bytes, code: int) -> None:
    view = Answering()
    async with served(tmp_path, view) as client:
        response = await client.post("/v1/role/handback", content=body, headers={"content-type": "application/json"})
    assert response.status_code == code
    assert len(view.calls) == (code == 200)


async def test_a_body_of_unknown_length_is_not_read(tmp_path: Path) -> None:
    async def endless() -> object:
        yield b"{}"

    view = Answering()
    async with served(tmp_path, view) as client:
        response = await client.post("/v1/role/handback", content=endless())  # type: ignore[arg-type]
    assert (response.status_code, view.calls) == (413, [])


async def test_a_refusal_of_the_daemon_is_a_conflict(tmp_path: Path) -> None:
    async with served(tmp_path, Answering({"role.handback": ViewRefused("a reassignment runs", "wait")})) as client:
        response = await client.post("/v1/role/handback", json={})
        never = await client.get("/v1/role/operation")
    assert (response.status_code, never.status_code) == (409, 404)
    assert response.json()["message"] == "a reassignment runs"


def hanging() -> tuple[Answering, asyncio.Event]:
    """Returns a view whose verification waits for an event, and that event."""
    view, may_end = Answering(), asyncio.Event()

    async def verified() -> Verification:
        await may_end.wait()
        total = len(view.differences)
        return Verification(partitions=10, brokers=[1, 2, 3], differences=view.differences, differences_total=total)

    real: Any = VerifyView(mock.Mock(), mock.Mock(), mock.Mock())
    real._verified = verified
    view.answers["verifications.verify"] = real.verify
    return view, may_end


async def test_one_verification_at_a_time(tmp_path: Path) -> None:
    view, may_end = hanging()
    view.differences.append(Difference(topic="t", partition=0, field="leader", expected="1", found="2", broker=3))
    async with served(tmp_path, view) as client:
        first = asyncio.create_task(client.get("/v1/verification", timeout=60))
        assert await eventually(partial(busy, client))
        second = await client.get("/v1/verification")
        may_end.set()
        response = await first
        again = await client.get("/v1/verification")
    assert second.json()["message"] == "a verification is running already"
    assert response.json()["items"][0]["differences"][0]["broker"] == 3
    assert again.status_code == 200


async def busy(client: httpx.AsyncClient) -> bool:
    """Returns whether a verification runs, so that another one is refused."""
    try:
        return (await client.get("/v1/verification", timeout=1)).status_code == 409
    except httpx.TimeoutException:
        return False


async def test_the_socket_is_private_and_is_removed_at_the_end(tmp_path: Path) -> None:
    socket = socket_of(tmp_path).socket
    async with served(tmp_path, Answering()):
        assert stat.S_IMODE(socket.stat().st_mode) == 0o660
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o750
    assert not socket.exists()


async def test_a_stop_is_bounded(tmp_path: Path) -> None:
    """A request that never ends does not delay the daemon's end, and the socket is removed."""
    view, _ = hanging()
    async with served(tmp_path, view) as client:
        waiting = asyncio.create_task(client.get("/v1/verification"))
        await eventually(partial(busy, client))
    assert not socket_of(tmp_path).socket.exists()
    await asyncio.wait({waiting})
    assert waiting.exception() is not None


async def test_a_cancelled_surface_completes_its_requests_in_progress(tmp_path: Path) -> None:
    view, may_end = hanging()
    transport = httpx.AsyncHTTPTransport(uds=str(socket_of(tmp_path).socket))
    async with httpx.AsyncClient(transport=transport, base_url="http://regent") as client:
        with anyio.CancelScope() as scope:
            async with served(tmp_path, view, stop_timeout_ms=60_000):
                in_progress = asyncio.create_task(client.get("/v1/verification"))
                await eventually(partial(busy, client))
                asyncio.get_running_loop().call_later(0.2, may_end.set)
                scope.cancel()
                await asyncio.Event().wait()
        assert scope.cancelled_caught
        assert "http" not in {task.get_name() for task in asyncio.all_tasks()}, "no task stays behind"
        assert (await in_progress).status_code == 200
    assert not socket_of(tmp_path).socket.exists()


async def test_signals_stay_with_the_daemon(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    async with served(tmp_path, Answering()) as client:
        await client.get("/liveness")
        assert signal.getsignal(signal.SIGTERM) is before


def test_an_operation_with_an_unknown_state_is_invalid() -> None:
    with pytest.raises(ValueError, match="state"):
        Operation.model_validate({"kind": "takeover", "state": "unknown", "message": ""})
