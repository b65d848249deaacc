"""The bugs that ``make mutants`` plants, and the judge of mutants."""

from __future__ import annotations

import ast
import builtins
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from tests.mutants.coverage import IMPORTS, Coverage, Ran, reporting, selectable_files
from tests.mutants.judge import CAUGHT, SURVIVED, UNCOVERED, Judge
from tests.mutants.planted import DoesNotApply, Planted, planted
from tests.mutants.sites import all_generated, drawn
from tests.mutants.source import AREAS, MODULE, ROOT, product_files

OF_PROCEDURES_AND_REGIONS = (
    "procedures",
    "kafka_procedures",
    "regions",
    "region_procedures",
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


FILE = "state_machines/admin_rules/mutation_quotas.py"
TEST = "tests/unit/state_machines/admin_rules/test_clients.py"
WITHOUT_ID = f"{TEST}::test_a_client_without_an_id_has_the_users_rate_only"


class Change(NamedTuple):
    """A mutant of a text that occurs once in the file."""

    old: str
    new: str
    function: str = "levels"
    id: str = "a change"
    file: str = FILE
    wrong: str = "It is wrong."

    @property
    def mutant(self) -> str:
        text = (ROOT / self.file).read_text(encoding="utf-8")
        assert text.count(self.old) == 1
        return text.replace(self.old, self.new)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    known = Coverage(tests={WITHOUT_ID: Ran([f"{FILE}::levels"], 0.1)})
    found = Judge(known, simulation=False)
    yield found
    found.close()


def test_a_failing_test_catches_a_mutant(judge: Judge) -> None:
    verdict = judge.judge(Change("        if client:\n", "        if True:\n"), by_hand=False)
    assert (verdict.outcome, verdict.by, verdict.unsteady) == (CAUGHT, WITHOUT_ID, [])


def test_a_module_that_cannot_be_imported_is_caught(judge: Judge) -> None:
    assert judge.judge(Change("import math\n", "import no_such_module\n"), by_hand=False).outcome == CAUGHT


def test_a_mutant_without_a_failing_test_survives_and_is_removed(judge: Judge) -> None:
    assert judge.judge(Change('EVERY: Final = ""', 'EVERY: Final = "" * 2'), by_hand=True).outcome == SURVIVED
    verdict = judge.judge(Change("THROTTLE_MS_MAX: Final = 2**31 - 1", "THROTTLE_MS_MAX: Final = 2**31"), by_hand=True)
    assert verdict.outcome == SURVIVED, "the selected test does not depend on it"
    assert (judge.root / FILE).read_text(encoding="utf-8") == (ROOT / FILE).read_text(encoding="utf-8")


def test_a_mutant_that_no_test_runs_has_its_own_verdict(judge: Judge) -> None:
    verdict = judge.judge(Change("        return 0\n", "        return 1\n", "_wait_ms"), by_hand=False)
    assert (verdict.outcome, verdict.tests) == (UNCOVERED, 0)


def test_the_files_that_cost_least_per_test_come_first() -> None:
    tests = {
        "a.py::slow": Ran(["m.py::f"], 9.0),
        "b.py::one": Ran(["m.py::f"], 0.1),
        "b.py::two": Ran(["m.py::f", "m.py::g"], 0.1),
        "b.py::broken": Ran(["m.py::f"], 0.1, failed=True),
        "c.py::other": Ran(["n.py::f"], 0.1),
        IMPORTS: Ran(["m.py::at_import"], 0.0),
    }
    known = Coverage(tests=tests)
    assert known.covering("m.py", "f") == ["b.py::one", "b.py::two", "a.py::slow"]
    assert known.covering("m.py", "f", ["a.py"]) == ["a.py::slow"]
    assert known.covering("m.py", "not_run") == []
    for function in ("at_import", MODULE):
        assert set(known.covering("m.py", function)) == {"b.py::one", "b.py::two", "a.py::slow"}


def test_every_function_of_the_product_reports_itself() -> None:
    for file in product_files():
        text, names = (ROOT / file).read_text(encoding="utf-8"), list[str]()
        compile(reporting(text, file, names), file, "exec")
        assert len(names) == len(set(names))
        assert {name.partition("::")[0] for name in names} <= {file}


def test_a_function_reports_itself_when_it_runs() -> None:
    names: list[str] = []
    text = (
        '"""A text."""\n\n\ndef f():\n    """A text."""\n    return 1\n\n\ndef g():\n    for _ in ():\n        pass\n'
    )
    scope: dict[str, object] = {"names": ()}
    exec(reporting(text, "m.py", names).replace("from tests.mutants.hits import hits as _hits", "_hits = set()"), scope)
    exec("g()", scope)
    assert [names[hit] for hit in scope["_hits"]] == ["m.py::g"]  # type: ignore[attr-defined]


def test_tests_that_read_the_source_are_not_selected() -> None:
    selected = set(selectable_files())
    assert {TEST, "tests/simulation/regions/test_exits_servers.py"} <= selected, "stories in virtual time catch, too"
    assert not [file for file in selected if "test_mutants" in file]
