"""The options of a command reach the daemon, each of them; of several things each one is requested."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from rich.console import Console

from cli import progress
from cli.client import Client
from cli.commands.reassign_plan import _goal
from cli.exit_codes import Exit, Failure
from cli.planning import read_sizes
from cli.session import Session
from state_machines.model.types import Broker
from state_machines.planning import goals
from tests.kit.command import items, regent, unwrapped

Json = dict[str, Any]
ENDED: Json = {"kind": "throttle", "state": "success", "ended": True, "stuck": False, "unusable": ""}


class Daemon:
    """Responds to the client in place of a daemon, and notes requests. ``failed``: pids that were undone."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, Json]] = []
        self.queries: list[Json] = []
        self.failed: set[int] = set()
        self.failure: Failure | None = None

    def item(self, pid: int) -> Json:
        return {"pid": pid, **ENDED} | ({"state": "rolledback"} if pid in self.failed else {})

    def post(self, path: str, body: Json) -> Json:
        self.posted.append((path, body))
        if self.failure is not None:
            raise self.failure
        return {"items": [self.item(pid) for pid in body.get("pids") or [1]]}

    def get(self, path: str, params: Json | None = None) -> Json:
        self.queries.append(dict(params or {}))
        if path == "/v1/reassignments":
            whole = {"origin": [1], "target": [2], "by": "another client"}
            return {"items": [{"topic": name, "partition": 0, **whole} for name in ("a", "b", "c")]}
        if path == "/v1/restart-next":
            return {"items": [{"state": "restart", "batch": [1], "why": "restart broker 1 now", "hindrances": []}]}
        return {"items": [self.item(int(path.rpartition("/")[2]))]}


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    found = Daemon()
    with mock.patch.object(Client, "post", found.post), mock.patch.object(Client, "get", found.get):
        yield found


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("regions", "move", 17, "kv-2", "--force"), {"server": "kv-2", "force": True}),
        (("regions", "move", 17, "kv-2", "--dry-run"), {"force": False, "dryRun": True}),
        (("regions", "assign", 17, "--to", "kv-2"), {"server": "kv-2"}),
        (("servers", "drain", "kv-1", "--force"), {"force": True}),
        (("servers", "drain", "kv-1"), {"force": False}),
        (("elect", "preferred", "--all", "--batch", 200), {"allPartitions": True, "batchMax": 200}),
        (("reassign", "resume", 12, "--throttle", 5), {"paused": False, "rateBytesPerS": 5}),
        (("restart", "begin", "--batch-max", 2, "--accept", "offline"), {"batchMax": 2, "accept": ["offline"]}),
    ],
    ids=lambda words: " ".join(map(str, words)) if isinstance(words, tuple) else "",
)
def test_each_option_reaches_the_daemon(daemon: Daemon, words: tuple[object, ...], wanted: Json) -> None:
    regent(*words)
    [(_, body)] = daemon.posted
    assert {name: body[name] for name in wanted} == wanted


def test_a_restart_that_waits_for_its_batch_sends_the_accepted_causes(daemon: Daemon) -> None:
    regent("restart-next", "--accept", "offline", "--batch-max", 3)
    assert daemon.queries == [{"since": [], "batchMax": 3, "accept": ["offline"]}]


@pytest.mark.parametrize(("failed", "code"), [(set(), Exit.DONE), ({12}, Exit.FAILED), ({14}, Exit.FAILED)])
def test_a_wait_for_lifted_throttles_ends_by_each_of_them(daemon: Daemon, failed: set[int], code: Exit) -> None:
    daemon.failed = failed
    found = items("throttle", "lift", 12, 13, 14, "--wait", code=code)
    assert [one["pid"] for one in found] == [12, 13, 14]


def test_reassignments_of_several_topics_are_listed_and_adopted(daemon: Daemon) -> None:
    given = ("--topic", "a", "--topic", "c")
    assert [one["topic"] for one in items("reassign", "list", *given)] == ["a", "c"]
    regent("reassign", "adopt", *given, "--yes")
    [(_, body)] = daemon.posted
    assert [(move["topic"], move["origin"]) for move in body["moves"]] == [("a", [1]), ("c", [1])]


def test_split_keys_come_from_a_file_or_a_number_of_regions_is_given(daemon: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "keys.txt"
    file.write_text("g\n\nn\n")
    regent("tables", "create", "t", "--splits-file", file, "--regions", 4, code=Exit.USAGE)
    assert not daemon.posted
    regent("tables", "create", "t", "--split", "a", "--splits-file", file)
    [(_, body)] = daemon.posted
    assert body["splits"] == ["a", "g", "n"]


def test_a_goal_holds_for_the_topics_that_are_given() -> None:
    topics = ("a", "b")
    assert _goal(None, [3], None, None, False, topics) == goals.Decommission((3,), topics)
    assert _goal(None, None, [7, 8], None, False, topics) == goals.Add((7, 8), topics)
    assert _goal(None, None, None, 2, False, topics) == goals.ReplicationFactor(topics, 2)
    assert _goal(None, None, None, None, True, topics) == goals.RestoreRacks(topics)


@pytest.mark.parametrize(("code", "again"), [(Exit.UNREACHABLE, True), (Exit.REFUSED, False)])
def test_a_plan_whose_response_was_lost_is_sent_again_by_its_nonce(
    daemon: Daemon, tmp_path: Path, code: Exit, again: bool
) -> None:
    """The daemon may have begun it; one that it refused has not begun."""
    file = tmp_path / "plan.json"
    file.write_text('{"version": 1, "partitions": [{"topic": "a", "partition": 0, "replicas": [1]}]}')
    daemon.failure = Failure(code, "it failed", "the remedy of the daemon")
    said = unwrapped(regent("reassign", "apply", file, "--yes", code=code).stderr)
    [(_, body)] = daemon.posted
    assert (body["nonce"] in said) is again
    assert ("the remedy of the daemon" in said) is not again


OF_KAFKA, OF_REGIONS = ("procedures",), ("regions", "procedures")


def procedure(pid: int, **fields: Any) -> Json:
    """Returns a procedure as a daemon shows it."""
    return {"pid": pid, "kind": "drain", "state": "success", "ended": True, "stuck": False, "unusable": ""} | fields


class ListingDaemon:
    """Responds to the client in place of a daemon. ``refused``: pids whose requests it refuses."""

    def __init__(self) -> None:
        self.posted: list[str] = []
        self.got: list[tuple[str, Json]] = []
        self.refused: set[int] = set()
        self.procedures: dict[int, Json] = {}
        self.pages: list[Json] = []

    def post(self, path: str, body: Json) -> Json:
        self.posted.append(path)
        for pid in self.refused:
            if f"/{pid}/" in path:
                raise Failure(Exit.REFUSED, f"pid {pid}: it has ended")
        named = path.split("/")[-2]
        return {"items": [procedure(int(named) if named.isdecimal() else 1)]}

    def get(self, path: str, params: Json | None = None) -> Json:
        self.got.append((path, dict(params or {})))
        if self.pages:
            return self.pages.pop(0)
        if path.startswith("/v1/regions/servers/"):
            return {"items": [{"name": path.rpartition("/")[2], "incarnation": 5}]}
        return {"items": [self.procedures[int(path.rpartition("/")[2])]]}


@pytest.fixture
def listing_daemon() -> Iterator[ListingDaemon]:
    found = ListingDaemon()
    with mock.patch.object(Client, "post", found.post), mock.patch.object(Client, "get", found.get):
        yield found


@pytest.mark.parametrize("group", [OF_KAFKA, OF_REGIONS], ids=["kafka", "regions"])
@pytest.mark.parametrize("act", ["abort", "bypass", "remove"])
@pytest.mark.parametrize("refused", [{12}, {13}, {14}, {12, 13, 14}])
def test_a_refusal_of_one_keeps_no_other_from_being_requested_and_is_the_end(
    listing_daemon: ListingDaemon, group: tuple[str, ...], act: str, refused: set[int]
) -> None:
    listing_daemon.refused = refused
    result = regent(*group, act, 12, 13, 14, "--yes", "-o", "json", code=Exit.REFUSED)
    assert [path.split("/")[-2] for path in listing_daemon.posted] == ["12", "13", "14"]
    said = unwrapped(result.stderr)
    assert [pid for pid in (12, 13, 14) if f"pid {pid}: it has ended" in said] == sorted(refused)
    shown = [pid for pid in (12, 13, 14) if f'"pid": {pid}' in result.stdout]
    assert shown == sorted({12, 13, 14} - refused)


@pytest.mark.parametrize("group", [OF_KAFKA, OF_REGIONS], ids=["kafka", "regions"])
@pytest.mark.parametrize("failed", [None, 12, 13, 14])
def test_a_wait_ends_by_each_of_several_procedures(
    listing_daemon: ListingDaemon, group: tuple[str, ...], failed: int | None
) -> None:
    listing_daemon.procedures = {
        pid: procedure(pid, state="rolledback" if pid == failed else "success") for pid in (12, 13, 14)
    }
    found = items(*group, "wait", 12, 13, 14, code=Exit.DONE if failed is None else Exit.FAILED)
    assert [one["pid"] for one in found] == [12, 13, 14]


def test_a_wait_for_regions_that_could_not_be_opened_is_no_success(listing_daemon: ListingDaemon) -> None:
    listing_daemon.procedures = {12: procedure(12, unmet="3 regions not open"), 13: procedure(13)}
    listing_daemon.procedures[14] = procedure(14, state="rolledback")
    regent(*OF_REGIONS, "wait", 12, 13, code=Exit.REFUSED)
    regent(*OF_REGIONS, "wait", 12, 14, code=Exit.FAILED)
    listing_daemon.procedures[15] = procedure(15, bypassed=True)
    regent(*OF_KAFKA, "wait", 13, 15, code=Exit.FAILED)
    regent(*OF_REGIONS, "wait", 13)


@pytest.mark.parametrize(
    "words",
    [
        ("procedures", "cancel", 12),
        ("procedures", "abort", 12),
        ("procedures", "bypass", 12),
        ("procedures", "remove", 12),
        ("regions", "procedures", "abort", 12),
        ("regions", "procedures", "bypass", 12),
        ("regions", "procedures", "remove", 12),
        ("regions", "unassign", 17),
        ("tables", "disable", "t"),
        ("tables", "delete", "t"),
        ("servers", "expire", "kv-1"),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_what_takes_something_away_comes_with_a_question(
    listing_daemon: ListingDaemon, words: tuple[object, ...]
) -> None:
    assert "--yes" in regent(*words, code=Exit.USAGE).stderr
    assert not listing_daemon.posted
    regent(*words, "--yes")
    assert len(listing_daemon.posted) == 1


def test_a_filter_holds_for_all_pages(listing_daemon: ListingDaemon) -> None:
    listing_daemon.pages = [{"items": [procedure(pid)], "next": str(pid) if pid < 3 else None} for pid in (1, 2, 3)]
    found = items(*OF_REGIONS, "list", "--kind", "crash", "--live")
    assert [one["pid"] for one in found] == [1, 2, 3]
    assert [params.get("after") for _, params in listing_daemon.got] == [None, "1", "2"]
    assert {(params["kind"], params["live"]) for _, params in listing_daemon.got} == {("crash", True)}


def test_a_page_on_which_nothing_matches_is_not_the_last_one(listing_daemon: ListingDaemon) -> None:
    """The daemon looks at a bounded number of items for a page."""
    listing_daemon.pages = [{"items": [procedure(1)], "next": "1"}, *({"items": [], "next": str(at)} for at in (2, 3))]
    listing_daemon.pages += [{"items": [procedure(4)], "next": "4"}, {"items": []}]
    assert [one["pid"] for one in items(*OF_REGIONS, "list", "--kind", "crash")] == [1, 4]
    assert [params.get("after") for _, params in listing_daemon.got] == [None, "1", "2", "3", "4"]


@pytest.mark.parametrize("group", [OF_KAFKA, OF_REGIONS], ids=["kafka", "regions"])
def test_several_procedures_share_the_time_of_a_wait(
    listing_daemon: ListingDaemon, group: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them runs for 40 seconds more, and the last ones have ended long ago: a look at them takes a second."""
    module = f"cli.commands.{'procedures' if group == OF_KAFKA else 'region_procedures'}"
    now_s, given = [1_000.0], list[float]()

    def takes(_: Session, pid: int, timeout_s: float, **__: object) -> Json:
        given.append(timeout_s)
        now_s[0] += min(40.0, timeout_s)
        return procedure(pid)

    monkeypatch.setattr(f"{module}.awaited", takes)
    monkeypatch.setattr(f"{module}.time", mock.Mock(monotonic=lambda: now_s[0]))
    regent(*group, "wait", 12, 13, 14, 15, 16, "--timeout", 100)
    assert given == [100.0, 60.0, 20.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        ("drain/12\ndrain/13\n", Exit.DONE),
        ("drain/12\ndrain/14\n", Exit.REFUSED),
        ("drain/13\ndrain/12\n", Exit.REFUSED),
        ("drain/12\n", Exit.FAILED),
    ],
)
def test_on_a_terminal_the_name_of_each_procedure_is_typed_before_any_of_them_ends(
    listing_daemon: ListingDaemon, monkeypatch: pytest.MonkeyPatch, typed: str, code: Exit
) -> None:
    monkeypatch.setattr("cli.commands.procedures.on_terminal", lambda: True)
    listing_daemon.procedures = {pid: procedure(pid) for pid in (12, 13)}
    regent("procedures", "bypass", 12, 13, code=code, typed=typed)
    assert len(listing_daemon.posted) == (2 if code is Exit.DONE else 0)


def test_progress_that_stands_still_is_one_line_however_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, said = [1_000.0], list[str]()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    line = progress.ProgressLine(Console(file=io.StringIO()), 7, said.append)
    for text in ("3 of 9", "3 of 9", "3 of 9", "4 of 9", "4 of 9"):
        line.show({"progress": text})
        now_s[0] += 3_600
    assert said == ["pid 7: 3 of 9", "pid 7: 4 of 9"]


async def test_the_largest_replica_is_the_size_of_a_partition_whichever_broker_reports_first() -> None:
    sizes = {1: 5, 2: 900, 3: 0}

    class Queries:
        def __init__(self, broker: Broker) -> None:
            self.broker = broker

        async def replica_logs(self, _: None) -> list[Any]:
            await asyncio.sleep(0)
            log = mock.Mock(topic="t", partition=0, size_bytes=sizes[self.broker.id], is_future=False)
            coming = mock.Mock(topic="t", partition=0, size_bytes=10_000, is_future=True)
            return [mock.Mock(logs=[log, coming])]

    @asynccontextmanager
    async def dial(broker: Broker) -> AsyncIterator[Any]:
        yield Queries(broker)

    for order in ([1, 2, 3], [2, 1, 3], [3, 1, 2]):
        brokers = [mock.Mock(id=one) for one in order]
        assert await read_sizes(dial, brokers, pytest.fail) == {("t", 0): 900}
