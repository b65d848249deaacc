"""What daemons may write at each level of a store."""

from __future__ import annotations

from itertools import combinations

import pytest

from state_machines.regions.levels import KINDS, NEWEST, OLDEST, TEXT, Form, lacking, newer, unstored
from state_machines.regions.marks import STORE, Mark, MarkKind, Marks

OF_LEVEL_1 = {
    "assign", "close", "move", "assign_many", "close_many", "close_stray", "crash", "fence_log", "split_log",
    "create_table", "enable_table", "disable_table", "delete_table", "create_namespace", "delete_namespace",
    "drain_server", "forget_server", "mark", "unmark",
}  # fmt: skip
OF_LEVEL_2 = {
    "split", "merge", "discard_parent", "clone_table", "restore_snapshot", "snapshot_table", "delete_snapshot",
    "publish", "unpublish", "truncate_table", "modify_table", "stop_tables", "start_tables", "region_work",
    "table_work", "balance", "fix_keys", "recover_server", "adopt", "forget_region",
    "assign_regions", "close_regions", "remove_row", "adopt_table",
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(OF_LEVEL_1 | OF_LEVEL_2))
@pytest.mark.parametrize("level", [1, 2])
def test_each_kind_begins_from_its_level_on(level: int, kind: str) -> None:
    found = lacking(level, kind)
    if level == 1 and kind in OF_LEVEL_2:
        assert found is not None
        assert found.what == f"{kind} needs level 2 of the store, and it has 1, which older daemons read"
        assert "'regent regions upgrade'" in found.remedy
        assert str(found) == f"{found.what}: {found.remedy}"
    else:
        assert found is None


def test_the_table_has_the_kinds_of_this_page() -> None:
    assert (set(KINDS), OF_LEVEL_1 & OF_LEVEL_2) == (OF_LEVEL_1 | OF_LEVEL_2, set())
    assert (OLDEST, NEWEST) == (1, 2)


@pytest.mark.parametrize("floor", [1, 2])
@pytest.mark.parametrize("forms", [one for count in range(len(Form) + 1) for one in combinations(Form, count)])
def test_a_store_that_names_no_level_has_the_lowest_one_that_allows_its_rows(
    floor: int, forms: tuple[Form, ...]
) -> None:
    assert unstored(floor, forms) == (2 if forms or floor == 2 else 1)


@pytest.mark.parametrize(("level", "begins"), [(1, True), (2, True), (3, False), (9999, False)])
def test_a_daemon_begins_on_levels_that_it_knows(level: int, begins: bool) -> None:
    why = newer(level)
    assert (why == "") is begins
    if not begins:
        assert why.startswith(f"the store has level {level}, and this daemon knows levels up to 2")
        assert why.endswith("upgrade this daemon")


@pytest.mark.parametrize(("text", "good"), [("1", True), ("2", True), ("9999", True), ("0", False), ("", False),
                                            ("02", False), ("-1", False), ("2 ", False), ("10000", False)])  # fmt: skip
def test_a_level_is_a_small_number(text: str, good: bool) -> None:
    assert (TEXT.fullmatch(text) is not None) is good


def test_marks_without_a_level_are_those_of_an_older_daemon() -> None:
    marks = Marks()
    assert marks.level == OLDEST
    marks.put(Mark(MarkKind.LEVEL, STORE, "2"))
    assert marks.level == 2
