"""The HTTP surface over a real unix socket: documents, pages, probes, errors, and who may change anything."""

from __future__ import annotations

import asyncio
import os
import stat
from functools import partial
from pathlib import Path

import anyio
import httpx
import pytest
import uvloop

from controller.http.models import Difference, Operation
from controller.http.peers import uid_of
from controller.http.server import serving
from controller.metrics.gauges import ShownMode
from tests.core.http_world import DaemonDouble, app_settings, http_world
from tests.polling import eventually


async def test_every_document_has_version_kind_and_items(tmp_path: Path) -> None:
    paths = {
        "/v1/status": "Status",
        "/v1/cluster": "Cluster",
        "/v1/brokers": "Broker",
        "/v1/brokers/2": "Broker",
        "/v1/topics": "Topic",
        "/v1/topics/orders": "Topic",
        "/v1/partitions": "Partition",
        "/v1/topics/orders/partitions/3": "Partition",
        "/v1/topics/orders/partitions/3/explanation": "Explanation",
        "/v1/verification": "Verification",
    }
    async with http_world(tmp_path, DaemonDouble()) as client:
        for path, kind in paths.items():
            answer = await client.get(path)
            assert answer.status_code == 200, path
            assert answer.json()["apiVersion"] == "regent/v1"
            assert answer.json()["kind"] == kind
            assert answer.json()["items"], path
        status = (await client.get("/v1/status")).json()["items"][0]
    assert (status["controllerEpoch"], status["offlinePartitions"]) == (7, 2)
    assert "clusterId" not in status, "what is not known is left out"


async def test_long_lists_come_in_pages(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    pages = 0
    async with http_world(tmp_path, DaemonDouble()) as client:
        after: str | None = None
        while pages == 0 or after:
            query: dict[str, str | int] = {"limit": 4, **({"after": after} if after else {})}
            page = (await client.get("/v1/partitions", params=query)).json()
            seen += [(item["topic"], item["partition"]) for item in page["items"]]
            after = page.get("next")
            pages += 1
    assert pages == 3
    assert seen == [(topic, number) for topic in ("orders", "payments") for number in range(5)]


async def test_partitions_are_filtered(tmp_path: Path) -> None:
    async with http_world(tmp_path, DaemonDouble()) as client:
        only = (await client.get("/v1/partitions", params={"only": ["offline"], "topic": "orders"})).json()["items"]
        wrong = await client.get("/v1/partitions", params={"only": "sideways"})
        greedy = await client.get("/v1/partitions", params={"limit": 1_000_000})
    assert [(item["topic"], item["partition"]) for item in only] == [("orders", 4)]
    assert "leader" not in only[0]
    assert (wrong.status_code, greedy.status_code) == (400, 400)
    assert "only" in wrong.json()["message"]


async def test_errors_say_what_and_what_to_do(tmp_path: Path) -> None:
    view = DaemonDouble()
    async with http_world(tmp_path, view) as client:
        missing = await client.get("/v1/topics/nothing")
        nowhere = await client.get("/v2/status")
        view.mode = ShownMode.STANDBY
        standby = await client.get("/v1/brokers")
        view.broken = True
        broken = await client.get("/v1/status")
    assert (missing.status_code, standby.status_code, nowhere.status_code) == (404, 503, 404)
    assert missing.json() == {"message": "topic nothing does not exist", "remedy": "see `regent list topics`"}
    assert "1000002" in standby.json()["remedy"]
    assert broken.status_code == 500
    assert "RuntimeError" in broken.json()["message"]
    assert "log" in broken.json()["remedy"]


@pytest.mark.parametrize("mode", list(ShownMode))
async def test_probes_and_metrics_answer_in_every_mode(tmp_path: Path, mode: ShownMode) -> None:
    view = DaemonDouble(mode=mode, ready=mode in (ShownMode.ACTIVE, ShownMode.STANDBY, ShownMode.SHADOW))
    async with http_world(tmp_path, view) as client:
        live, ready = await client.get("/liveness"), await client.get("/readiness")
        scrape = await client.get("/metrics")
    assert live.status_code == (503 if mode is ShownMode.STOPPING else 200)
    assert ready.status_code == (200 if view.ready else 503)
    assert ready.json()["mode"] == mode
    assert ready.json()["why"]
    assert f'regent_role{{mode="{mode}"}} 1.0' in scrape.text


async def test_a_scrape_works_while_the_state_cannot_be_read(tmp_path: Path) -> None:
    async with http_world(tmp_path, DaemonDouble(broken=True)) as client:
        scrape = await client.get("/metrics")
    assert scrape.status_code == 200
    assert "regent_scrape_failures_total 1.0" in scrape.text


async def test_the_daemons_user_may_change_things(tmp_path: Path) -> None:
    view = DaemonDouble()
    async with http_world(tmp_path, view) as client:
        answer = await client.post("/v1/role/handback", json={"reason": "upgrade", "dryRun": True})
        after = await client.get("/v1/role/operation")
    assert answer.json()["items"][0]["state"] == "planned"
    assert view.requests[0].reason == "upgrade"
    assert view.requests[0].dry_run
    assert after.json()["items"][0]["kind"] == "handback"


async def test_others_may_read_only(tmp_path: Path) -> None:
    """The surface belongs to another user, and root is not who calls: the kernel says who does."""
    view = DaemonDouble()
    async with http_world(tmp_path, view, owner=os.geteuid() + 1) as client:
        caller = await client.get("/v1/status")
        if os.geteuid() == 0:
            code = await as_other_user(tmp_path)
        else:
            code = (await client.post("/v1/role/handback", json={})).status_code
    assert caller.status_code == 200
    assert code == 403
    assert view.requests == []


async def as_other_user(folder: Path) -> int:
    """Asks for a hand-back from a process that gave root away after opening the way to the socket."""
    socket = app_settings(folder).socket
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


@pytest.mark.parametrize("client", [None, ("127.0.0.1", 5), ("", 0)])
def test_a_peer_that_the_kernel_did_not_name_is_nobody(client: tuple[str, int] | None) -> None:
    assert uid_of(client) is None


async def test_a_large_body_and_one_of_unknown_length_are_not_read(tmp_path: Path) -> None:
    view = DaemonDouble()
    async with http_world(tmp_path, view) as client:
        large = await client.post("/v1/role/handback", content=b"{" + b" " * 70_000 + b"}")

        async def endless() -> object:
            yield b"{}"

        unknown = await client.post("/v1/role/handback", content=endless())  # type: ignore[arg-type]
        wrong = await client.post("/v1/role/handback", json={"dryrun": True})
        long = await client.post("/v1/role/handback", json={"reason": "x" * 1_001})
    assert (large.status_code, unknown.status_code) == (413, 413)
    assert (wrong.status_code, long.status_code) == (400, 400)
    assert view.requests == []


async def test_a_refusal_of_the_daemon_is_a_conflict(tmp_path: Path) -> None:
    async with http_world(tmp_path, DaemonDouble(refuse="a reassignment runs")) as client:
        answer = await client.post("/v1/role/handback", json={})
        never = await client.get("/v1/role/operation")
    assert (answer.status_code, never.status_code) == (409, 404)
    assert answer.json()["message"] == "a reassignment runs"


async def test_one_verification_at_a_time(tmp_path: Path) -> None:
    view = DaemonDouble(verification_may_end=asyncio.Event())
    view.differences.append(Difference(topic="t", partition=0, field="leader", expected="1", found="2", broker=3))
    async with http_world(tmp_path, view) as client:
        first = asyncio.create_task(client.get("/v1/verification", timeout=20))
        assert await eventually(partial(busy, client))
        second = await client.get("/v1/verification")
        assert view.verification_may_end is not None
        view.verification_may_end.set()
        answer = await first
        again = await client.get("/v1/verification")
    assert second.json()["message"] == "a verification is running already"
    assert answer.json()["items"][0]["differences"][0]["broker"] == 3
    assert again.status_code == 200


async def busy(client: httpx.AsyncClient) -> bool:
    """Whether a verification runs: another one is refused."""
    try:
        return (await client.get("/v1/verification", timeout=1)).status_code == 409
    except httpx.TimeoutException:
        return False


async def test_the_socket_is_private_and_goes_with_the_daemon(tmp_path: Path) -> None:
    socket = app_settings(tmp_path).socket
    async with http_world(tmp_path, DaemonDouble()):
        assert stat.S_IMODE(socket.stat().st_mode) == 0o660
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o750
    assert not socket.exists()


async def test_a_stop_is_bounded(tmp_path: Path) -> None:
    """An answer that never comes does not hold the daemon's end up; its socket goes all the same."""
    view = DaemonDouble(verification_may_end=asyncio.Event())
    async with http_world(tmp_path, view) as client:
        hanging = asyncio.create_task(client.get("/v1/verification"))
        await eventually(partial(busy, client))
    assert not app_settings(tmp_path).socket.exists()
    await asyncio.wait({hanging})
    assert hanging.exception() is not None


async def test_cancellation_leaves_answers_under_way_their_time(tmp_path: Path) -> None:
    view = DaemonDouble(verification_may_end=asyncio.Event())
    assert view.verification_may_end is not None
    transport = httpx.AsyncHTTPTransport(uds=str(app_settings(tmp_path).socket))
    async with httpx.AsyncClient(transport=transport, base_url="http://regent") as client:
        with anyio.CancelScope() as scope:
            async with http_world(tmp_path, view):
                under_way = asyncio.create_task(client.get("/v1/verification"))
                await eventually(partial(busy, client))
                asyncio.get_running_loop().call_later(0.2, view.verification_may_end.set)
                scope.cancel()
                await asyncio.Event().wait()
        assert scope.cancelled_caught
        assert "http" not in {task.get_name() for task in asyncio.all_tasks()}, "nothing goes on behind its back"
        assert (await under_way).status_code == 200
    assert not app_settings(tmp_path).socket.exists()


def test_it_runs_on_uvloop_too(tmp_path: Path) -> None:
    async def ask() -> int:
        async with http_world(tmp_path, DaemonDouble()) as client:
            return (await client.post("/v1/role/takeover", json={"dryRun": True})).status_code

    assert uvloop.run(ask()) == 200


async def test_signals_stay_with_the_daemon(tmp_path: Path) -> None:
    import signal

    before = signal.getsignal(signal.SIGTERM)
    async with http_world(tmp_path, DaemonDouble()) as client:
        await client.get("/liveness")
        assert signal.getsignal(signal.SIGTERM) is before


def test_an_operation_has_a_known_state() -> None:
    with pytest.raises(ValueError, match="state"):
        Operation.model_validate({"kind": "takeover", "state": "unknown", "message": ""})


async def test_serving_twice_is_refused(tmp_path: Path) -> None:
    from fastapi import FastAPI

    from controller.http.unix_socket import SocketTaken

    async with http_world(tmp_path, DaemonDouble()) as client:
        with pytest.raises(SocketTaken, match=r"http\.socket"):
            async with serving(FastAPI(), app_settings(tmp_path)):
                raise AssertionError("served")
        assert (await client.get("/liveness")).status_code == 200
