"""The bugs that ``make mutants`` plants: those written by hand apply to the present product."""

from __future__ import annotations

import ast
import builtins
import tomllib
from collections import Counter
from functools import cache

import pytest

from tests.mutants.planted import DoesNotApply, Planted, planted
from tests.mutants.sites import all_generated, drawn
from tests.mutants.source import AREAS, ROOT, product_files

OF_PROCEDURES_AND_REGIONS = (
    "procedures",
    "kinds",
    "regions",
    "region_kinds",
    "records",
    "catalog",
    "region_listener",
    "regent_agent",
    "cli",
    "http",
)


@cache
def attributes_of_the_product() -> frozenset[str]:
    """Collects every attribute that the product reads or sets."""
    return frozenset().union(*(attributes_of(ast.parse((ROOT / file).read_text())) for file in product_files()))


def attributes_of(tree: ast.AST) -> frozenset[str]:
    """Collects the attributes that code reads or sets."""
    return frozenset(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def names_of(tree: ast.AST) -> frozenset[str]:
    """Collects the names that code reads or sets."""
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def stored_in(tree: ast.AST) -> frozenset[str]:
    """Collects the names that code sets."""
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


@pytest.mark.parametrize("bug", planted(), ids=lambda bug: bug.id)
def test_a_bug_written_by_hand_applies(bug: Planted) -> None:
    text = (ROOT / bug.file).read_text(encoding="utf-8")
    assert ast.dump(ast.parse(bug.mutant)) != ast.dump(ast.parse(text))
    assert bug.wrong.endswith(".")


def test_each_bug_has_its_own_name() -> None:
    assert max(Counter(bug.id for bug in planted()).values()) == 1
    assert len(planted()) >= 190


@pytest.mark.parametrize("bug", planted(), ids=lambda bug: bug.id)
def test_a_bug_uses_existing_names(bug: Planted) -> None:
    tree = ast.parse((ROOT / bug.file).read_text(encoding="utf-8"))
    mutant = ast.parse(bug.mutant)
    assert names_of(mutant) - names_of(tree) - set(dir(builtins)) <= stored_in(mutant)
    assert attributes_of(mutant) <= attributes_of_the_product()


def test_every_package_is_an_area_and_every_room_has_bugs() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel["packages"]) - {"testing", "examples"} == set(AREAS)
    count = Counter(bug.room for bug in planted())
    assert all(count[room] >= 7 for room in OF_PROCEDURES_AND_REGIONS), count


def planted_in(text: str, old: str, new: str) -> str:
    """Plants a bug in the function ``A.f``."""
    return Planted("one", "a.py", "A.f", old, new, "It is wrong.").planted_in(text, "A.f")


def test_layout_and_comments_do_not_matter() -> None:
    text = "class A:\n    def f(a, b):\n        return g(  # why\n            a,\n            b,\n        )\n"
    assert "return g(b, a)\n" in planted_in(text, "g(a, b)", "g(b, a)")


def test_locals_may_be_renamed() -> None:
    text = "class A:\n    def f(found, b):\n        return g(found, found.a, b, 1)\n"
    assert "return g(b, found.a, found, 1)\n" in planted_in(text, "g(a, a.a, b,", "g(b, a.a, a,")


@pytest.mark.parametrize("body", ["h(a, b)", "g(a, b) + g(a, b)", "g(b, b)", "g(c, c)", "g(a, b, c)"])
def test_a_fragment_occurs_once(body: str) -> None:
    with pytest.raises(DoesNotApply, match="not once"):
        planted_in(f"class A:\n    def f(a, b):\n        return {body}\n", "g(a, b)", "g(b, a)")


def test_several_lines_keep_their_indentation() -> None:
    text = "class A:\n    def f(a):\n        if a:\n            g(a)\n        return a\n"
    changed = "class A:\n    def f(a):\n        if not a:\n            h(a)\n        g(a)\n        return a\n"
    assert planted_in(text, "if a:\n    g(a)", "if not a:\n    h(a)\ng(a)") == changed


def test_drawn_mutants_are_other_programs() -> None:
    for mutant in drawn(100, seed=3):
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(mutant.mutant)) != ast.dump(ast.parse(text)), mutant


def test_a_larger_draw_begins_with_the_smaller_one() -> None:
    assert drawn(50, seed=4)[:20] == drawn(20, seed=4)
    assert len({mutant.id for mutant in all_generated()}) == len(all_generated())
