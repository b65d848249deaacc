"""Pure parts of regions at their bounds: marks, damaged rows, keys as text, layouts, parts of logs, and plans."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from state_machines.regions import damage as damages
from state_machines.regions import marks
from state_machines.regions.damage import Damage, Damages, Gap, RowKind
from state_machines.regions.entities import Server
from state_machines.regions.keys import Keys
from state_machines.regions.layout import (
    KEY_BYTES_MAX,
    NAME_CHARS_MAX,
    UNIFORM_MAX,
    NotAKey,
    key_of,
    key_text,
    key_word,
    layout_problem,
    name_problem,
)
from state_machines.regions.marks import HEAD_CHARS, PART_CHARS_MAX, LeftOut, LostPart, LostParts, Mark, MarkKind, Marks
from state_machines.regions.model import Regions
from state_machines.regions.placement import Wish, placement_of, planned
from state_machines.regions.states import ServerState
from tests.unit.state_machines.regions.test_region_decisions import servers_with, wishes
from tests.unit.state_machines.regions.test_region_states import a_server


@pytest.mark.parametrize("now_ms", [99, 100, 101])
def test_a_hold_ends_for_regions_at_the_moment_from_which_it_means_nothing(now_ms: int) -> None:
    marks, hold = Marks(), Mark(MarkKind.HOLD, "a", until_ms=100)
    for mark in (hold, Mark(MarkKind.CORDON, "a"), Mark(MarkKind.PIN, "7", "a"), Mark(MarkKind.PIN, "8", "a")):
        marks.put(mark)
    lasts = now_ms < 100
    assert marks.held_until_ms("a", now_ms) == (100 if lasts else 0)
    assert marks.held_until_ms("b", now_ms) == 0
    gone = marks.get(MarkKind.PIN, "8")
    assert marks.over(now_ms, {7}) == [*([] if lasts else [hold]), gone]


def test_marks_are_listed_by_kind_and_subject() -> None:
    marks = Marks()
    for subject in ("b", "a", "c"):
        marks.put(Mark(MarkKind.HOLD, subject))
        marks.put(Mark(MarkKind.CORDON, subject))
    assert [f"{one.kind}{one.subject}" for one in marks] == ["cordona", "cordonb", "cordonc", "holda", "holdb", "holdc"]


# -- damaged rows


def region_row(number: int, region: int, table: str = "t") -> Damage:
    return Damage(RowKind.REGION, f"row {number}", "state", "9", "it is no state", table=table, region=region)


def test_a_damaged_region_and_its_table_are_told_with_the_row_that_is_theirs() -> None:
    found = Damages()
    first, second = region_row(1, 7), region_row(2, 8)
    for one in (first, second):
        found.add(one)
    found.leave_out(9, "t")
    found.leave_out(10, "u")
    found.add(Damage(RowKind.TABLE, "row 3", "kind", "", "it is missing", "u"))
    found.add(Damage(RowKind.NAMESPACE, "row 4", "name", "", "it is too long", "n"))
    assert str(first) == "row 1 (table t): state is 9: it is no state"
    assert str(found.rows[2]) == "row 3 (table u): kind: it is missing"
    assert [found.of_region(one) for one in (7, 8, 9, 11)] == [str(first), str(second), "its table is left out", ""]
    assert [found.of_table(one) for one in ("t", "u", "v")] == [str(first), "the row of table u is damaged", ""]
    assert (found.regions, found.namespaces, found.sound) == ({7, 8, 9, 10}, {"n"}, 2)
    assert found.count == {RowKind.REGION: 4, RowKind.TABLE: 1, RowKind.NAMESPACE: 1}


def test_rows_that_are_too_many_to_describe_are_left_out_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damages, "DAMAGES_MAX", 1)
    model = Regions()
    for number in (1, 2):
        model.damages.add(region_row(number, number, f"t{number}"))
    assert (len(model.damages.rows), model.damages.count[RowKind.REGION]) == (1, 2)
    assert [one in model.ids for one in (1, 2, 3)] == [True, True, False]
    assert set(model.damages.tables) == {"t1", "t2"}


def test_rows_of_a_table_stay_where_one_without_a_name_may_be_in_its_gap() -> None:
    found = Damages()
    found.add(region_row(1, 7, "other"))
    found.add_gap(Gap("t", b"a", b"c", False, (1,)))
    assert found.of_rows("t") == "", "the damaged region is another table's"
    found.add(region_row(2, 0, ""))
    assert found.of_rows("t").startswith("its keys have a gap, and row 2: ")
    assert found.of_rows("whole") == ""
    assert found.of_rows("other") == found.of_table("other") != ""


def test_a_table_that_is_gone_leaves_no_gap_and_those_of_others_stay() -> None:
    found = Damages()
    found.add_gap(Gap("u", b"a", b"c", True, (1, 2)))
    found.add_gap(Gap("t", b"a", b"c", True, (3, 4)))
    found.add_gap(Gap("t", b"e", b"f", False, (5, 6)))
    assert [(one.table, one.start) for one in found.gaps] == [("t", b"a"), ("t", b"e"), ("u", b"a")]
    assert found.overlapping == {1, 2, 3, 4}
    found.drop_table("t")
    assert (found.overlapping, [one.table for one in found.gaps]) == ({1, 2}, ["u"])
    assert (list(found.of_keys("t")), found.gap_at("t", b"b")) == ([], None)


def test_a_gap_names_the_regions_beside_it_and_no_other() -> None:
    keys = Keys("t")
    assert keys.next(4, b"c", b"f") == Gap("t", b"", b"c", False, (4,))
    assert keys.next(5, b"h", b"k") == Gap("t", b"f", b"h", False, (4, 5))
    assert keys.over() == Gap("t", b"k", b"", False, (5,))


# -- keys, layouts and names


def test_each_key_comes_back_from_a_text_that_can_be_typed() -> None:
    for key in (*(bytes((one,)) for one in range(256)), bytes(range(256)), b"", b"az09", b"\\x41"):
        text = key_text(key)
        assert key_of(text) == key
        assert all(" " <= one <= "~" for one in text)


def test_other_characters_count_as_utf8_and_a_backslash_begins_two_digits() -> None:
    assert key_of("ä\ud800\\x5cx") == b"\xc3\xa4\xed\xa0\x80\\x"
    for text in ("\\", "a\\x5", "\\xg0", "\\n"):
        with pytest.raises(NotAKey, match="a backslash begins"):
            key_of(text)


@pytest.mark.parametrize(
    ("splits", "uniform", "good"),
    [
        ((b"k" * KEY_BYTES_MAX,), 0, True),
        ((b"k" * (KEY_BYTES_MAX + 1),), 0, False),
        ((b"a", b"b", b"c", b"b"), 0, False),
        ((b"a", b"b", b"c", b""), 0, False),
        ((), UNIFORM_MAX, True),
        ((), UNIFORM_MAX + 1, False),
        ((), -1, False),
    ],
)
def test_a_layout_at_its_bounds(splits: tuple[bytes, ...], uniform: int, good: bool) -> None:
    assert (layout_problem(splits, uniform) is None) is good


@pytest.mark.parametrize("more", [0, 1])
def test_a_name_at_its_bound(more: int) -> None:
    assert (name_problem("n:" + "x" * (NAME_CHARS_MAX - 2 + more)) is None) is not more


def test_a_long_name_of_a_part_is_shortened_and_stays_itself() -> None:
    whole, long, other = "p" * PART_CHARS_MAX, "p" * (PART_CHARS_MAX + 1), "p" * PART_CHARS_MAX + "q"
    assert marks.short(whole) == whole
    assert marks.short(long).startswith("p" * HEAD_CHARS + "... (sha256 ")
    assert marks.short(long) != marks.short(other)
    assert len(marks.short(long)) <= PART_CHARS_MAX


def test_all_parts_of_all_commands_count() -> None:
    first = LeftOut((LostPart("p1", 1), LostPart("p2", 2)), "eve", "lost")
    lost = LostParts((first, LeftOut((LostPart("p3", 3),), "bob", "lost")), 7, (1,))
    assert marks.count(lost) == 3
    assert marks.names(lost) == {"p1", "p2", "p3"}
    assert [marks.has_pid(lost, pid) for pid in (1, 2, 3, 4)] == [True, True, True, False]
    more = LostParts((LeftOut((LostPart("p3", 3), LostPart("p4", 4)), "eve", "lost"),), 1, (2,))
    added = marks.added(lost, more)
    assert [[part.name for part in one.parts] for one in added.left_out] == [["p1", "p2", "p4"], ["p3"]]
    assert (added.regions, added.ids) == (7, (1,)), "those that it had as the first part was left out"


# -- plans and servers


def names(plan: list[Server]) -> list[str]:
    return [one.name for one in plan]


def test_a_wish_goes_where_it_names_and_the_others_to_prompt_servers() -> None:
    first, second, third = servers = servers_with(0, 0, 0)
    some = [replace(wish, to=to, avoid=avoid) for wish, (to, avoid) in zip(
        wishes(5), [("s0", ""), ("", ""), ("gone", ""), ("s0", "s0"), ("s2", "s1")], strict=True
    )]  # fmt: skip
    plan = planned(placement_of("round_robin"), some, servers, [second], lambda _: 0, {})
    assert plan == [first, second, second, second, third]


def test_regions_that_are_on_their_way_to_a_server_count() -> None:
    first, second, _ = servers = servers_with(1, 0, 2)
    second.expected = 3
    assert names(placement_of("round_robin").place(wishes(3), servers, lambda _: 0, {})) == ["s0", "s0", "s2"]
    first.expected = 9
    assert names(placement_of("round_robin").place(wishes(1), servers, lambda _: 0, {})) == ["s2"]


def test_of_servers_with_as_many_regions_the_first_by_name_comes_first() -> None:
    assert names(placement_of("round_robin").place(wishes(3), servers_with(0, 0, 0)[::-1], lambda _: 0, {})) == [
        "s0", "s1", "s2",
    ]  # fmt: skip


def test_a_random_placement_draws_among_all_servers_where_each_is_to_be_avoided() -> None:
    [one] = servers_with(0)
    assert placement_of("random").place([Wish(w.region, "", "s0") for w in wishes(1)], [one], lambda _: 0, {}) == [one]
    some = [a_server("a", 1), a_server("a", 2)]
    assert placement_of("random").place(
        [replace(w, avoid="a") for w in wishes(1)], some, lambda below: below - 1, {}
    ) == [some[1]]


def test_a_name_is_that_of_its_latest_process() -> None:
    model = Regions()
    for incarnation, state in ((2, ServerState.ONLINE), (3, ServerState.CRASHED), (1, ServerState.ONLINE)):
        server = a_server("a", incarnation)
        server.state = state
        model.servers[server.key] = server
    assert (str(model.current("a")), str(model.latest("a"))) == ("a,2", "a,3")
    assert (model.current("b"), model.latest("b")) == (None, None)


@given(st.binary(max_size=20))
def test_a_key_in_a_command_is_read_again_by_a_shell_and_has_no_quote_that_ends_a_sentence(key: bytes) -> None:
    word = key_word(key)
    assert not set("'$`!") & set(word)
    [read] = shlex.split(word)
    assert key_of(read) == key
