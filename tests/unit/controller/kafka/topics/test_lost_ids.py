"""Brokers are asked for lost topic ids beside the queue: what silent ones hold up, and what is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from brokers.client import ClusterMetadata, TopicMetadata
from brokers.wire.errors import Error
from controller.kafka.path.remembered import TRIES_MAX
from controller.kafka.topics import lost_ids
from controller.role.own_znodes import TOPIC_IDS_BEGIN
from metadata_store import paths
from state_machines.decisions.topic_change import LOST_SAMPLE_MAX, Evidence, Verdict, judge_ids, sample_of_lost
from state_machines.model.types import Broker
from tests.kit.deadlines import eventually, in_virtual_time
from tests.kit.kafka.cluster import id_of
from tests.kit.kafka.parts import LEADER_AND_ISR, UPDATE_METADATA
from tests.kit.kafka.world import KafkaWorld, in_world, world
from tests.unit.controller.kafka.reassignments.test_topic_rewritten import (
    OTHER_ID,
    ids_sent,
    lost,
    metadata_ids,
    rewrite,
)

OLD = ("a", "b", "c")


class Silence:
    """Brokers that take questions and do not answer before they thaw."""

    def __init__(self, w: KafkaWorld, *brokers: int) -> None:
        self.frozen = set(brokers)
        self.queries: list[int] = []
        self.names: list[int] = []
        self._dial = w.dial
        w.dial = self.dial  # type: ignore[method-assign]

    @asynccontextmanager
    async def dial(self, broker: Broker) -> AsyncIterator[Any]:
        self.queries.append(broker.id)
        if broker.id in self.frozen:
            await asyncio.sleep(3_600.0)
        async with self._dial(broker) as queries:
            answer: Callable[[Iterable[str]], Any] = queries.metadata

            async def metadata(names: Iterable[str]) -> ClusterMetadata:
                self.names.append(len(list(names)))
                found: ClusterMetadata = await answer(names)
                return found

            queries.metadata = metadata
            yield queries


async def upgraded(w: KafkaWorld, *names: str, dead_leader: int | None = None) -> None:
    """A cluster in which no topic ever had an id, as its brokers say."""
    for name in names or OLD:
        await w.topic(name, (1, 2, 3), leaders=True, topic_id=None)
    w.knows = {broker: dict.fromkeys(names or OLD) for broker in (1, 2, 3)}
    if dead_leader is not None:
        w.die(dead_leader)


def given(w: KafkaWorld, *names: str) -> set[bool]:
    return {w.assignment(name).topic_id is not None for name in names or OLD}


async def tries_over(w: KafkaWorld) -> None:
    await w.ids_queried()
    assert not w.term.controller.lost_ids.tries_left


# -- after an upgrade


@in_world(before=upgraded)
async def test_after_an_upgrade_all_topics_get_ids_by_the_leader_epochs_that_brokers_know(w: KafkaWorld) -> None:
    await w.serve()
    assert given(w) == {True}
    assert {state.leader_epoch for state in w.states.values()} == {3}
    for name in OLD:
        assert w.assignment(name).topic_id in ids_sent(w, name)
        assert metadata_ids(w, name) == {w.assignment(name).topic_id}
    assert w.node(TOPIC_IDS_BEGIN) is None
    w.agreed()


@in_world(before=upgraded)
async def test_a_broker_that_is_frozen_after_an_upgrade_is_waited_for_and_named(
    w: KafkaWorld,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It might know ids; once it thaws and knows none, all topics get theirs without anybody's help."""
    silence = Silence(w, 3)
    await w.begin_term()
    await eventually(lambda: "do not respond" in caplog.text, 30.0)
    assert given(w) == {False}
    assert "broker 3 (no response within 5.0 s)" in caplog.text
    assert "partition.metadata" not in caplog.text
    silence.frozen.clear()
    await w.propagated()
    assert given(w) == {True}
    assert silence.queries == [1, 2, 3, 3], "answers are remembered"
    assert metadata_ids(w, "a") >= {w.assignment("a").topic_id}
    w.agreed()


@in_world(before=upgraded)
async def test_a_frozen_broker_whose_session_ends_is_waited_for_no_more(w: KafkaWorld) -> None:
    Silence(w, 3)
    await w.begin_term()
    await tries_over(w)
    assert given(w) == {False}
    w.die(3)
    await w.propagated()
    assert given(w) == {True}


@in_world(before=upgraded)
async def test_a_frozen_broker_that_knows_ids_after_all_is_believed(w: KafkaWorld) -> None:
    w.knows[3] = {name: id_of(name) for name in OLD}
    silence = Silence(w, 3)
    await w.begin_term()
    await asyncio.sleep(lost_ids.ANSWER_S_MAX + 0.5)
    assert ids_sent(w, "a", UPDATE_METADATA, (3,)) == set(), "it would forget what it knows"
    assert ids_sent(w, "a", UPDATE_METADATA, (1, 2)) == {None}, "the others are not held up"
    assert ids_sent(w, "a", LEADER_AND_ISR) == {None}, "brokers do not forget by that"
    silence.frozen.clear()
    await w.propagated()
    assert [w.assignment(name).topic_id for name in OLD] == [id_of(name) for name in OLD]
    assert ids_sent(w, "a", UPDATE_METADATA, (3,)) == {id_of("a")}
    w.agreed()


@in_world()
async def test_a_broker_that_obeys_a_higher_epoch_is_not_believed(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Its topics may be former ones of these names, or another cluster's: brokers would refuse such an id."""
    await lost(w)
    w.knows = {1: {}, 2: {}, 3: {"t": OTHER_ID}}
    w.wires.errors[3] = Error.STALE_CONTROLLER_EPOCH
    silence = Silence(w, 3)
    await w.begin_term()
    await eventually(lambda: 3 in w.term.cluster.outranked)
    silence.frozen.clear()
    await tries_over(w)
    await w.propagated()
    assert w.assignment("t").topic_id is None
    assert f"broker 3 ({lost_ids.OUTRANKED})" in caplog.text
    w.wires.errors.clear()
    w.die(3)
    w.knows[3] = {"t": id_of("t")}
    await w.boot(3)
    await w.propagated()
    assert w.assignment("t").topic_id == id_of("t")


@in_world(before=upgraded)
async def test_a_response_after_metadata_without_an_id_is_no_proof(w: KafkaWorld) -> None:
    silence = Silence(w, 3)
    await w.begin_term()
    await tries_over(w)
    assert silence.queries.count(3) == TRIES_MAX
    await w.propagated()
    assert ids_sent(w, "a", UPDATE_METADATA, (3,)) == {None}, "it is not left without metadata for ever"
    silence.frozen.clear()
    await w.bounce(2)
    await w.propagated()
    assert given(w) == {False}
    w.knows[3] = dict.fromkeys(OLD)
    await w.bounce(3)
    await w.propagated()
    assert given(w) == {False}, "its session ended, its process goes on"
    w.knows[3] = {}
    await w.bounce(3)
    await w.propagated()
    assert given(w) == {True}
    w.agreed()


@in_world(before=upgraded)
async def test_brokers_that_all_restarted_prove_nothing_not_even_to_the_next_term(
    w: KafkaWorld,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A tool rewrote all topics, and every broker that knew ids restarted."""
    w.knows = {broker: {} for broker in (1, 2, 3)}
    await w.serve()
    assert given(w) == {False}
    w.knows = {broker: dict.fromkeys(OLD) for broker in (1, 2, 3)}
    await w.bounce(2)
    await w.propagated()
    await w.active.crash()
    await w.serve()
    assert given(w) == {False}, "this daemon told them none"
    assert f"delete {TOPIC_IDS_BEGIN} and restart the daemon" in caplog.text
    await w.active.crash()
    await w.operator.delete(TOPIC_IDS_BEGIN, -1)
    await w.serve()
    assert given(w) == {True}


@in_world(before=upgraded)
async def test_a_term_that_ends_while_a_broker_is_frozen_leaves_its_proof_to_the_next(w: KafkaWorld) -> None:
    silence = Silence(w, 3)
    await w.begin_term()
    await asyncio.sleep(lost_ids.ANSWER_S_MAX + 0.5)
    await w.active.crash()
    silence.frozen.clear()
    await w.serve()
    assert given(w) == {True}


@in_world(before=upgraded)
async def test_a_note_whose_reply_was_lost_is_brought_up_to_date(w: KafkaWorld) -> None:
    Silence(w, 3)
    await w.begin_term()
    found = await w.operator.get(TOPIC_IDS_BEGIN)
    assert found is not None
    assert found.data == lost_ids.ASKED
    c = w.term.controller
    c.lost_ids.noted, c.lost_ids.evidence.sent_none = None, True
    await lost_ids._note(c)
    await lost_ids._note(c)
    found = await w.operator.get(TOPIC_IDS_BEGIN)
    assert found is not None
    assert found.data == lost_ids.TOLD_NONE


@in_world()
async def test_new_topics_and_elections_do_not_wait_for_the_question(w: KafkaWorld) -> None:
    await upgraded(w, dead_leader=1)
    Silence(w, 3)
    await w.begin_term()
    assert {w.leaders()[name, 0] for name in OLD} == {(2, (2, 3))}, "the take-over elects"
    await w.topic("new", (2, 3), topic_id=None)
    await w.settle()
    assert w.assignment("new").topic_id is not None
    await w.boot(1)
    await w.settle()
    w.die(2)
    await w.settle()
    assert {w.leaders()[name, 0] for name in OLD} == {(3, (3,))}
    assert w.term.controller.lost_ids.asking
    assert given(w) == {False}
    epoch = w.states["a", 0].leader_epoch
    await eventually(lambda: w.wires.last_sent(3, LEADER_AND_ISR)["a", 0] == (3, epoch))


@in_virtual_time
async def test_a_term_that_ends_while_ids_are_given_leaves_the_rest_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers know ids of some topics by then, and of topics that were created meanwhile."""
    monkeypatch.setattr(lost_ids, "TOPICS_MAX", 1)
    async with world() as w:
        await upgraded(w)
        seat = await w.seat()
        term = await seat.begin()
        seat.script.at(paths.topic("a"), lambda: term.gate.end("a test"), when="after", exact=True)
        await seat.ended()
        first = w.assignment("a").topic_id
        assert (first is not None, given(w, "b", "c")) == (True, {False})
        assert w.node(TOPIC_IDS_BEGIN) is not None
        for known in w.knows.values():
            known["a"] = first
        await w.serve()
        assert (w.assignment("a").topic_id, given(w)) == (first, {True})
        assert w.node(TOPIC_IDS_BEGIN) is None


@in_virtual_time
async def test_a_sample_of_many_topics_is_queried_and_all_of_them_where_one_id_is_known() -> None:
    many = [f"t{number:03}" for number in range(3 * LOST_SAMPLE_MAX)]
    async with world() as w:
        await upgraded(w, *many)
        silence = Silence(w)
        await w.serve()
        assert given(w, *many) == {True}
        assert max(silence.names) == LOST_SAMPLE_MAX
    async with world() as w:
        await upgraded(w, *many)
        w.knows[2] = {name: id_of(name) for name in many[1:]} | {many[0]: None}
        silence = Silence(w)
        await w.serve()
        assert [w.assignment(name).topic_id for name in many[1:]] == [id_of(name) for name in many[1:]]
        assert w.assignment(many[0]).topic_id is None, "a controller that knows ids told brokers none of it"
        assert max(silence.names) == len(many)


# -- while the question is open


@pytest.mark.parametrize("how", ["another controller", "the session"])
@in_world()
async def test_a_term_that_ends_during_the_query_writes_nothing(w: KafkaWorld, how: str) -> None:
    await lost(w)
    w.knows = {1: {}, 2: {"other": id_of("other")}, 3: {"t": id_of("t")}}
    silence = Silence(w, 3)
    await w.begin_term()
    await asyncio.sleep(lost_ids.ANSWER_S_MAX + 0.5)
    if how == "the session":
        w.server.expire(w.active.zk.session_id)
    else:
        await w.seize(2)
    silence.frozen.clear()
    queries = len(silence.queries)
    await w.active.ended()
    await asyncio.sleep(30.0)
    assert w.assignment("t").topic_id is None
    assert len(silence.queries) == queries


@pytest.mark.parametrize("how", ["gone", "recreated", "mended"])
@in_world()
async def test_a_topic_that_is_another_one_meanwhile_keeps_what_it_has(w: KafkaWorld, how: str) -> None:
    await lost(w)
    w.knows = {3: {"t": id_of("t")}}
    silence = Silence(w, 3)
    await w.begin_term()
    if how == "mended":
        await rewrite(w, "t", {0: (1, 2, 3)}, OTHER_ID)
    else:
        await w.delete_topic("t")
        await w.settle()
    if how == "recreated":
        await w.topic("t", (1, 2), topic_id=OTHER_ID)
    await w.settle()
    silence.frozen.clear()
    await w.propagated()
    cluster = w.term.cluster
    assert cluster.topic_by_id(id_of("t")) is None
    assert not w.term.controller.lost_ids.topics
    if how != "gone":
        assert w.assignment("t").topic_id == OTHER_ID
        assert metadata_ids(w) == {OTHER_ID}


@in_world()
async def test_the_verdict_is_remembered_until_a_broker_registers(w: KafkaWorld) -> None:
    await lost(w)
    w.knows = {broker: {"other": id_of("other")} for broker in (1, 2)}
    silence = Silence(w, 3)
    await w.begin_term()
    await tries_over(w)
    queries = len(silence.queries)
    await w.expand("t", (2, 3))
    await w.propagated()
    await asyncio.sleep(120.0)
    assert len(silence.queries) == queries
    silence.frozen.clear()
    w.knows[3] = {"t": id_of("t")}
    w.wires.frames.clear()
    await w.bounce(3)
    await w.propagated()
    assert w.assignment("t").topic_id == id_of("t")
    assert silence.queries[queries:] == [3]
    assert ids_sent(w, "t", UPDATE_METADATA, (3,)) == {id_of("t")}, "it is asked before it is told"
    w.agreed()


@in_world(*range(1, 40))
async def test_many_silent_brokers_are_queried_a_bounded_number_of_times(w: KafkaWorld) -> None:
    await lost(w)
    silence = Silence(w, *range(1, 40))
    began_s = asyncio.get_running_loop().time()
    await w.begin_term()
    assert asyncio.get_running_loop().time() - began_s < lost_ids.ANSWER_S_MAX, "the take-over does not wait"
    assert len(silence.queries) == 5, "so many at once"
    await tries_over(w)
    taken_s = asyncio.get_running_loop().time() - began_s
    assert taken_s < TRIES_MAX * (lost_ids.ASK_S_MAX + lost_ids.ANSWER_S_MAX + lost_ids.PAUSE_S)
    assert len(silence.queries) <= TRIES_MAX * 39
    assert w.assignment("t").topic_id is None


@in_world()
async def test_an_authorization_error_for_a_topic_is_no_response(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await upgraded(w, "t")
    denied = 29
    answer = w.dial

    @asynccontextmanager
    async def dial(broker: Broker) -> AsyncIterator[Any]:
        async with answer(broker) as queries:
            if broker.id == 3:

                async def metadata(names: Iterable[str]) -> ClusterMetadata:
                    return ClusterMetadata(None, 0, (), {name: TopicMetadata(denied, None, {}) for name in names})

                queries.metadata = metadata
            yield queries

    w.dial = dial  # type: ignore[method-assign]
    await w.serve()
    assert given(w, "t") == {False}
    assert "TOPIC_AUTHORIZATION_FAILED" in caplog.text


# -- the judgement

ID = b"0123456789abcdef"
JUDGED: dict[str, tuple[list[dict[str, bytes | None]], bool, bytes | Verdict, bool]] = {
    "one broker knows it": ([{}, {"t": None}, {"t": ID}], False, ID, True),
    "nobody answers": ([], False, Verdict.UNANSWERED, False),
    "nobody knows the topic": ([{}], False, Verdict.UNKNOWN, True),
    "told without one, where others have ids": ([{"t": None}], False, Verdict.UNKNOWN, True),
    "no topic had an id": ([{"t": None}], True, Verdict.NEVER_HAD_ONE, True),
    "no topic had an id, all brokers restarted": ([{}, {}], True, Verdict.UNKNOWN, True),
    "no topic had an id, a broker did not answer": ([{"t": None}], True, Verdict.UNANSWERED, False),
    "no topic had an id, a broker knows it": ([{"t": ID}], True, ID, True),
    "no topic had an id, a broker knows another's": ([{"t": None, "u": ID}], True, Verdict.UNKNOWN, True),
    "two ids": ([{"t": ID}, {"t": OTHER_ID}], True, Verdict.UNKNOWN, True),
}


def broker(number: int) -> Broker:
    return Broker(number, 7, (), None)


@pytest.mark.parametrize("case", JUDGED)
def test_what_is_known_of_an_id(case: str) -> None:
    told_ids, none_had_one, expected, complete = JUDGED[case]
    evidence = Evidence()
    for number, told in enumerate(told_ids):
        evidence.add(broker(number), told, ["t", "u"])
    assert judge_ids(["t"], evidence, complete=complete, none_had_one=none_had_one)["t"] == expected


def test_evidence_is_incomplete_without_a_live_broker() -> None:
    assert not Evidence().complete({})
    evidence = Evidence()
    evidence.add(broker(1), {}, ["t"])
    assert evidence.complete({1: broker(1)})
    assert not evidence.complete({1: Broker(1, 8, (), None)}), "another registration"
    late = Evidence()
    late.add(broker(1), {"t": None}, ["t"], late=True)
    assert not late.complete({1: broker(1)})


def test_a_sample_has_the_topics_that_an_interrupted_term_began_with_and_the_youngest() -> None:
    names = {f"t{number:04}": number % 7 for number in range(1_000)} | {"z": 1_000}
    found = sample_of_lost(names)
    assert len(found) == len(set(found)) == LOST_SAMPLE_MAX
    assert found[:50] == [f"t{number:04}" for number in range(50)]
    assert "z" in found
