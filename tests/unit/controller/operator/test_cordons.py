"""Cordoned brokers: no replica is placed on them, over failovers; marks by operators, marks that cannot be read."""

from __future__ import annotations

import pytest

from cli.exit_codes import Exit
from controller.http.documents import NotActive, ViewRefused
from controller.kafka.brokers.marks import ROUNDS_MAX
from controller.operator.cordons import CordonRequest, CordonView
from metadata_store.codecs.base import MalformedNode
from metadata_store.nodes.cordon_node import BROKERS_MAX, PATH, Cordon, Cordons, read_cordons
from state_machines.admin_rules.create_partitions import WantedGrowth, judge_growth
from state_machines.admin_rules.create_topics import NewTopic, TopicContext, TopicRefusal, WantedTopic, judge_topic
from state_machines.admin_rules.topic_configs import TakenNames
from state_machines.decisions.plan_checks import faults
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan
from state_machines.model.types import Assignment, TopicAssignment
from tests.kit.answering import Answering, daemon_in_thread
from tests.kit.command import items, regent
from tests.kit.kafka.model import P, make_cluster
from tests.kit.kafka.world import KafkaWorld, in_world

BROKERS: dict[int, str | None] = {1: None, 2: None, 3: None, 4: None}


# -- placement


def placed(factor: int, *cordoned: int, partitions: int = 12) -> set[int] | TopicRefusal:
    context = TopicContext(BROKERS, (), TakenNames([]), cordoned=frozenset(cordoned))
    found = judge_topic(context, WantedTopic("t", partitions, factor), 5, 3)
    if isinstance(found, TopicRefusal):
        return found
    assert isinstance(found, NewTopic)
    return {broker for assignment in found.partitions.values() for broker in assignment.replicas}


@pytest.mark.parametrize("cordoned", [(), (1,), (2, 4), (9,)])
def test_a_new_topic_has_replicas_on_all_brokers_but_cordoned_ones(cordoned: tuple[int, ...]) -> None:
    assert placed(2, *cordoned) == set(BROKERS) - set(cordoned)


def test_a_factor_above_the_brokers_that_are_left_is_refused_and_the_cordons_are_named() -> None:
    assert placed(3, 1) == {2, 3, 4}
    refused = placed(4, 1)
    assert isinstance(refused, TopicRefusal)
    assert "larger than available brokers: 3. 1 more are cordoned" in str(refused.why)


def test_given_assignments_may_name_cordoned_brokers() -> None:
    context = TopicContext(BROKERS, (), TakenNames([]), cordoned=frozenset({1}))
    assert isinstance(judge_topic(context, WantedTopic("t", assignments=((0, (1, 2)),)), 0, 0), NewTopic)


def test_new_partitions_avoid_cordoned_brokers() -> None:
    topic = TopicAssignment("t", None, {0: Assignment((1, 2))}, 0, 0)
    found = judge_growth(
        WantedGrowth("t", 9, None), topic, brokers=BROKERS, marked=False, spare=100, cordoned=frozenset({1, 3})
    )
    assert not isinstance(found, TopicRefusal)
    assert {broker for assignment in found.values() for broker in assignment.replicas} == {2, 4}
    refused = judge_growth(
        WantedGrowth("t", 9, None), topic, brokers=BROKERS, marked=False, spare=100, cordoned=frozenset({1, 3, 4})
    )
    assert isinstance(refused, TopicRefusal)


def test_a_plan_that_adds_a_replica_on_a_cordoned_broker_does_not_match_and_one_that_keeps_it_does() -> None:
    cluster = make_cluster(P((1, 2), 1), brokers=(1, 2, 3, 4))
    [why] = faults(ReassignPlan((PlannedMove("t", 0, (1, 2), (1, 3)),)), cluster, (), {3})
    assert why.endswith("cannot get a replica on [3]: cordoned: 'regent uncordon 3' removes the mark")
    cluster.observe_drained({2, 3})
    [why] = faults(ReassignPlan((PlannedMove("t", 0, (1, 2), (3, 4)),)), cluster, (), {3, 4})
    undrain, uncordon = "drained: 'regent undrain 3' removes the mark", "cordoned: 'regent uncordon 4' removes the mark"
    assert why.endswith(f"cannot get a replica on [3, 4]: {undrain}, {uncordon}")
    assert not list(faults(ReassignPlan((PlannedMove("t", 0, (1, 2), (3, 1)),)), cluster, (), {1}))


# -- marks


async def begun(w: KafkaWorld) -> CordonView:
    await w.topic("t", (1, 2), leaders=True)
    await w.begin_term()
    return CordonView(lambda: w.term)


def request(*brokers: int, reason: str = "disk") -> CordonRequest:
    return CordonRequest(brokers=list(brokers), reason=reason)


@in_world(1, 2, 3)
async def test_marks_reach_the_term_outlive_it_and_are_removed(w: KafkaWorld) -> None:
    view = await begun(w)
    assert [mark.broker for mark in await view.cordon(request(2, 3), "uid 0")] == [2, 3]
    await w.settle()
    assert w.term.cluster.cordoned == {2, 3}
    await w.active.crash()
    await w.begin_term()
    assert w.term.cluster.cordoned == {2, 3}
    assert [mark.broker for mark in await view.uncordon([3, 9])] == [2]
    await w.settle()
    assert w.term.cluster.cordoned == {2}
    [mark] = await view.listed()
    assert (mark.broker, mark.reason, mark.principal) == (2, "disk", "uid 0")
    assert mark.since is not None


@in_world(1, 2, 3)
async def test_a_second_mark_keeps_the_first_and_writes_nothing(w: KafkaWorld) -> None:
    view = await begun(w)
    await view.cordon(request(2), "uid 0")
    w.active.script.writes.clear()
    [mark] = await view.cordon(request(2, reason="other"), "uid 1")
    assert (mark.reason, mark.principal, w.active.script.writes) == ("disk", "uid 0", [])


@in_world(1, 2, 3)
async def test_an_unknown_broker_is_refused_and_one_that_is_down_is_not(w: KafkaWorld) -> None:
    view = await begun(w)
    w.die(2)
    await w.settle()
    with pytest.raises(ViewRefused, match=r"brokers \[9\] are not registered and host no replica"):
        await view.cordon(request(2, 9), "uid 0")
    assert [mark.broker for mark in await view.cordon(request(2), "uid 0")] == [2]


@in_world(1, 2, 3)
async def test_a_mark_that_another_client_writes_at_the_same_time_is_kept(w: KafkaWorld) -> None:
    view = await begun(w)

    async def foreign() -> None:
        await w.operator.create(PATH, b'{"brokers":{"3":{"reason":"by hand"}},"version":1}')

    w.active.script.at(PATH, foreign, exact=True)
    assert [mark.broker for mark in await view.cordon(request(2), "uid 0")] == [2, 3]


@in_world(1, 2, 3)
async def test_marks_that_other_clients_write_all_the_time_are_given_up(w: KafkaWorld) -> None:
    view = await begun(w)
    await view.cordon(request(1), "uid 0")

    async def foreign() -> None:
        await w.operator.set(PATH, b'{"brokers":{},"version":1}', -1)

    w.active.script.at(PATH, foreign, exact=True, times=ROUNDS_MAX)
    with pytest.raises(ViewRefused, match="other clients write /regent/cordons all the time"):
        await view.cordon(request(2), "uid 0")
    assert not w.active.script.left


@pytest.mark.parametrize(
    ("data", "why"), [(b"{", "JSON"), (b'{"brokers":{},"version":3}', "format 3 is newer than this daemon's")]
)
@in_world(1, 2, 3)
async def test_marks_that_cannot_be_read_leave_those_before_in_force_and_are_not_written_over(
    w: KafkaWorld, data: bytes, why: str
) -> None:
    view = await begun(w)
    await view.cordon(request(2), "uid 0")
    await w.settle()
    await w.operator.set(PATH, data, -1)
    await w.settle()
    assert w.term.cluster.cordoned == {2}
    assert PATH in w.counters.malformed
    with pytest.raises(ViewRefused, match="/regent/cordons cannot be understood"):
        await view.cordon(request(3), "uid 0")
    node = w.node(PATH)
    assert node is not None
    assert node.data == data
    await w.operator.set(PATH, b'{"brokers":{},"version":1}', -1)
    await w.settle()
    assert w.term.cluster.cordoned == set()


@in_world(1, 2, 3)
async def test_marks_have_a_bound(w: KafkaWorld) -> None:
    view = await begun(w)
    many = {broker: Cordon() for broker in range(10, 10 + BROKERS_MAX)}
    entries = ",".join(f'"{broker}":{{}}' for broker in many)
    await w.operator.create(PATH, f'{{"brokers":{{{entries}}},"version":1}}'.encode())
    assert await read_cordons(w.operator) == Cordons(many, 0)
    with pytest.raises(ViewRefused, match=f"{BROKERS_MAX + 1} brokers would be cordoned"):
        await view.cordon(request(1), "uid 0")


@in_world(1, 2, 3)
async def test_a_term_that_may_not_write_marks_nothing(w: KafkaWorld) -> None:
    view = await begun(w)
    w.term.gate.close()
    with pytest.raises(NotActive, match="cannot be written"):
        await view.cordon(request(2), "uid 0")
    assert not isinstance(await read_cordons(w.operator), MalformedNode)
    assert w.node(PATH) is None


def test_the_commands_mark_brokers_and_remove_the_marks(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with daemon_in_thread(tmp_path_factory.mktemp("daemon"), Answering()) as socket:
        monkeypatch.setenv("REGENT_SERVER", str(socket))
        assert [item["broker"] for item in items("cordon", 3, 4, "--reason", "disk")] == [3, 4]
        assert [item["reason"] for item in items("uncordon", 4)] == ["disk"]
        regent("cordon", code=Exit.USAGE)
