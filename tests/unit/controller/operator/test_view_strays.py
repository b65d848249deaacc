"""Strays as an active daemon lists them, and `regent strays`: what counts, what is left out, bounds and exit codes."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MethodType
from typing import Any
from unittest import mock

import pytest
from kio.schema.errors import ErrorCode

from brokers.wire.log_dirs import REPLICAS_MAX
from cli.exit_codes import Exit
from controller.http.documents import NotActive, ViewRefused
from controller.operator import stray_removal
from controller.operator import strays as listing
from controller.operator.brokers import BROKERS_MAX
from controller.operator.stray_removal import (
    FUTURE,
    NO_RESPONSE,
    OFFLINE,
    Outcome,
    StrayOutcome,
    StrayRemoval,
    StrayRemovalRequest,
)
from controller.operator.strays import (
    BROKER_STRAYS_MAX,
    RememberedReplica,
    StrayLog,
    StrayReport,
    StrayView,
    UnreadBroker,
)
from controller.operator.view import View
from metadata_store import paths
from metadata_store.nodes.stray_nodes import Found, Remembered, StrayKey
from metadata_store.port import ANY_VERSION
from state_machines.decisions.strays import NAMED, strays
from state_machines.model.types import Assignment, LogDirectory, ReplicaLog
from tests.kit.answering import Answering, daemon_in_thread
from tests.kit.command import items, regent, unwrapped
from tests.kit.deadlines import eventually
from tests.kit.kafka.brokers import STOP_REPLICA
from tests.kit.kafka.role import MiniBroker, kafka
from tests.kit.view_kit import dies, governed

PAGE = (Path(__file__).parents[4] / "docs" / "how-to" / "move-replicas.md").read_text(encoding="utf-8")
STRAY = StrayLog(broker=3, topic="orders", partition=4, directory="/data", size_bytes=17, reason="nothing names it")


def log(topic: str, partition: int = 0, *, is_future: bool = False) -> ReplicaLog:
    return ReplicaLog(topic, partition, 7, 0, is_future)


# -- the active daemon; payments-0 is on brokers 3 and 1, orders on all


async def test_logs_that_no_assignment_names_are_listed_by_broker_with_the_reason(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        for broker in (1, 2, 3):
            cluster.brokers[broker].logs = [log("orders"), log("orders", 1), log("payments")]
        cluster.brokers[3].logs += [log("gone", 5), log("payments", 1, is_future=True)]
        found = await view.strays.listed(())
        assert (found.brokers, found.unread, found.cut) == ([1, 2, 3], [], [])
        named = [(s.broker, s.topic, s.partition, s.directory, s.size_bytes, s.is_future) for s in found.strays]
        assert named == [
            (2, "payments", 0, "/data", 7, False),
            (3, "gone", 5, "/data", 7, False),
            (3, "payments", 1, "/data", 7, True),
        ]
        assert [s.reason for s in found.strays[:2]] == [
            "the partition's assignment does not name the broker",
            "no topic has this name",
        ]
        assert [s.broker for s in (await view.strays.listed((3,))).strays] == [3, 3]
        assert (await view.strays.listed((1,))).strays == []


async def test_a_broker_without_suspects_is_asked_once_and_one_with_some_twice(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        cluster.brokers[1].logs = [log("orders")]
        cluster.brokers[2].logs = [log("payments")]
        await view.strays.listed(())
        assert [cluster.brokers[b].reports for b in (1, 2, 3)] == [1, 2, 1]


async def test_a_log_that_is_gone_in_the_second_report_is_no_stray(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        broker = cluster.brokers[2]
        broker.logs = [log("payments"), log("gone")]

        async def answered(
            self: MiniBroker, partitions: Mapping[str, Collection[int]] | None, replicas_max: int = REPLICAS_MAX
        ) -> tuple[LogDirectory, ...]:
            found = await MiniBroker.replica_logs(self, partitions, replicas_max)
            self.logs = [log("gone")]
            return found

        with mock.patch.object(broker, "replica_logs", MethodType(answered, broker)):
            assert [s.topic for s in (await view.strays.listed((2,))).strays] == ["gone"]


async def test_a_log_of_a_topic_that_the_daemon_cannot_read_is_no_stray(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        cluster.brokers[2].logs = [log("strange")]
        await cluster.operator.create(paths.topic("strange"), b"{")
        assert (await view.strays.listed((2,))).strays == []
        await cluster.operator.delete(paths.topic("strange"), ANY_VERSION)
        assert [s.topic for s in (await view.strays.listed((2,))).strays] == ["strange"]


async def test_brokers_without_a_report_are_named_with_the_cause_and_the_others_are_read(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        cluster.brokers[1].logs = [log("gone")]
        cluster.brokers[2].dirs_refused = "no access"
        await dies(cluster, 3)
        await eventually(lambda: [b.id for b in view.brokers.listed() if b.state == "live"] == [1, 2])
        found = await view.strays.listed((1, 2, 3, 9))
        assert ([s.broker for s in found.strays], found.brokers) == ([1], [1])
        absent = "it is not registered: start it"
        assert {one.broker: one.why for one in found.unread} == {2: "no access", 3: absent, 9: absent}
        found = await view.strays.listed(())
        assert {one.broker: one.why for one in found.unread} == {2: "no access", 3: absent}, "assignments name broker 3"


@pytest.mark.parametrize("more", [0, 1])
async def test_a_broker_lists_its_first_strays_and_is_named_where_it_has_more(tmp_path: Path, more: int) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        cluster.brokers[2].logs = [log("gone", number) for number in range(BROKER_STRAYS_MAX + more)]
        found = await view.strays.listed(())
        assert (len(found.strays), found.cut) == (BROKER_STRAYS_MAX, [2] * more)


async def test_logs_are_judged_in_turns(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        cluster.brokers[2].logs = [log("gone", number) for number in range(5)]
        with (
            mock.patch.object(listing, "TURN_LOGS", 2),
            mock.patch("controller.operator.strays.strays", wraps=strays) as judge,
        ):
            assert len((await view.strays.listed((2,))).strays) == 5
        assert judge.call_count == 6, "three slices of two reports"


async def test_a_report_that_comes_too_late_is_named(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, _, view):
        with mock.patch.object(listing, "REPORTS_S_MAX", 0.0):
            found = await view.strays.listed((1, 2))
        assert [one.broker for one in found.unread] == [1, 2]
        assert "name fewer brokers" in found.unread[0].why


async def test_a_second_request_meanwhile_is_refused(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        asked, may_answer = asyncio.Event(), asyncio.Event()

        async def waits(_partitions: object, replicas_max: int = REPLICAS_MAX) -> tuple[LogDirectory, ...]:
            asked.set()
            await may_answer.wait()
            return ()

        with mock.patch.object(cluster.brokers[1], "replica_logs", waits):
            first = asyncio.create_task(view.strays.listed((1,)))
            await asked.wait()
            with pytest.raises(ViewRefused, match="another request lists strays"):
                await view.strays.listed((2,))
            may_answer.set()
            assert (await first).strays == []
        assert (await view.strays.listed((2,))).brokers == [2]


async def test_a_model_that_may_be_old_names_no_stray(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, daemon, view):
        cluster.brokers[2].logs = [log("gone")]
        term = daemon.term
        assert term is not None
        with (
            mock.patch.object(term.gate, "open", return_value=False),
            pytest.raises(NotActive, match="its model may be old"),
        ):
            await view.strays.listed((2,))


async def test_a_standby_names_the_active_daemon(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        with pytest.raises(NotActive, match="this daemon is"):
            await View(daemon, cluster.dial, cluster.release_of).strays.listed(())


# -- removals


def remove(*brokers: int, **fields: Any) -> StrayRemovalRequest:
    return StrayRemovalRequest(brokers=list(brokers), **fields)


def outcomes(found: StrayRemoval) -> list[tuple[int, str, int, str]]:
    return [(one.broker, one.topic, one.partition, one.outcome) for one in found.strays]


def stopped(broker: MiniBroker) -> list[tuple[str, int]]:
    """Returns the partitions that StopReplica named to a broker."""
    return [name for request in broker.of(STOP_REPLICA) for name in request.partitions()]


async def test_strays_are_removed_by_name_and_each_is_reported(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        cluster.brokers[2].logs = [log("orders"), log("payments"), log("gone", 5)]
        cluster.brokers[3].logs = [log("gone")]
        found = await view.stray_removal.removed(remove(reason="left by a move"), "an operator")
        assert outcomes(found) == [(2, "payments", 0, "removed"), (2, "gone", 5, "removed"), (3, "gone", 0, "removed")]
        assert [sorted(stopped(cluster.brokers[b])) for b in (1, 2, 3)] == [
            [],
            [("gone", 5), ("payments", 0)],
            [("gone", 0)],
        ]


async def test_a_dry_run_and_other_topics_send_nothing(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        cluster.brokers[2].logs = [log("payments"), log("gone", 5)]
        planned = await view.stray_removal.removed(remove(dry_run=True), "x")
        assert outcomes(planned) == [(2, "payments", 0, "planned"), (2, "gone", 5, "planned")]
        assert stopped(cluster.brokers[2]) == []
        found = await view.stray_removal.removed(remove(2, topic="gone"), "x")
        assert outcomes(found) == [(2, "gone", 5, "removed")]
        assert stopped(cluster.brokers[2]) == [("gone", 5)]


async def test_future_logs_and_offline_directories_are_kept_with_the_reason(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        cluster.brokers[2].logs = [log("gone"), log("gone", is_future=True), log("gone", 1)]
        cluster.brokers[3].logs = [log("gone", 2)]
        cluster.brokers[3].dirs = {"/data": 56}
        found = await view.stray_removal.removed(remove(), "x")
        assert outcomes(found) == [
            (2, "gone", 0, "kept"),
            (2, "gone", 0, "kept"),
            (2, "gone", 1, "removed"),
            (3, "gone", 2, "kept"),
        ]
        assert {one.why for one in found.strays} == {FUTURE, OFFLINE, ""}
        assert (stopped(cluster.brokers[2]), stopped(cluster.brokers[3])) == ([("gone", 1)], [])


async def test_a_stray_that_is_assigned_after_the_report_is_kept(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, daemon, view):
        cluster.brokers[2].logs = [log("payments")]
        listed = StrayView.listed

        async def then_assigned(self: StrayView, brokers: Collection[int]) -> StrayReport:
            found = await listed(self, list(brokers))
            assert daemon.term is not None
            daemon.term.cluster.observe_assignments("payments", 1, {0: Assignment((3, 2))})
            return found

        with mock.patch.object(StrayView, "listed", then_assigned):
            found = await view.stray_removal.removed(remove(2), "x")
        assert [(one.outcome, one.why) for one in found.strays] == [("kept", NAMED.why)]
        assert stopped(cluster.brokers[2]) == []


async def test_a_broker_that_refuses_keeps_its_log_and_one_that_is_silent_is_named(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, daemon, view):
        cluster.brokers[2].logs = [log("gone")]
        respond = cluster.brokers[2].respond
        cluster.brokers[2].respond = lambda api, entity: (
            {"error_code": ErrorCode.stale_broker_epoch} if api == STOP_REPLICA else respond(api, entity)
        )
        [found] = (await view.stray_removal.removed(remove(2), "x")).strays
        assert (found.outcome, found.why) == ("kept", "the broker refused with STALE_BROKER_EPOCH (77)")
        cluster.brokers[2].respond = respond
        cluster.brokers[2].mute = True
        with mock.patch.object(stray_removal, "RESPONSE_S_MAX", 0.2):
            [found] = (await view.stray_removal.removed(remove(2), "x")).strays
        assert (found.outcome, found.why) == ("no response", NO_RESPONSE)
        assert daemon.term is not None
        assert daemon.term.controller.strays.removals == []


async def test_remembered_replicas_are_listed_with_their_brokers_state(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, daemon, view):
        assert daemon.term is not None
        content = Remembered({4: 1_000, 2: 2_000})
        entries = {StrayKey(9, "orders"): Found(content, 0), StrayKey(2, "orders"): Found(content, 0)}
        daemon.term.controller.strays.entries = entries
        found = await view.strays.listed(())
        assert [(one.broker, one.partition, one.registered) for one in found.remembered] == [
            (2, 2, True),
            (2, 4, True),
            (9, 2, False),
            (9, 4, False),
        ]
        assert found.remembered_total == 4
        assert (view.gauges().remembered_replicas, view.gauges().unstopped_replicas) == (4, 2)
        assert view.whole.status().remembered_replicas == 4
        daemon.term.controller.strays.entries = {}
        assert view.whole.status().remembered_replicas is None
        daemon.term.controller.strays.entries = entries
        assert [one.broker for one in (await view.strays.listed((2,))).remembered] == [2, 2]


# -- the command


@pytest.fixture(scope="module")
def surface(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Answering, Path]]:
    double = Answering()
    with daemon_in_thread(tmp_path_factory.mktemp("daemon"), double) as socket:
        yield double, socket


@pytest.fixture
def daemon(surface: tuple[Answering, Path], monkeypatch: pytest.MonkeyPatch) -> Answering:
    """Resets the double of a daemon, which every command reaches."""
    surface[0].reset()
    monkeypatch.setenv("REGENT_SERVER", str(surface[1]))
    return surface[0]


UNREAD = UnreadBroker(broker=2, why="it is not registered: start it")


@pytest.mark.parametrize(
    ("report", "code", "said"),
    [
        (StrayReport(brokers=[1, 2]), Exit.DONE, ["no strays on brokers 1,2"]),
        (StrayReport(brokers=[3], strays=[STRAY, STRAY]), Exit.REFUSED, ["2 strays on brokers 3, 34 bytes"]),
        (
            StrayReport(brokers=[1], unread=[UNREAD]),
            Exit.FAILED,
            ["logs of broker 2 are not known: it is not", "no strays"],
        ),
        (StrayReport(brokers=[3], strays=[STRAY], unread=[UNREAD]), Exit.FAILED, ["broker 2", "1 strays on"]),
        (
            StrayReport(brokers=[3], strays=[STRAY], cut=[3]),
            Exit.REFUSED,
            ["brokers 3 have more strays than are listed"],
        ),
    ],
)
def test_the_exit_code_and_the_sentences_say_what_was_found(
    daemon: Answering, report: StrayReport, code: Exit, said: list[str]
) -> None:
    daemon.answers["strays.listed"] = report
    result = regent("strays", code=code)
    assert all(sentence in unwrapped(result.stderr) for sentence in said)
    assert ("orders" in result.stdout) == bool(report.strays)
    [body] = items("strays", code=code)
    assert len(body["strays"]) == len(report.strays)


REMEMBERED = [
    RememberedReplica(broker=3, topic="orders", partition=p, since=datetime(2026, 1, 2, tzinfo=UTC), registered=False)
    for p in (1, 4)
]


def test_remembered_replicas_are_one_line_for_each_broker_and_topic(daemon: Answering) -> None:
    daemon.answers["strays.listed"] = StrayReport(brokers=[1], remembered=REMEMBERED, remembered_total=7)
    said = unwrapped(regent("strays").stderr)
    assert "remembered: broker 3, orders 1,4, since 2026-01-02T00:00:00Z: stopped once the broker is back" in said
    assert "7 removed replicas are remembered in all" in said


def outcome(kind: Outcome, why: str = "") -> StrayOutcome:
    return StrayOutcome(outcome=kind, broker=3, topic="orders", partition=4, directory="/data", size_bytes=17, why=why)


@pytest.mark.parametrize(
    ("removal", "code", "said"),
    [
        ({"strays": []}, Exit.DONE, "there is no stray to remove"),
        ({"strays": [outcome("removed"), outcome("removed")]}, Exit.DONE, "2 removed"),
        ({"strays": [outcome("removed"), outcome("kept", "it moves")]}, Exit.REFUSED, "1 removed, 1 kept"),
        ({"strays": [outcome("no response"), outcome("kept")]}, Exit.FAILED, "1 no response, 1 kept"),
        ({"strays": [outcome("removed")], "unread": [UNREAD]}, Exit.FAILED, "logs of broker 2 are not known"),
        ({"strays": [outcome("removed")], "cut": [3]}, Exit.REFUSED, "brokers 3 have more strays"),
    ],
)
def test_a_removal_reports_each_stray_and_has_the_exit_code_of_the_worst(
    daemon: Answering, removal: dict[str, Any], code: Exit, said: str
) -> None:
    daemon.answers["stray_removal.removed"] = StrayRemoval(dry_run=False, brokers=[3], **removal)
    result = regent("strays", "--remove", 3, "--topic", "orders", "--yes", "--reason", "a test", code=code)
    assert said in unwrapped(result.stderr)
    assert result.stdout.count("/data") == len(removal["strays"])
    [request] = daemon.noted("stray_removal.removed")
    assert request == StrayRemovalRequest(brokers=[3], topic="orders", reason="a test")
    [body] = items("strays", "--remove", "--yes", code=code)
    assert len(body["strays"]) == len(removal["strays"])


def test_a_dry_run_needs_no_question_and_a_removal_without_terminal_needs_yes(daemon: Answering) -> None:
    regent("strays", "--remove", "--dry-run")
    assert [request.dry_run for request in daemon.noted("stray_removal.removed")] == [True]
    result = regent("strays", "--remove", code=Exit.USAGE)
    assert "--yes" in result.stderr
    assert all(request.dry_run for request in daemon.noted("stray_removal.removed"))


@pytest.mark.parametrize("option", [("--topic", "t"), ("--dry-run",), ("--yes",), ("--reason", "x")])
def test_options_of_a_removal_need_it(daemon: Answering, option: tuple[str, ...]) -> None:
    assert "add --remove" in regent("strays", *option, code=Exit.USAGE).stderr
    assert daemon.calls == []


def test_the_commands_of_the_page_name_brokers_or_none(daemon: Answering) -> None:
    commands = [shlex.split(line)[1:] for line in PAGE.splitlines() if line.startswith("regent strays")]
    assert len(commands) == 4
    for words in commands:
        regent(*words)
    assert daemon.noted("strays.listed") == [(), [3]]
    assert [(one.brokers, one.topic, one.dry_run) for one in daemon.noted("stray_removal.removed")] == [
        ([3], "orders", True),
        ([], "", False),
    ]


@pytest.mark.parametrize(("number", "code"), [(BROKERS_MAX, Exit.DONE), (BROKERS_MAX + 1, Exit.USAGE)])
def test_the_brokers_of_a_request_are_bounded(daemon: Answering, number: int, code: Exit) -> None:
    regent("strays", *range(number), code=code)
    assert len(daemon.noted("strays.listed")) == (code is Exit.DONE)
