"""Replication throttles of moves: set beside what stands there, and taken back to what stood there."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_machines.admin_rules.throttles import (
    BROKERS,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    LIST_BYTES_MAX,
    TOPICS,
    Entity,
    Restoration,
    Throttle,
    covers,
    restore,
    throttle,
    throttle_brokers,
    throttled_entities,
    unconfirmed,
)
from state_machines.admin_rules.topic_configs import wrong_config
from state_machines.model.types import Assignment, TopicPartition

Content = dict[Entity, dict[str, str]]
T, U = Entity(TOPICS, "t"), Entity(TOPICS, "u")
B1, B2, B3, B10 = (Entity(BROKERS, str(broker)) for broker in (1, 2, 3, 10))
RATE = 1_000_000
RATES = {FOLLOWER_RATE: str(RATE), LEADER_RATE: str(RATE)}


def moves(*named: tuple[str, int, tuple[int, ...], tuple[int, ...]]) -> dict[TopicPartition, Assignment]:
    """Makes moves of topic and partition, from replicas to replicas."""
    return {TopicPartition(t, p): Assignment(before).reassigned_to(after) for t, p, before, after in named}


ONE = moves(("t", 0, (1, 2), (2, 3)))


def written(found: Content, writes: Mapping[Entity, dict[str, str]]) -> Content:
    """Returns the configurations after the writes."""
    return {entity: content for entity, content in {**found, **writes}.items() if content}


def listed(entries: Mapping[str, str]) -> tuple[str | None, str | None]:
    return entries.get(LEADER_REPLICAS), entries.get(FOLLOWER_REPLICAS)


# -- what is set


def test_old_replicas_are_throttled_as_leaders_and_added_ones_as_followers() -> None:
    wanted = moves(
        ("t", 0, (1, 2), (2, 3)),
        ("t", 10, (1, 2), (1, 2, 10)),
        ("t", 2, (2, 1), (3,)),
        ("u", 0, (1,), (2,)),
        ("shrunk", 0, (1, 4), (1,)),
        ("reordered", 0, (5, 6), (6, 5)),
    )
    found = throttle(wanted, RATE, {})
    assert found.writes == {
        **dict.fromkeys((B1, B2, B3, B10), RATES),
        T: {LEADER_REPLICAS: "0:1,0:2,2:1,2:2,10:1,10:2", FOLLOWER_REPLICAS: "0:3,2:3,10:10"},
        U: {LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "0:2"},
    }
    assert set(throttled_entities(wanted)) == found.writes.keys()
    assert all(wrong_config(content) is None for entity, content in found.writes.items() if entity.kind == TOPICS)
    assert found.notes == ()


def test_no_moves_have_no_throttles() -> None:
    for none in ({}, moves(("t", 0, (1, 2), (2, 1)))):
        assert throttled_entities(none) == ()
        found = throttle(none, RATE, {})
        assert (found.throttles, found.writes, found.notes) == ((), {}, ())


def test_a_replica_that_only_has_to_stop_is_not_throttled() -> None:
    move = {TopicPartition("t", 0): Assignment((1, 2, 3, 4), adding=(3, 4), removing=(1, 3))}
    assert listed(throttle(move, RATE, {}).writes[T]) == ("0:1,0:2", "0:4")


@pytest.mark.parametrize("rate", [1, 2**63 - 1])
def test_rates_are_set_up_to_their_bounds(rate: int) -> None:
    assert throttle(ONE, rate, {}).writes[B1] == dict.fromkeys((FOLLOWER_RATE, LEADER_RATE), str(rate))


@pytest.mark.parametrize("rate", [0, -1, 2**63])
def test_a_rate_out_of_bounds_is_refused_with_its_bounds(rate: int) -> None:
    with pytest.raises(ValueError, match=rf"rate_bytes_per_s is {rate}: give a rate from 1 to 9223372036854775807"):
        throttle(ONE, rate, {})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "0:1,0:2"),
        ("", "0:1,0:2"),
        (" , ", "0:1,0:2"),
        ("0:2", "0:2,0:1"),
        ("7:1, 0:9", "7:1,0:9,0:1,0:2"),
        ("0:1,0:2", "0:1,0:2"),
        ("0:2,0:1,5:5", "0:2,0:1,5:5"),
        ("00:01", "00:01,0:2"),
        ("2147483647:2147483647", "2147483647:2147483647,0:1,0:2"),
    ],
)
def test_a_list_is_extended_by_what_it_lacks(before: str | None, after: str) -> None:
    prior: Content = {} if before is None else {T: {LEADER_REPLICAS: before, "retention.ms": "5"}}
    found = throttle(ONE, RATE, prior)
    content = written(prior, found.writes)[T]
    assert listed(content) == (after, "0:3")
    assert content.get("retention.ms") == (None if before is None else "5"), "other settings stay"
    assert found.notes == ()
    recorded = {(one.entity, one.setting) for one in found.throttles}
    assert ((T, LEADER_REPLICAS) in recorded) == (before != after), "what stands there already is not ours"


@pytest.mark.parametrize(
    ("before", "note"),
    [
        ("*", "throttles all replicas already"),
        (" * ", "throttles all replicas already"),
        ("*,", "is '*,' and stays, so its moves are not throttled: give it the form partition:broker"),
        ("0:1,x", "is '0:1,x' and stays"),
        ("0:1:2", "stays, so its moves are not throttled"),
        ("-1:2", "stays, so its moves are not throttled"),
        ("2147483648:1", "stays, so its moves are not throttled"),
        ("1:2147483648", "stays, so its moves are not throttled"),
        ("1:99999999999", "stays, so its moves are not throttled"),
        ("\u0663:1", "stays, so its moves are not throttled"),
        ("x" * 10_000, f"is '{'x' * 60}...' and stays"),
    ],
)
def test_a_list_of_all_replicas_or_a_malformed_one_stays_with_a_sentence(before: str, note: str) -> None:
    prior: Content = {T: {LEADER_REPLICAS: before}}
    found = throttle(ONE, RATE, prior)
    content = written(prior, found.writes)
    assert listed(content[T]) == (before, "0:3")
    [sentence] = found.notes
    assert note in sentence
    assert sentence.startswith(f"{LEADER_REPLICAS} of topic t is ")
    assert len(sentence) < 300
    assert written(content, restore(found.throttles, content).writes) == prior


def test_a_list_that_is_too_long_to_be_described_becomes_that_of_all_replicas() -> None:
    longest = LIST_BYTES_MAX - len(",0:1,0:2")
    items = [f"{10_000 + i}:1" for i in range((longest + 1) // 8)]
    fits = ",".join(items)
    fits += "0" * (longest - len(fits))
    for prior_list, after in ((fits, f"{fits},0:1,0:2"), (fits + "0", "*")):
        prior: Content = {T: {LEADER_REPLICAS: prior_list}}
        found = throttle(ONE, RATE, prior)
        content = written(prior, found.writes)
        assert content[T][LEADER_REPLICAS] == after
        assert [LEADER_REPLICAS in note for note in found.notes] == ([True] if after == "*" else [])
        assert throttle(ONE, RATE, content, found.throttles).writes == {}
        assert written(content, restore(found.throttles, content).writes) == prior


# -- repetition, and changes of the operation itself


def test_a_crash_before_any_of_the_writes_is_repaired_by_repetition() -> None:
    prior: Content = {B1: {LEADER_RATE: "5", "x": "y"}, T: {FOLLOWER_REPLICAS: "9:9"}}
    first = throttle(ONE, RATE, prior)
    for reached in range(len(first.writes) + 1):
        partly = written(prior, dict(list(first.writes.items())[:reached]))
        again = throttle(ONE, RATE, partly, first.throttles)
        assert again.throttles == first.throttles, "what stood there before is not forgotten"
        assert len(again.writes) == len(first.writes) - reached
        content = written(partly, again.writes)
        assert content == written(prior, first.writes)
        assert throttle(ONE, RATE, content, again.throttles).writes == {}
        assert written(content, restore(again.throttles, content).writes) == prior


def test_another_rate_replaces_the_earlier_one_and_the_former_value_returns() -> None:
    """Each crash between the record and the write leaves an earlier rate of the same operation there."""
    prior: Content = {B1: {LEADER_RATE: "5"}}
    throttles: tuple[Throttle, ...] = ()
    content = prior
    for rate, reaches in ((10, True), (20, False), (30, False), (40, True), (5, True), (5, True), (50, False)):
        found = throttle(ONE, rate, content, throttles)
        throttles = found.throttles
        assert found.notes == ()
        assert max(len(one.ours) for one in throttles) <= 2
        assert throttle(ONE, rate, content, throttles).throttles == throttles
        if reaches:
            content = written(content, found.writes)
            assert content[B1][LEADER_RATE] == str(rate)
            again = throttle(ONE, rate, content, throttles)
            assert (again.throttles, again.writes) == (throttles, {})
        assert written(content, restore(throttles, content).writes) == prior


def test_other_moves_of_the_operation_replace_its_earlier_ones_in_the_lists() -> None:
    prior: Content = {T: {LEADER_REPLICAS: "9:9"}}
    first = throttle(ONE, RATE, prior)
    content = written(prior, first.writes)
    second = throttle(moves(("t", 1, (2,), (10,))), RATE, content, first.throttles)
    content = written(content, second.writes)
    assert listed(content[T]) == ("9:9,1:2", "1:10")
    assert content[B1] == RATES, "it stands until everything is restored"
    assert written(content, restore(second.throttles, content).writes) == prior


def test_lists_go_back_with_the_moves_that_need_them_no_more_and_rates_stay() -> None:
    prior: Content = {T: {LEADER_REPLICAS: "9:9", "retention.ms": "5"}}
    first = throttle(moves(("t", 0, (1,), (2,)), ("u", 0, (1,), (2,)), ("u", 1, (1,), (3,))), RATE, prior)
    assert first.settled == first.throttles
    content = written(prior, first.writes)
    second = throttle(moves(("u", 1, (1,), (3,))), RATE, content, first.settled)
    assert {one.entity for one in second.throttles} == {T, U, B1, B2, B3}, "what is recorded before it is written"
    assert {one.entity for one in second.settled} == {U, B1, B2, B3}
    for reached in range(len(second.writes) + 1):
        partly = written(content, dict(list(second.writes.items())[:reached]))
        again = throttle(moves(("u", 1, (1,), (3,))), RATE, partly, second.throttles)
        assert (again.throttles, again.settled, again.notes) == (second.throttles, second.settled, ())
        partly = written(partly, again.writes)
        assert (partly[T], listed(partly[U])) == (prior[T], ("1:1", "1:3"))
        assert {partly[broker][LEADER_RATE] for broker in (B1, B2, B3)} == {str(RATE)}
        assert written(partly, restore(again.throttles, partly).writes) == prior
        assert written(partly, restore(again.settled, partly).writes) == prior


def test_a_list_that_was_changed_stays_once_no_move_needs_it() -> None:
    first = throttle(ONE, RATE, {})
    content = written({}, {**first.writes, T: {FOLLOWER_REPLICAS: "8:8", LEADER_REPLICAS: "0:1,0:2"}})
    found = throttle({}, RATE, content, first.settled)
    assert found.writes == {T: {FOLLOWER_REPLICAS: "8:8"}}
    assert found.notes == (f"{FOLLOWER_REPLICAS} of topic t was changed to '8:8' meanwhile, and stays so",)
    assert T not in {one.entity for one in found.settled}


def test_a_rate_that_was_not_written_yet_is_known_although_its_broker_has_no_moves_left() -> None:
    first = throttle(ONE, RATE, {})
    content = written({}, first.writes)
    second = throttle(ONE, 7, content, first.settled)
    fewer = throttle({}, 7, content, second.throttles, brokers={2})
    content = written(content, fewer.writes)
    assert (content[B1][LEADER_RATE], content[B2][LEADER_RATE]) == (str(RATE), "7")
    restored = restore(fewer.settled, content)
    assert (restored.notes, written(content, restored.writes)) == ((), {})


@pytest.mark.parametrize(
    ("listed_", "move", "covered"),
    [
        ({FOLLOWER_REPLICAS: "0:3,1:4", LEADER_REPLICAS: "0:1,0:2"}, ONE, True),
        ({FOLLOWER_REPLICAS: "*", LEADER_REPLICAS: "0:1,0:2"}, ONE, True),
        ({FOLLOWER_REPLICAS: "0:3", LEADER_REPLICAS: "0:1"}, ONE, False),
        ({FOLLOWER_REPLICAS: "0:4", LEADER_REPLICAS: "0:1,0:2"}, ONE, False),
        ({LEADER_REPLICAS: "0:1,0:2"}, ONE, False),
        ({}, moves(("t", 0, (1, 2), (2, 1))), True),
        ({}, {}, True),
    ],
)
def test_moves_are_covered_by_lists_that_name_all_their_replicas(
    listed_: dict[str, str], move: dict[TopicPartition, Assignment], covered: bool
) -> None:
    assert covers([Throttle(T, name, None, value, (value,)) for name, value in listed_.items()], move) is covered


def test_brokers_of_later_moves_have_their_rates_from_the_begin() -> None:
    assert throttled_entities(ONE, {10}) == (B1, B10, B2, B3, T)
    found = throttle(ONE, RATE, {}, brokers={10})
    assert (found.writes[B10], found.writes[B1]) == (RATES, RATES)


# -- what others change


PLACES = [(B1, LEADER_RATE), (B3, FOLLOWER_RATE), (T, LEADER_REPLICAS), (T, FOLLOWER_REPLICAS)]


@pytest.mark.parametrize(("entity", "setting"), PLACES)
@pytest.mark.parametrize("prior_value", [None, "7:7"])
@pytest.mark.parametrize("other", [None, "", "8:8", "*"])
def test_a_setting_that_was_changed_meanwhile_stays_and_is_named(
    entity: Entity, setting: str, prior_value: str | None, other: str | None
) -> None:
    prior: Content = {} if prior_value is None else {entity: {setting: prior_value}}
    first = throttle(ONE, RATE, prior)
    content = written(prior, first.writes)
    changed = {name: value for name, value in content[entity].items() if name != setting}
    content = written(content, {entity: changed if other is None else {**changed, setting: other}})
    again = throttle(ONE, RATE, content, first.throttles)
    restored = restore(again.throttles, content)
    after = written(content, restored.writes)
    assert after.get(entity, {}).get(setting) == other
    assert written(after, {entity: {}}) == {}, "all the other settings have their former values"
    if other == prior_value:
        assert restored.notes == (), "that was the former value"
        return
    assert (again.throttles, again.writes) == (first.throttles, {})
    now = "was removed" if other is None else f"was changed to {other!r}"
    sentence = f"{setting} of {entity} {now} meanwhile, and stays so"
    assert (again.notes, restored.notes) == ((sentence,), (sentence,))


def test_a_deleted_topic_is_not_written_again() -> None:
    first = throttle(ONE, RATE, {T: {LEADER_REPLICAS: "7:7"}})
    content = written({}, {entity: content for entity, content in first.writes.items() if entity != T})
    restored = restore(first.throttles, content)
    assert T not in restored.writes
    assert restored.notes == (f"{LEADER_REPLICAS} of topic t was removed meanwhile, and stays so",)


def test_settings_beside_the_throttles_that_change_meanwhile_are_kept() -> None:
    first = throttle(ONE, RATE, {})
    content = written({}, first.writes)
    content[T]["retention.ms"] = "5"
    assert written(content, restore(first.throttles, content).writes) == {T: {"retention.ms": "5"}}


# -- invariants


values = st.sampled_from([None, "", "*", " *", "0:1", "0:1,0:2", "1:3, 2:1", "x", "5:5:5", "1000000", "7", "\u0663"])
contents = st.fixed_dictionaries({}, optional=dict.fromkeys((*RATES, LEADER_REPLICAS, FOLLOWER_REPLICAS), values))
places = st.sampled_from([T, U, B1, B2, B3, B10])
configs = st.dictionaries(places, contents).map(
    lambda found: {
        entity: content
        for entity, entries in found.items()
        if (content := {name: value for name, value in entries.items() if value is not None})
    }
)
replicas = st.lists(st.sampled_from([1, 2, 3, 10]), min_size=1, max_size=3, unique=True).map(tuple)
all_moves = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["t", "u"]), st.integers(0, 3)),
    st.builds(lambda before, after: Assignment(before).reassigned_to(after), replicas, replicas),
)
rates = st.sampled_from([1, 7, RATE, 2**63 - 1])


@given(configs, all_moves, rates, st.lists(st.booleans(), max_size=12))
def test_after_any_part_of_the_writes_restoration_gives_the_original(
    prior: Content, wanted: dict[TopicPartition, Assignment], rate: int, arrive: list[bool]
) -> None:
    found = throttle(wanted, rate, prior)
    arrived = {e: c for at, (e, c) in enumerate(found.writes.items()) if at >= len(arrive) or arrive[at]}
    content = written(prior, arrived)
    restored = restore(found.throttles, content)
    assert restored.notes == ()
    after = written(content, restored.writes)
    assert after == prior
    assert restore(found.throttles, after) == Restoration({})


@given(configs, all_moves, rates)
def test_repetition_changes_nothing(prior: Content, wanted: dict[TopicPartition, Assignment], rate: int) -> None:
    first = throttle(wanted, rate, prior)
    content = written(prior, first.writes)
    again = throttle(wanted, rate, content, first.throttles)
    assert (again.throttles, again.writes) == (first.throttles, {})


@given(configs, configs, all_moves, rates)
def test_changes_of_others_survive_and_each_is_named(
    prior: Content, foreign: Content, wanted: dict[TopicPartition, Assignment], rate: int
) -> None:
    first = throttle(wanted, rate, prior)
    content = written(prior, first.writes)
    touched = {entity: {**content.get(entity, {}), **entries} for entity, entries in foreign.items()}
    content = written(content, touched)
    restored = restore(first.throttles, content)
    after = written(content, restored.writes)
    ours = {(one.entity, one.setting): one for one in first.throttles}
    named = 0
    for entity, entries in content.items():
        for setting, value in entries.items():
            one = ours.get((entity, setting))
            kept = after.get(entity, {}).get(setting)
            assert kept == (one.before if one is not None and value == one.value else value)
            named += one is not None and value not in (one.value, one.before)
    assert len(restored.notes) == named


# -- throttles of brokers


@pytest.mark.parametrize(
    ("before", "standing", "stored", "written_"),
    [
        ({}, {}, None, str(RATE)),
        ({LEADER_RATE: "7"}, {}, "7", str(RATE)),
        ({}, {LEADER_RATE: str(RATE)}, None, None),
        ({LEADER_RATE: "7"}, {LEADER_RATE: str(RATE)}, "7", None),
        ({}, {LEADER_RATE: "9"}, None, None),
    ],
    ids=["nothing stood there", "a former value", "written before a crash", "both", "changed by another client"],
)
def test_a_repetition_keeps_the_former_value_and_writes_what_is_missing(
    before: dict[str, str], standing: dict[str, str], stored: str | None, written_: str | None
) -> None:
    first = throttle_brokers([1], ["t"], RATE, {B1: before})
    [one] = [one for one in first.throttles if one.setting == LEADER_RATE]
    assert one.before == stored
    again = throttle_brokers([1], ["t"], RATE, {B1: standing or before}, first.throttles)
    assert again.throttles == first.throttles
    assert again.writes[B1].get(LEADER_RATE) == (written_ or standing.get(LEADER_RATE))
    assert bool(again.notes) is (standing.get(LEADER_RATE) == "9")
    assert listed(again.writes[T]) == ("*", "*")


# -- what brokers report


def test_rates_that_a_broker_does_not_report_are_named() -> None:
    assert unconfirmed(1, RATE, RATES) == []
    assert unconfirmed(1, RATE, {**RATES, LEADER_RATE: "5"}) == [
        f"broker 1 has {LEADER_RATE} = '5' in force where 1000000 is set"
    ]
    assert unconfirmed(1, RATE, {FOLLOWER_RATE: str(RATE), LEADER_RATE: None}) == [
        f"broker 1 has {LEADER_RATE} = no value in force where 1000000 is set"
    ]
