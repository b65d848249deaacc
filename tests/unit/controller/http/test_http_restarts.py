"""Queries about brokers that stop, go away or are restarted, over HTTP: documents, bounds of each parameter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.kafka.metrics.values import ShownMode
from controller.operator.brokers import BROKERS_MAX
from controller.operator.restarts import RestartNext, RestartQuery
from state_machines.decisions.hindrances import StopCause
from state_machines.decisions.restarts import BATCH_MAX
from tests.kit.http_world import DaemonDouble, http_world

BATCH = RestartNext(state="restart", why="restart broker 1 now", batch=[1], pending=[1, 2])
LARGEST_EPOCH = 2**63 - 1


async def test_sets_of_brokers_and_accepted_causes_reach_the_daemon(tmp_path: Path) -> None:
    view = DaemonDouble()
    async with http_world(tmp_path, view) as client:
        stop = await client.get("/v1/can-stop", params={"broker": [2, 1, 2, 9], "accept": ["single-replica"]})
        remove = await client.get("/v1/can-remove", params={"broker": 3})
    assert view.judged == [
        (frozenset({1, 2, 9}), frozenset({StopCause.SINGLE_REPLICA})),
        (frozenset({3}), frozenset()),
    ]
    assert (stop.json()["kind"], remove.json()["kind"]) == ("CanStop", "CanRemove")
    [item] = stop.json()["items"]
    assert (item["allowed"], item["brokers"], item["unknown"]) == (True, [1, 2, 9], [9])


async def test_a_query_of_the_next_batch_reaches_the_daemon_whole(tmp_path: Path) -> None:
    view = DaemonDouble(plans=[BATCH])
    query: dict[str, Any] = {
        "since": ["1:100", f"2:{LARGEST_EPOCH}"],
        "batchMax": 3,
        "accept": ["no-leader", "offline"],
    }
    async with http_world(tmp_path, view) as client:
        found = await client.get("/v1/restart-next", params=query)
        await client.get("/v1/restart-next")
    accepted = frozenset({StopCause.NO_LEADER, StopCause.OFFLINE})
    assert view.restart_queries == [
        RestartQuery({1: 100, 2: LARGEST_EPOCH}, 3, accepted),
        RestartQuery({}, BATCH_MAX, frozenset()),
    ]
    body = found.json()
    assert (body["kind"], body["items"][0]["state"], body["items"][0]["batch"]) == ("RestartNext", "restart", [1])


@pytest.mark.parametrize(
    ("path", "query", "code", "named"),
    [
        ("can-stop", {}, 400, "broker"),
        ("can-stop", {"broker": -1}, 400, "broker"),
        ("can-stop", {"broker": 0}, 200, ""),
        ("can-stop", {"broker": 2**31 - 1}, 200, ""),
        ("can-stop", {"broker": 2**31}, 400, "broker"),
        ("can-stop", {"broker": [1] * BROKERS_MAX}, 200, ""),
        ("can-stop", {"broker": [1] * (BROKERS_MAX + 1)}, 400, "broker"),
        ("can-stop", {"broker": 1, "accept": list(StopCause)}, 200, ""),
        ("can-stop", {"broker": 1, "accept": "luck"}, 400, "accept"),
        ("can-remove", {"broker": [1] * (BROKERS_MAX + 1)}, 400, "broker"),
        ("restart-next", {"since": "1"}, 400, "since"),
        ("restart-next", {"since": "1:x"}, 400, "since"),
        ("restart-next", {"since": f"{2**31 - 1}:{LARGEST_EPOCH}"}, 200, ""),
        ("restart-next", {"since": "1:" + "9" * 20}, 400, "since"),
        ("restart-next", {"since": [f"{b}:{LARGEST_EPOCH}" for b in range(1000, 1000 + BROKERS_MAX)]}, 200, ""),
        ("restart-next", {"since": ["1:1"] * (BROKERS_MAX + 1)}, 400, "since"),
        ("restart-next", {"batchMax": 0}, 400, "batchMax"),
        ("restart-next", {"batchMax": 1}, 200, ""),
        ("restart-next", {"batchMax": BATCH_MAX}, 200, ""),
        ("restart-next", {"batchMax": BATCH_MAX + 1}, 400, "batchMax"),
    ],
)
async def test_a_query_out_of_bounds_is_refused_by_the_name_of_its_parameter(
    tmp_path: Path, path: str, query: dict[str, Any], code: int, named: str
) -> None:
    async with http_world(tmp_path, DaemonDouble(plans=[BATCH])) as client:
        response = await client.get(f"/v1/{path}", params=query)
    assert response.status_code == code, response.text
    assert named in response.text


@pytest.mark.parametrize("path", ["can-stop?broker=1", "can-remove?broker=1", "restart-next"])
async def test_a_standby_names_the_active_daemon(tmp_path: Path, path: str) -> None:
    async with http_world(tmp_path, DaemonDouble(mode=ShownMode.STANDBY, plans=[BATCH])) as client:
        response = await client.get(f"/v1/{path}")
    assert response.status_code == 503
    assert "1000002" in response.json()["remedy"]
