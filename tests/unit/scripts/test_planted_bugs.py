"""The bugs that ``make mutants`` plants find their code: else the tests are measured without them."""

from __future__ import annotations

import pytest

from tests.mutants.coverage import Coverage, Ran, file_of, nearest
from tests.mutants.planted import DoesNotApply, planted, rooms


@pytest.mark.parametrize("room", rooms())
def test_each_bug_finds_the_code_that_it_changes(room: str) -> None:
    found, lost = 0, list[str]()
    for bug in planted():
        if bug.room == room:
            try:
                assert bug.mutant
                found += 1
            except DoesNotApply as error:
                lost.append(f"tests/mutants/planted/{room}.toml: {error}")
    assert not lost, "name the code that does it now:\n" + "\n".join(lost)
    assert found


@pytest.mark.parametrize(
    ("tests", "room"),
    [
        (["tests/unit/cli/test_a.py::test_b", "tests/unit/cli/commands/test_c.py"], "tests/unit/cli/commands/"),
        (["tests/unit/cli/test_a.py::test_b", "tests/stories/test_d.py"], "tests/unit/cli/"),
        (["tests/unit/admin/test_a.py", "tests/stories/test_d.py"], ""),
    ],
)
def test_the_nearest_tests_stand_in_the_room_of_the_function_or_above(tests: list[str], room: str) -> None:
    assert nearest("cli/commands/a.py", tests) == room


def test_tests_of_the_functions_room_run_before_cheaper_ones() -> None:
    ran = {"tests/stories/test_s.py::a": 0.1, "tests/unit/cli/test_c.py::b": 9.0, "tests/unit/admin/test_d.py::c": 1.0}
    found = Coverage({}, {test: Ran(["cli/a.py::f"], seconds) for test, seconds in ran.items()})
    assert [file_of(test) for test in found.covering("cli/a.py", "f")] == [
        "tests/unit/cli/test_c.py",
        "tests/stories/test_s.py",
        "tests/unit/admin/test_d.py",
    ]
