"""Clients and Kafka's own tools have the same results under both controllers: docs/evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.embedded.tools import Tools
from tests.verify.clients.accepted import ACCEPTED
from tests.verify.clients.compare import differences, play_all
from tests.verify.stock_tools.accepted import ACCEPTED as TOOLS_ACCEPTED
from tests.verify.stock_tools.compare import differences as tools_differences
from tests.verify.stock_tools.compare import play
from tests.verify.stock_tools.normal import normal
from tests.verify.stock_tools.one_jvm import ToolsInOneJvm, has_compiler, one_jvm
from tests.verify.stock_tools.steps import Line


@pytest.mark.timeout(1_800)
async def test_admin_clients_get_the_same_results_from_both_controllers() -> None:
    played = await play_all(print)
    assert len(played["regent"]) == (5 if has_compiler() else 3)
    found = list(differences(played))
    unexplained = [str(one) for one in found if one.accepted() is None]
    assert not unexplained, "\n".join(unexplained)
    shown = [one.accepted() for one in found]
    stale = [one.why for one in ACCEPTED if one not in shown]
    assert not stale, f"explained, and there is no such difference any more: {stale}"


NOBODY = "127.0.0.1:1"
WITHOUT_A_CLUSTER = (
    Line("kafka-topics --version"),
    Line("kafka-topics --create"),
    Line("kafka-topics --create --topic wrong --replica-assignment 1:1"),
    Line("kafka-leader-election --election-type fair --all-topic-partitions"),
    Line("kafka-features upgrade --feature metadata.version=many"),
    Line("kafka-configs --describe"),
    Line("kafka-acls --add --allow-principal alice --operation Fly --topic orders"),
    Line("kafka-get-offsets --topic orders --partitions x"),
)


@pytest.mark.kafka(
    "ReassignPartitionsCommandTest.testReassignment",
    "ReassignPartitionsCommandTest.testAlterReassignmentThrottle",
    "ReassignPartitionsCommandTest.testThrottledReassignment",
    "ReassignPartitionsCommandTest.testCancellation",
    "LeaderElectionCommandTest.testAllTopicPartition",
    "LeaderElectionCommandTest.testTopicPartition",
    "LeaderElectionCommandTest.testPathToJsonFile",
    "LeaderElectionCommandTest.testPreferredReplicaElection",
    "LeaderElectionCommandTest.testTopicDoesNotExist",
    "LeaderElectionCommandTest.testElectionResultOutput",
    "TopicCommandTest.testCreate*",
    "TopicCommandTest.testAlter*",
    "TopicCommandTest.testDelete*",
    "TopicCommandTest.testDescribe*",
    "TopicCommandTest.testIsNotUnderReplicatedWhenAdding",
)
@pytest.mark.seed("S2-50")
@pytest.mark.timeout(1_100 if has_compiler() else 3_600)
async def test_stock_tools_have_the_same_output_under_both_controllers() -> None:
    played = await play(print)
    found = list(tools_differences(played))
    unexplained = [str(one) for one in found if one.accepted() is None]
    assert not unexplained, "\n".join(unexplained)
    shown = [one.accepted() for one in found]
    stale = [one.why for one in TOOLS_ACCEPTED if one not in shown and not one.sometimes]
    assert not stale, f"explained, and there is no such difference any more: {stale}"


@pytest.mark.skipif(not has_compiler(), reason="it needs a JDK")
async def test_tools_have_the_same_output_in_one_jvm_as_in_their_own(tmp_path: Path) -> None:
    """Each tool runs twice in the shared JVM, to show that nothing of an earlier tool is left."""
    alone = Tools(NOBODY, tmp_path)
    async with one_jvm(tmp_path) as jvm:
        together = ToolsInOneJvm(jvm, NOBODY, tmp_path, timeout_s=60.0)
        for line in WITHOUT_A_CLUSTER:
            said = [await tools.run(line.tool, *line.arguments("")) for tools in (alone, together, together)]
            assert len({one.code for one in said}) == 1, said
            texts = [(normal(one.out, {}, line), normal(one.err, {}, line)) for one in said]
            assert texts[0] == texts[1] == texts[2], line.text
