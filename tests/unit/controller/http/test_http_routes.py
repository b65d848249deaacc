"""Each request over HTTP becomes one call with its path, its query, its body and its caller; nothing is left out."""

from __future__ import annotations

from typing import Any

import pytest

from controller.http.models import OperationRequest
from controller.operator.brokers import BROKERS_MAX
from controller.operator.cordons import CordonRequest
from controller.operator.drains import DrainRequest, ShutdownRequest, UndrainRequest
from controller.operator.elections import ElectionRequest
from controller.operator.partitions import Only, PartitionQuery
from controller.operator.pauses import PauseRequest
from controller.operator.plan_requests import Move, ReassignCommand, ReassignRequest
from controller.operator.restarts import RestartQuery, RestartRequest
from controller.operator.snapshots import SnapshotRequest
from controller.operator.stray_removal import StrayRemovalRequest
from controller.operator.throttle_settings import ClearRequest
from controller.operator.throttles import LiftRequest, ThrottleRequest
from controller.regions.operator.balancer import BalanceRequest
from controller.regions.operator.marks import MarkRemoval, MarkRequest
from controller.regions.operator.namespaces import NamespaceCreation
from controller.regions.operator.procedures import ProcedureQuery
from controller.regions.operator.published import Publication
from controller.regions.operator.region_changes import RegionChange
from controller.regions.operator.regions import RegionQuery
from controller.regions.operator.requests import Change
from controller.regions.operator.servers import ServerChange
from controller.regions.operator.tables import TableCreation
from controller.regions.operator.works import WorkRequest
from state_machines.decisions.hindrances import StopCause
from state_machines.decisions.restarts import BATCH_MAX
from tests.kit.answering import Call
from tests.kit.routes_kit import CALLER, MORE, noting_client

WHY = {"reason": "it is full", "nonce": "n1"}
ASKED = {**WHY, "dry_run": True}
REGION = "/v1/regions"
CAUSE, OTHER = list(StopCause)[:2]

READS: list[tuple[str, str, Call]] = [
    (REGION, "RegionsStatus", ("status",)),
    (f"{REGION}/list", "Region", ("list_regions", RegionQuery(500))),
    (
        f"{REGION}/list?table=t&server=s&state=OPEN&inTransition=true&stranded=true&limit=7&after=5:t",
        "Region",
        ("list_regions", RegionQuery(7, "5:t", "t", "s", "OPEN", True, True)),
    ),
    (f"{REGION}/list?stranded=true", "Region", ("list_regions", RegionQuery(500, stranded=True))),
    (f"{REGION}/transitions?limit=7", "RegionTransition", ("list_transitions", 7)),
    (f"{REGION}/transitions", "RegionTransition", ("list_transitions", 500)),
    (f"{REGION}/3", "Region", ("describe_region", 3)),
    (f"{REGION}/3/explanation", "RegionExplanation", ("explain", 3)),
    (f"{REGION}/tables?limit=7&after=a", "Table", ("list_tables", 7, "a")),
    (f"{REGION}/tables", "Table", ("list_tables", 500, None)),
    (f"{REGION}/tables/ns:t", "Table", ("describe_table", "ns:t")),
    (f"{REGION}/namespaces", "Namespace", ("list_namespaces",)),
    (f"{REGION}/published", "Published", ("list_published",)),
    (f"{REGION}/servers", "RegionServer", ("list_servers",)),
    (f"{REGION}/servers/rack1/s1,5", "RegionServer", ("describe_server", "rack1/s1,5")),
    (f"{REGION}/procedures", "Procedure", ("list_procedures", ProcedureQuery(500))),
    (
        f"{REGION}/procedures?kind=crash&live=true&parts=true&limit=7&after=9",
        "Procedure",
        ("list_procedures", ProcedureQuery(7, 9, "crash", True, True)),
    ),
    (f"{REGION}/procedures?live=true", "Procedure", ("list_procedures", ProcedureQuery(500, live=True))),
    (f"{REGION}/procedures/9", "Procedure", ("one", 9, 0)),
    (f"{REGION}/procedures/9?waitS=1.5", "Procedure", ("one", 9, 1.5)),
    (f"{REGION}/locks", "Lock", ("locks",)),
    (f"{REGION}/marks", "RegionMark", ("listed",)),
    (f"{REGION}/balancer", "BalancerStatus", ("balancer",)),
    (f"{REGION}/balancer/plans/9", "BalanceMove", ("plan", 9)),
]
PAGED = {"list_regions", "list_tables", "list_procedures", "list_topics", "list_partitions"}


@pytest.mark.parametrize(("path", "kind", "call"), READS, ids=[path for path, _, _ in READS])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside Kafka"])
async def test_a_question_about_regions_reaches_its_view_whole(path: str, kind: str, call: Call, beside: bool) -> None:
    async with noting_client(beside=beside) as (client, noted):
        body = (await client.get(path)).raise_for_status().json()
    assert noted == [call]
    assert (body["kind"], len(body["items"]), body.get("next")) == (kind, 1, MORE if call[0] in PAGED else None)


WORK: dict[str, Any] = {"work": "x-compact", "data": "all", "tries": 5, "timeout_ms": 7}
MARK = {"kind": "hold", "subject": "s1", "for_s": 60}
CHANGES: list[tuple[str, dict[str, Any] | None, Call]] = [
    *(
        (f"{REGION}/3/{act}", {**ASKED, "server": "s2", "force": True},
         ("change_region", act, 3, RegionChange(**ASKED, server="s2", force=True), CALLER))
        for act in ("assign", "unassign", "move", "reopen")
    ),
    (f"{REGION}/tables", {**ASKED, "name": "t", "splits": ["a"], "kind": "meta", "options": {"x": "y"}},
     ("create_table", TableCreation(**ASKED, name="t", splits=["a"], kind="meta", options={"x": "y"}), CALLER)),
    (f"{REGION}/tables", {"name": "t", "uniform": 4}, ("create_table", TableCreation(name="t", uniform=4), CALLER)),
    *(
        (f"{REGION}/tables/ns:t/{act}", ASKED, ("change_table", act, "ns:t", Change(**ASKED), CALLER))
        for act in ("enable", "disable", "delete")
    ),
    (f"{REGION}/namespaces", {**ASKED, "name": "ns"},
     ("create_namespace", NamespaceCreation(**ASKED, name="ns"), CALLER)),
    (f"{REGION}/namespaces/ns/delete", ASKED, ("delete_namespace", "ns", Change(**ASKED), CALLER)),
    (f"{REGION}/3/work", {**ASKED, **WORK}, ("work_on_region", 3, WorkRequest(**ASKED, **WORK), CALLER)),
    (f"{REGION}/tables/ns:t/work", {**ASKED, **WORK}, ("work_on_table", "ns:t", WorkRequest(**ASKED, **WORK), CALLER)),
    (f"{REGION}/published", {**ASKED, "name": "acl", "value": "a=rw"},
     ("publish", Publication(**ASKED, name="acl", value="a=rw"), CALLER)),
    (f"{REGION}/published/a/b/remove", ASKED, ("remove", "a/b", Change(**ASKED), CALLER)),
    *(
        (f"{REGION}/servers/rack1/s1,5/{act}", {**ASKED, "force": True},
         ("change_server", act, "rack1/s1,5", ServerChange(**ASKED, force=True), CALLER))
        for act in ("drain", "expire", "forget")
    ),
    (f"{REGION}/balancer/run", {**ASKED, "force": True},
     ("run", BalanceRequest(**ASKED, force=True), CALLER)),
    *((f"{REGION}/balancer/{to}", ASKED, ("switch", to, Change(**ASKED), CALLER)) for to in ("on", "off")),
    (f"{REGION}/upgrade", ASKED, ("upgrade", Change(**ASKED), CALLER)),
    (f"{REGION}/marks", {**ASKED, **MARK}, ("mark", MarkRequest(**ASKED, **MARK), CALLER)),
    (f"{REGION}/marks", {"kind": "pin", "subject": "3", "server": "s1"},
     ("mark", MarkRequest(kind="pin", subject="3", server="s1"), CALLER)),
    (f"{REGION}/marks/remove", {**ASKED, "kind": "pin", "subject": "3"},
     ("unmark", MarkRemoval(**ASKED, kind="pin", subject="3"), CALLER)),
    *(
        (f"{REGION}/procedures/9/{act}", body, ("end", act, 9, CALLER, why))
        for act in ("abort", "bypass", "remove", "leave-out")
        for body, why in (({"reason": "it hangs"}, "it hangs"), (None, ""))
    ),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "call"), CHANGES, ids=[f"{path} {bool(body)}" for path, body, _ in CHANGES])
async def test_a_change_of_regions_reaches_its_view_whole_with_its_caller(
    path: str, body: dict[str, Any] | None, call: Call
) -> None:
    async with noting_client() as (client, noted):
        response = await client.post(path, json=in_json(body))
        assert (response.status_code, response.json().get("kind")) == (200, "Procedure"), response.text
        other = await client.post(path + "x", json=in_json(body))
    assert noted == [call]
    assert other.status_code in (400, 404, 405), "an act that does not exist"


def in_json(body: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns the body of a request with its names as they are in JSON."""
    if body is None:
        return None
    heads = ((name.split("_"), value) for name, value in body.items())
    return {first + "".join(part.title() for part in rest): value for (first, *rest), value in heads}


OF_KAFKA: list[tuple[str, str, dict[str, Any] | None, str, Call]] = [
    ("GET", "/v1/topics?limit=7&after=a", None, "Topic", ("list_topics", 7, "a")),
    ("GET", "/v1/partitions?topic=t&only=offline&broker=3&limit=7&after=a", None, "Partition",
     ("list_partitions", PartitionQuery("t", frozenset({Only.OFFLINE}), 7, "a", 3))),
    ("GET", f"/v1/can-stop?broker=1&broker=2&accept={CAUSE.value}&accept={OTHER.value}", None, "CanStop",
     ("can_stop", frozenset({1, 2}), frozenset({CAUSE, OTHER}))),
    ("GET", "/v1/can-remove?broker=1&broker=2", None, "CanRemove", ("can_remove", frozenset({1, 2}))),
    ("GET", f"/v1/restart-next?since=1:7&since=2:8&batchMax=3&accept={CAUSE.value}&accept={OTHER.value}", None,
     "RestartNext", ("next", RestartQuery({1: 7, 2: 8}, 3, frozenset({CAUSE, OTHER})))),
    ("GET", "/v1/procedures?topic=t&broker=3", None, "Procedure", ("list_all", "t", 3)),
    ("GET", "/v1/procedures", None, "Procedure", ("list_all", None, None)),
    ("GET", "/v1/procedures/9?waitS=1.5", None, "Procedure", ("one", 9, 1.5)),
    ("GET", "/v1/procedures/9/moves", None, "Move", ("moves", 9)),
    ("GET", "/v1/locks", None, "Lock", ("locks",)),
    ("GET", "/v1/reassignments", None, "Reassignment", ("reassignments",)),
    ("GET", "/v1/cordons", None, "CordonedBroker", ("listed",)),
    ("GET", "/v1/throttles", None, "Throttle", ("listed",)),
    ("GET", "/v1/pause", None, "PauseItem", ("shown",)),
    ("GET", "/v1/snapshots", None, "Snapshot", ("listed",)),
    ("GET", "/v1/snapshots/4", None, "Snapshot", ("described", 4)),
    ("GET", "/v1/role/history", None, "RoleChangeItem", ("changes",)),
    ("GET", "/v1/strays?broker=1&broker=2", None, "StrayReport", ("listed", [1, 2])),
    ("GET", "/v1/strays", None, "StrayReport", ("listed", ())),
    ("POST", "/v1/role/takeover", {"reason": "w", "dry_run": True}, "Operation",
     ("takeover", OperationRequest(reason="w", dry_run=True), CALLER)),
    ("POST", "/v1/role/handback", {"reason": "w", "dry_run": True}, "Operation",
     ("handback", OperationRequest(reason="w", dry_run=True), CALLER)),
    ("POST", "/v1/cordons", {"brokers": [1, 2], "reason": "w"}, "CordonedBroker",
     ("cordon", CordonRequest(brokers=[1, 2], reason="w"), CALLER)),
    ("POST", "/v1/cordons/remove", {"brokers": [1, 2]}, "CordonedBroker", ("uncordon", [1, 2])),
    ("POST", "/v1/reassignments", {"moves": [{"topic": "t", "partition": 0, "target": [1]}], **ASKED}, "Procedure",
     ("apply", ReassignRequest(moves=[Move(topic="t", partition=0, target=(1,))], **ASKED), CALLER)),
    ("POST", "/v1/reassignments/9", {"moves_max": 7, "stop": True, "reason": "w"}, "Procedure",
     ("command", 9, ReassignCommand(moves_max=7, stop=True, reason="w"), CALLER)),
    *(
        ("POST", f"/v1/procedures/9/{act}", body, "Procedure", (act, 9, CALLER, why))
        for act in ("abort", "cancel", "bypass", "remove")
        for body, why in (({"reason": "it hangs"}, "it hangs"), (None, ""))
    ),
    ("POST", "/v1/drains", {"brokers": [1, 2], "replicas": True, "rate_bytes_per_s": 7, **WHY}, "Procedure",
     ("drain", DrainRequest(brokers=[1, 2], replicas=True, rate_bytes_per_s=7, **WHY), CALLER)),
    ("POST", "/v1/drains/remove", {"brokers": [1, 2]}, "CordonedBroker", ("undrain", UndrainRequest(brokers=[1, 2]))),
    ("POST", "/v1/shutdowns", {"broker": 2}, "Shutdown", ("shutdown", ShutdownRequest(broker=2))),
    ("POST", "/v1/throttles", {"brokers": [1], "rate_bytes_per_s": 7, "topics": ["t"], **WHY}, "Procedure",
     ("set_rates", ThrottleRequest(brokers=[1], rate_bytes_per_s=7, topics=["t"], **WHY), CALLER)),
    ("POST", "/v1/throttles/lift", {"pids": [7, 8], "reason": "w"}, "Procedure",
     ("lift", LiftRequest(pids=[7, 8], reason="w"), CALLER)),
    ("POST", "/v1/throttles/clear", {"brokers": [1], "topics": ["t"], "dry_run": True, "reason": "w"},
     "ThrottleSetting", ("clear", ClearRequest(brokers=[1], topics=["t"], dry_run=True, reason="w"), CALLER)),
    ("POST", "/v1/elections", {"all_partitions": True, "batch_max": 7, **ASKED}, "Procedure",
     ("elect", ElectionRequest(all_partitions=True, batch_max=7, **ASKED), CALLER)),
    ("POST", "/v1/restarts", {"brokers": [1, 2], "batch_max": 1, "accept": [CAUSE.value], **WHY}, "Procedure",
     ("begin", RestartRequest(brokers=[1, 2], batch_max=1, accept=[CAUSE], **WHY), CALLER)),
    ("POST", "/v1/pause", {"for_s": 60, "reason": "w"}, "PauseItem",
     ("pause", PauseRequest(for_s=60, reason="w"), CALLER)),
    ("POST", "/v1/snapshots", {"reason": "w"}, "Snapshot", ("requested", SnapshotRequest(reason="w"), CALLER)),
    ("POST", "/v1/pause/remove", None, "PauseItem", ("resume",)),
    ("POST", "/v1/strays/remove", {"brokers": [1, 2], "topic": "t", "dry_run": True, "reason": "w"}, "StrayRemoval",
     ("removed", StrayRemovalRequest(brokers=[1, 2], topic="t", dry_run=True, reason="w"), CALLER)),
]  # fmt: skip
OF_MODEL = {"Topic", "Partition"}
"""Kinds that are read from the model, which may be old."""


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "call"), OF_KAFKA, ids=[f"{one[0]} {one[1]} {bool(one[2])}" for one in OF_KAFKA]
)
async def test_a_request_about_the_cluster_reaches_its_view_whole_with_its_caller(
    method: str, path: str, body: dict[str, Any] | None, kind: str, call: Call
) -> None:
    async with noting_client(beside=True) as (client, noted):
        response = await client.request(method, path, json=in_json(body))
    assert response.status_code == 200, response.text
    found = response.json()
    assert noted == [call]
    assert (found["kind"], len(found["items"])) == (kind, 1)
    assert (found.get("next"), found.get("stale")) == ((MORE, "old") if kind in OF_MODEL else (None, None))


BOUNDS: list[tuple[str, str, Any, Any]] = [
    ("GET", f"{REGION}/list?limit=%s", 1, 0),
    ("GET", f"{REGION}/list?limit=%s", 5_000, 5_001),
    ("GET", f"{REGION}/list?after=%s", "1" * 300, "1" * 301),
    ("GET", f"{REGION}/list?table=%s", "t" * 300, "t" * 301),
    ("GET", f"{REGION}/list?server=%s", "s" * 300, "s" * 301),
    ("GET", f"{REGION}/list?state=%s", "s" * 300, "s" * 301),
    ("GET", f"{REGION}/transitions?limit=%s", 5_000, 5_001),
    ("GET", f"{REGION}/tables?limit=%s", 5_000, 5_001),
    ("GET", f"{REGION}/tables?after=%s", "t" * 300, "t" * 301),
    ("GET", f"{REGION}/procedures?limit=%s", 5_000, 5_001),
    ("GET", f"{REGION}/procedures?after=%s", 0, -1),
    ("GET", f"{REGION}/procedures?kind=%s", "k" * 300, "k" * 301),
    ("GET", f"{REGION}/procedures/9?waitS=%s", 60, 60.1),
    ("GET", f"{REGION}/procedures/9?waitS=%s", 0, -1),
    ("POST", f"{REGION}/3/move", {"server": "s" * 200}, {"server": "s" * 201}),
    ("POST", f"{REGION}/3/move", {"reason": "r" * 1_000}, {"reason": "r" * 1_001}),
    ("POST", f"{REGION}/3/move", {"nonce": "n" * 1_000}, {"nonce": "n" * 1_001}),
    ("POST", f"{REGION}/3/move", {"server": "s"}, {"server": "s\n"}),
    *(
        ("POST", f"{REGION}/{act}", {"regions": good}, {"regions": bad})
        for act in ("assign", "unassign")
        for good, bad in (([1], []), ([1] * 10_000, [1] * 10_001), ([1], [0]), ([2**63 - 1], [2**63]), ([2], ["x"]))
    ),
    ("POST", f"{REGION}/tables", {"name": "t" * 200}, {"name": "t" * 201}),
    ("POST", f"{REGION}/tables", {"name": "t"}, {"name": ""}),
    ("POST", f"{REGION}/tables", {"name": "t", "splits": ["k"] * 10_000}, {"name": "t", "splits": ["k"] * 10_001}),
    ("POST", f"{REGION}/tables", {"name": "t", "splits": ["k" * 4_096]}, {"name": "t", "splits": ["k" * 4_097]}),
    ("POST", f"{REGION}/tables", {"name": "t", "uniform": 1_000_000}, {"name": "t", "uniform": 1_000_001}),
    ("POST", f"{REGION}/tables", {"name": "t", "uniform": 0}, {"name": "t", "uniform": -1}),
    ("POST", f"{REGION}/tables", {"name": "t", "options": {"o": "v" * 1_000}},
     {"name": "t", "options": {"o": "v" * 1_001}}),
    ("POST", f"{REGION}/tables", {"name": "t", "options": {str(n): "" for n in range(100)}},
     {"name": "t", "options": {str(n): "" for n in range(101)}}),
    ("POST", f"{REGION}/marks", {"kind": "hold", "subject": "s", "forS": 3_600},
     {"kind": "hold", "subject": "s", "forS": 3_601}),
    ("POST", f"{REGION}/marks", {"kind": "cordon", "subject": "s"}, {"kind": "other", "subject": "s"}),
    ("POST", f"{REGION}/procedures/9/abort", {"reason": "r" * 500}, {"reason": "r" * 501}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "fits", "beyond"), BOUNDS, ids=[f"{path} {str(beyond)[:30]}" for _, path, _, beyond in BOUNDS]
)
async def test_a_request_beyond_a_bound_reaches_no_view(method: str, path: str, fits: Any, beyond: Any) -> None:
    async with noting_client() as (client, noted):
        codes = []
        for value in (fits, beyond):
            url, body = (path % value, None) if method == "GET" else (path, value)
            codes.append((await client.request(method, url, json=body)).status_code)
    assert (codes, len(noted)) == ([200, 400], 1)


LARGEST_EPOCH = 2**63 - 1


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
async def test_a_query_about_brokers_out_of_bounds_is_refused_by_the_name_of_its_parameter(
    path: str, query: dict[str, Any], code: int, named: str
) -> None:
    async with noting_client(beside=True) as (client, noted):
        response = await client.get(f"/v1/{path}", params=query)
    assert (response.status_code, len(noted)) == (code, int(code == 200)), response.text
    assert named in response.text
