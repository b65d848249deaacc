"""The bugs that ``make mutants`` plants: those written by hand apply to the product as it is."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.mutants.planted import DoesNotApply, Planted, planted
from tests.mutants.sites import all_generated, drawn
from tests.mutants.source import ROOT


@pytest.mark.parametrize("bug", planted(), ids=lambda bug: bug.id)
def test_a_bug_written_by_hand_applies(bug: Planted) -> None:
    text = (ROOT / bug.file).read_text(encoding="utf-8")
    assert ast.dump(ast.parse(bug.mutant)) != ast.dump(ast.parse(text))
    assert bug.wrong.endswith(".")


def test_bugs_have_names_of_their_own() -> None:
    assert max(Counter(bug.id for bug in planted()).values()) == 1
    assert len(planted()) >= 75


def test_layout_and_comments_do_not_matter() -> None:
    bug = Planted("one", "a.py", "A.f", "g(a, b)", "g(b, a)", "It is wrong.")
    text = "class A:\n    def f(a, b):\n        return g(  # why\n            a,\n            b,\n        )\n"
    assert "return g(b, a)\n" in bug.planted_in(text)


@pytest.mark.parametrize("body", ["return h(a, b)", "return g(a, b) + g(a, b)"])
def test_a_fragment_occurs_once(body: str) -> None:
    bug = Planted("one", "a.py", "f", "g(a, b)", "g(b, a)", "It is wrong.")
    with pytest.raises(DoesNotApply, match="not once"):
        bug.planted_in(f"def f(a, b):\n    {body}\n")


def test_drawn_mutants_are_other_programs() -> None:
    for mutant in drawn(100, seed=3):
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(mutant.mutant)) != ast.dump(ast.parse(text)), mutant


def test_a_smaller_draw_is_the_begin_of_a_larger_one() -> None:
    assert drawn(50, seed=4)[:20] == drawn(20, seed=4)
    assert len({mutant.id for mutant in all_generated()}) == len(all_generated())
