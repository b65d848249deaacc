"""The judge of mutants: the selection of tests, and the verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.mutants.coverage import IMPORTS, Coverage, Ran, reporting, selectable_files
from tests.mutants.judge import CAUGHT, SURVIVED, UNCOVERED, Judge
from tests.mutants.source import MODULE, ROOT, product_files

FILE = "state_machines/admin_rules/mutation_quotas.py"
TEST = "tests/unit/state_machines/admin_rules/test_mutation_quotas.py"
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
    assert "tests/unit/state_machines/admin_rules/test_acls.py" in selectable_files()
    assert not [file for file in selectable_files() if "test_mutants" in file]
