"""The bugs that ``make mutants`` plants find their code: else the tests are measured without them."""

from __future__ import annotations

import pytest

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
