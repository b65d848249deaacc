"""Settings of brokers by which Kafka's controller goes, and replica placement against Kafka's own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_machines.admin_rules import broker_settings as s
from state_machines.admin_rules.broker_settings import (
    SETTINGS,
    SETTINGS_NAMED_MAX,
    Value,
    adopted_sentence,
    advice,
    in_force,
    shown,
    source,
)
from state_machines.admin_rules.placement import PlacementError, alternated, place


def told(name: str, *values: str | None) -> dict[int, dict[str, str | None]]:
    """Brokers 1, 2, ... and what each says of one setting."""
    return {number: {name: value} for number, value in enumerate(values, 1)}


@pytest.mark.parametrize(
    ("key", "values", "held"),
    [
        (s.DELETE, ("true", "false", "true"), False),
        (s.UNCLEAN, ("true", "false"), False),
        (s.UNCLEAN, ("true", "true"), True),
        (s.BALANCE, ("true", "false"), False),
        (s.BALANCE_INTERVAL, ("60", "300"), 300),
        (s.BALANCE_PERCENTAGE, ("10", "50"), 50),
        (s.PARTITIONS, ("6", "3"), 3),
        (s.REPLICATION, ("1", "3"), 3),
        (s.WINDOWS, ("11", "5"), 5),
        (s.WINDOW_SECONDS, ("2", "1"), 1),
        (s.EXPIRY_CHECK, ("3600000", "60000"), 60_000),
        (s.REMOTE, ("true", "false"), False),
        (s.POLICY, (None, "com.example.Rules", ""), "com.example.Rules"),
    ],
)
def test_the_stricter_value_holds_where_brokers_differ_with_a_piece_of_advice(
    key: str, values: tuple[str | None, ...], held: Value
) -> None:
    [name] = [setting.name for setting in SETTINGS if setting.key == key]
    found = in_force({}, told(name, *values))[key]
    assert (found.value, found.adopted) == (held, True)
    assert (advice(found) is not None) == (len(set(values) - {None, ""}) > 1 or None in values)


@pytest.mark.parametrize("setting", SETTINGS, ids=[setting.name for setting in SETTINGS])
def test_a_setting_that_no_broker_reports_is_strict_or_not_known(setting: s.Setting) -> None:
    found = in_force({}, {})[setting.key]
    assert found.value == setting.unknown
    assert source(found) == "no broker has reported it yet"
    assert setting.unknown is None or setting.stricter((setting.unknown, setting.default)) == setting.unknown


@pytest.mark.parametrize("setting", SETTINGS, ids=[setting.name for setting in SETTINGS])
def test_a_setting_that_a_broker_leaves_out_has_kafkas_default(setting: s.Setting) -> None:
    assert in_force({}, {1: {}})[setting.key].value == setting.default
    assert in_force({}, {1: {setting.name: " "}})[setting.key].value == setting.default


def test_a_value_of_ours_holds_and_where_it_takes_a_guard_away_that_is_known() -> None:
    said = told("delete.topic.enable", "false", "true")
    ours = in_force({s.DELETE: True}, said)[s.DELETE]
    assert (ours.value, ours.chosen, ours.weaker, source(ours)) == (True, True, True, "set by us")
    assert advice(ours) == (
        "delete.topic.enable is false on brokers 1: leave controller.delete_topic_enable out, or give the brokers the "
        "same value"
    )
    stricter = in_force({s.DELETE: False}, told("delete.topic.enable", "true"))[s.DELETE]
    assert (stricter.value, stricter.weaker, stricter.apart) == (False, False, True)
    same = in_force({s.DELETE: True}, told("delete.topic.enable", "true"))[s.DELETE]
    assert (same.weaker, same.apart, advice(same)) == (False, False, None)


def test_live_brokers_count_and_where_none_of_them_has_spoken_those_before_do() -> None:
    said = told("delete.topic.enable", "false", "true")
    assert in_force({}, said, live=[2, 3])[s.DELETE].value is True
    assert in_force({}, said, live=[3])[s.DELETE].value is False
    assert in_force({}, said, live=[])[s.DELETE].value is False


def test_values_and_sources_are_words_for_people() -> None:
    assert [shown(value) for value in (None, True, 3, "", "a.B")] == ["not known", "true", "3", "none", "a.B"]
    many = {number: {"num.partitions": "2"} for number in range(1, 15)}
    assert source(in_force({}, many)[s.PARTITIONS]) == "adopted from brokers 1,2,3,4,5,6,7,8,9,10 and 4 more"


def test_the_log_names_the_source_of_adopted_values_where_they_are_new() -> None:
    silent = in_force({}, {})
    assert adopted_sentence({}, silent) is None, "no broker has said anything"
    alike = in_force({}, {1: {}, 2: {}})
    assert adopted_sentence(silent, alike) == f"settings of the brokers hold: {len(SETTINGS)} are Kafka's defaults"
    said = {"num.partitions": "4", "default.replication.factor": "3"}
    guarded = {**said, "delete.topic.enable": "false"}
    found = in_force({}, {1: said, 2: guarded, 3: said})
    assert adopted_sentence({}, found) == (
        "settings of the brokers hold: adopted from brokers 2: delete.topic.enable=false; adopted from brokers 1,2,3: "
        f"num.partitions=4, default.replication.factor=3; {len(SETTINGS) - 3} are Kafka's defaults"
    )
    assert adopted_sentence(found, in_force({}, {1: said, 2: guarded})) is None, "another source is no news"
    back = in_force({}, {1: said, 3: said})
    assert adopted_sentence(found, back) == (
        "settings of the brokers hold: adopted from brokers 1,3: delete.topic.enable=true"
    ), "a default is news where something else held"
    assert adopted_sentence({}, in_force({s.DELETE: False}, {})) is None, "ours are not adopted"


def test_the_sentence_of_adopted_settings_is_bounded() -> None:
    strange = {setting.name: "7" if type(setting.default) is int else "x" for setting in SETTINGS}
    strange |= {"auto.leader.rebalance.enable": "false", "unclean.leader.election.enable": "true"}
    strange |= {"delete.topic.enable": "false", "remote.log.storage.system.enable": "true"}
    said = adopted_sentence({}, in_force({}, dict.fromkeys(range(1, 1_000), strange)))
    assert said is not None
    assert said.endswith(f"; {len(SETTINGS) - SETTINGS_NAMED_MAX} more (regent config show); 0 are Kafka's defaults")
    assert len(said) < 700


TABLE = Path(__file__).with_name("placements.txt")


class Case(NamedTuple):
    """One line of the table."""

    brokers: dict[int, str | None]
    factor: int
    start: int
    shift: int
    first: int
    replicas: list[tuple[int, ...]]


def cases() -> list[tuple[str, Case]]:
    """Reads the table; the first two columns of a line are its name."""
    found = []
    for line in TABLE.read_text().splitlines():
        if line.startswith("#"):
            continue
        described, numbers, placed = (part.strip() for part in line.split("|"))
        pairs = [entry.partition(":") for entry in described.split(",")]
        brokers = {int(broker): rack or None for broker, _, rack in pairs}
        replicas = [tuple(map(int, replica.split(","))) for replica in placed.split()]
        factor, start, shift, first = map(int, numbers.split())
        found.append((f"{described} {numbers}", Case(brokers, factor, start, shift, first, replicas)))
    return found


CASES = cases()


@pytest.mark.kafka(
    "AddPartitionsTest.testReplicaPlacementAllServers", "AddPartitionsTest.testReplicaPlacementPartialServers"
)
@pytest.mark.parametrize("case", [case for _, case in CASES], ids=[name for name, _ in CASES])
def test_a_placement_is_that_of_kafka(case: Case) -> None:
    placed = place(
        case.brokers,
        len(case.replicas),
        case.factor,
        start=case.start,
        shift=case.shift,
        first_partition=case.first,
    )
    assert list(placed) == list(range(case.first, case.first + len(case.replicas)))
    assert list(placed.values()) == case.replicas


def test_the_table_has_racks_or_none_one_broker_added_partitions_and_wrapped_shifts() -> None:
    known = [case for _, case in CASES]
    racked = [case for case in known if None not in case.brokers.values()]
    assert len(known) >= 100
    assert any(case.factor < len(set(case.brokers.values())) for case in racked)
    assert any(case.factor > len(set(case.brokers.values())) > 1 for case in racked)
    assert any(len(set(Counter(case.brokers.values()).values())) > 1 for case in racked)
    assert any(len(case.brokers) == 1 for case in known)
    assert sum(case.first > 0 for case in known) >= 20
    assert any(case.first > len(case.brokers) for case in known)
    assert any(len(case.replicas) > 2 * len(case.brokers) for case in known)
    assert any(case.start != case.shift for case in racked)


def test_alternated_brokers_are_one_of_each_rack_in_turn() -> None:
    assert alternated({0: "1", 1: "3", 2: "3", 3: "2", 4: "2", 5: "1"}) == [0, 3, 1, 5, 4, 2]
    assert alternated({0: "a", 1: "a", 2: "a", 3: "b", 4: "c", 5: "c"}) == [0, 3, 4, 1, 5, 2]


@given(
    racks=st.lists(st.sampled_from("abc"), min_size=1, max_size=9) | st.integers(1, 9).map(lambda n: [None] * n),
    partitions=st.integers(1, 40),
    start=st.integers(0, 20),
    shift=st.integers(0, 20),
    data=st.data(),
)
def test_a_placement_spreads_replicas_over_racks_and_leaders_over_brokers(
    racks: list[str | None], partitions: int, start: int, shift: int, data: st.DataObject
) -> None:
    brokers = dict(enumerate(racks, start=10))
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place(brokers, partitions, factor, start=start, shift=shift)
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        if None not in racks:
            assert len({brokers[b] for b in replicas}) == min(factor, len(set(racks)))
    leads = Counter(replicas[0] for replicas in placed.values())
    assert max(leads.values()) - min(leads.get(b, 0) for b in brokers) <= 1


@pytest.mark.parametrize(
    ("brokers", "partitions", "factor", "text"),
    [
        ({1: None, 2: None}, 0, 1, "partitions = 0: give 1 or more"),
        ({1: None, 2: None}, 1, 0, "replication_factor = 0: give 1 to 2, the number of live brokers"),
        ({1: None, 2: None}, 1, 3, "replication_factor = 3: give 1 to 2, the number of live brokers"),
        ({}, 1, 1, "replication_factor = 1: no broker is live, start one"),
        (
            {1: "a", 2: None, 3: None},
            1,
            1,
            "brokers [2, 3] have no rack while others have: set broker.rack on all brokers or on none",
        ),
    ],
)
def test_an_impossible_placement_has_its_remedy(
    brokers: dict[int, str | None], partitions: int, factor: int, text: str
) -> None:
    with pytest.raises(PlacementError) as refused:
        place(brokers, partitions, factor, start=0, shift=0)
    assert str(refused.value) == text
