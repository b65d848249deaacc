"""Strays as an active daemon lists them, and `regent strays`: what counts, what is left out, bounds and exit codes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MethodType
from unittest import mock

import pytest

from brokers.wire.log_dirs import REPLICAS_MAX
from cli.exit_codes import Exit
from controller.http.ports import NotActive, Refused
from controller.http.stray_models import BROKERS_MAX, StrayLog, StrayReport, UnreadBroker
from controller.operator import strays as listing
from controller.operator.strays import BROKER_STRAYS_MAX
from controller.operator.view import View
from metadata_store import paths
from metadata_store.port import ANY_VERSION
from state_machines.decisions.strays import strays
from state_machines.model.replica_logs import LogDirectory, ReplicaLog
from tests.core.cli_kit import items, regent, unwrapped
from tests.core.http_world import DaemonDouble, daemon_in_thread
from tests.core.role_kit import MiniBroker, kafka
from tests.core.view_kit import dies, governed
from tests.polling import eventually

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "move-replicas.md").read_text(encoding="utf-8")
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
        await eventually(lambda: [b.id for b in view.list_brokers() if b.state == "live"] == [1, 2])
        found = await view.strays.listed((1, 2, 3, 9))
        assert ([s.broker for s in found.strays], found.brokers) == ([1], [1])
        absent = "it is not registered: start it"
        assert {one.broker: one.why for one in found.unread} == {2: "no access", 3: absent, 9: absent}


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
            with pytest.raises(Refused, match="another request lists strays"):
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


# -- the command


@pytest.fixture(scope="module")
def surface(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DaemonDouble, Path]]:
    double = DaemonDouble()
    with daemon_in_thread(tmp_path_factory.mktemp("daemon"), double) as socket:
        yield double, socket


@pytest.fixture
def daemon(surface: tuple[DaemonDouble, Path], monkeypatch: pytest.MonkeyPatch) -> DaemonDouble:
    """Resets the double of a daemon, which every command reaches."""
    surface[0].strays.__init__()  # type: ignore[misc]
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
    daemon: DaemonDouble, report: StrayReport, code: Exit, said: list[str]
) -> None:
    daemon.strays.report = report
    result = regent("strays", code=code)
    assert all(sentence in unwrapped(result.stderr) for sentence in said)
    assert ("orders" in result.stdout) == bool(report.strays)
    [body] = items("strays", code=code)
    assert len(body["strays"]) == len(report.strays)


def test_the_commands_of_the_page_name_brokers_or_none(daemon: DaemonDouble) -> None:
    commands = [line.split()[1:] for line in PAGE.splitlines() if line.startswith("regent strays")]
    assert len(commands) == 2
    for words in commands:
        regent(*words)
    assert daemon.strays.seen == [[], [3]]


@pytest.mark.parametrize(("number", "code"), [(BROKERS_MAX, Exit.DONE), (BROKERS_MAX + 1, Exit.USAGE)])
def test_the_brokers_of_a_request_are_bounded(daemon: DaemonDouble, number: int, code: Exit) -> None:
    regent("strays", *range(number), code=code)
    assert len(daemon.strays.seen) == (code is Exit.DONE)
