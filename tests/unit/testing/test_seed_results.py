"""Marks, outcomes of several runs, and the page docs/evidence/conformance.md."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import conformance
from tests.kit import seed_results
from tests.stories.script import Story

ROOT = Path(__file__).resolve().parents[3]
QUICK = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Half of what pytest's start takes is plugins that these projects do not use."""
CONFTEST = """
from tests.kit import seed_results
def pytest_configure(config):
    config.addinivalue_line("markers", "seed(*rows): rows")
    config.addinivalue_line("markers", "kafka(*tests): tests")
    config.pluginmanager.register(seed_results.Recorder(config.rootpath), "seed-results")
"""
TESTS = """
import pytest
@pytest.mark.seed("S4-1", "S4-2")
@pytest.mark.parametrize("number", [1, 2])
def test_two(number): assert number < {limit}
@pytest.mark.seed("S4-1")
@pytest.mark.kafka("OneTest.testOne")
def test_one(): pass
def test_unmarked(): pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Makes a project with two marked tests."""
    (tmp_path / "docs" / "evidence").mkdir(parents=True)
    (tmp_path / seed_results.CHECKLIST).write_text("row,behaviour\nS4-1,first\nS4-2,second\nS4-3,third\n")
    (tmp_path / seed_results.KAFKA_TESTS).write_text("test,behaviour,state,why\nOneTest.testOne,one,,\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS.format(limit=3))
    return tmp_path


def run(project: Path, *arguments: str) -> str:
    """Runs the project's tests; returns the output."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, **QUICK, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def results(project: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project / seed_results.RESULTS).read_text())
    return found


def test_outcomes_of_marked_tests_are_kept_and_merged(project: Path) -> None:
    run(project)
    assert results(project)["test_it.py::test_one"] == {"rows": ["OneTest.testOne", "S4-1"], "outcome": "passed"}
    (project / "test_it.py").write_text(TESTS.format(limit=2))
    run(project, "test_it.py::test_two[2]")
    assert {name: result["outcome"] for name, result in results(project).items()} == {
        "test_it.py::test_one": "passed",
        "test_it.py::test_two[1]": "passed",
        "test_it.py::test_two[2]": "failed",
    }


def test_several_workers_keep_one_set_of_results(project: Path) -> None:
    run(project)
    before = results(project)
    (project / seed_results.RESULTS).unlink()
    run(project, "-p", "xdist", "-n2")
    assert results(project) == before
    run(project, "-p", "xdist", "-n2", "-k", "test_one")
    assert results(project) == before


def test_results_of_tests_that_are_gone_are_dropped(project: Path) -> None:
    (project / "test_other.py").write_text(TESTS.format(limit=3))
    run(project)
    (project / "test_other.py").unlink()
    (project / "test_it.py").write_text(TESTS.format(limit=3).replace("test_one", "test_uno"))
    run(project)
    assert set(results(project)) == {"test_it.py::test_two[1]", "test_it.py::test_two[2]", "test_it.py::test_uno"}


def test_error_in_a_fixture_counts_as_failed(project: Path) -> None:
    (project / "test_it.py").write_text(
        "import pytest\n@pytest.fixture\ndef bad(): yield; raise ValueError\n"
        "@pytest.mark.seed('S4-3')\ndef test_ok(bad): pass\n"
    )
    run(project)
    assert results(project)["test_it.py::test_ok"] == {"rows": ["S4-3"], "outcome": "failed"}


@pytest.mark.parametrize("mark", ["seed('S9-9')", "kafka('OneTest.testTwo')", "kafka('S4-1')"])
def test_unknown_row_stops_the_run(project: Path, mark: str) -> None:
    (project / "test_it.py").write_text(f"import pytest\n@pytest.mark.{mark}\ndef test_it(): pass\n")
    table = "checklist" if "seed" in mark else "kafka-tests"
    assert f"no such row in docs/evidence/{table}.csv" in run(project)
    assert not (project / seed_results.RESULTS).exists()


def test_page_counts_a_row_as_covered_only_if_all_its_tests_passed() -> None:
    rows = {
        "S4-1": conformance.Row("first", ""),
        "S4-2": conformance.Row("second", ""),
        "S4-3": conformance.Row("third", ""),
        "S4-4": conformance.Row("fourth", "It is not done."),
        "S4-5": conformance.Row("fifth", "A test exists, too."),
    }
    page = conformance.render(
        rows,
        {
            "a.py::good[1]": {"rows": ["S4-1", "S4-2"], "outcome": "passed"},
            "a.py::good[2]": {"rows": ["S4-1", "S4-2"], "outcome": "passed"},
            "a.py::bad": {"rows": ["S4-2", "S4-5"], "outcome": "failed"},
        },
    )
    assert "1 of 5 rows are covered, 1 more are answered" in page
    assert "Not covered: S4-2, S4-3, S4-5." in page
    assert "| S4-1 | first | covered | `a.py::good` |" in page
    assert "| S4-2 | second | failing | `a.py::bad`<br>`a.py::good` |" in page
    assert "| S4-3 | third | no test |  |" in page
    assert "| S4-4 | fourth | answered | It is not done. |" in page
    assert "| S4-5 | fifth | failing | `a.py::bad` |" in page


def test_the_page_names_for_each_test_of_kafka_a_test_here_or_the_reason() -> None:
    rows = [
        conformance.KafkaTest("ATest.testA", "a", "", "here it is two writes"),
        conformance.KafkaTest("ATest.testB", "b", "", ""),
        conformance.KafkaTest("ATest.testC", "c", "does not apply", "Only brokers do it."),
        conformance.KafkaTest("ATest.testD", "d", "missing", "Nothing does it."),
        conformance.KafkaTest("ATest.testE", "e", "", ""),
    ]
    found = {
        "a.py::good": {"rows": ["S4-1", "ATest.testA"], "outcome": "passed"},
        "a.py::bad": {"rows": ["ATest.testE"], "outcome": "failed"},
    }
    page = conformance.render_kafka(rows, found)
    assert "1 of 5 are covered; 1 do not apply; missing: 1." in page
    assert "Not covered: ATest.testB, ATest.testE." in page
    assert "| ATest.testA | a | covered | `a.py::good`<br>here it is two writes |" in page
    assert "| ATest.testB | b | no test |  |" in page
    assert "| ATest.testC | c | does not apply | Only brokers do it. |" in page
    assert "| ATest.testD | d | missing | Nothing does it. |" in page
    assert "| ATest.testE | e | failing | `a.py::bad` |" in page


def test_committed_checklist_has_every_row_once() -> None:
    rows = seed_results.read_names(ROOT / seed_results.CHECKLIST)
    assert rows[:88] == [f"S4-{number}" for number in range(1, 89)]
    assert len(rows) == len(set(rows))


def marks_and_stories() -> set[str]:
    """Returns every name in a mark of a test or in the header of a story."""
    found = {
        str(argument.value)
        for file in (ROOT / "tests").rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.kafka"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    }
    return found.union(*(Story.read(path).kafka_tests for path in (ROOT / "tests" / "stories").glob("*.txt")))


def test_every_test_of_kafka_is_shown_by_a_test_or_has_its_reason() -> None:
    """A row has either a test or a reason, and each name stands once."""
    rows = conformance.read_kafka_tests()
    assert len({row.name for row in rows}) == len(rows) > 200
    shown = marks_and_stories()
    assert [row.name for row in rows if not row.state and row.name not in shown] == []
    assert [row.name for row in rows if row.state and row.name in shown] == []
    assert shown <= {row.name for row in rows}
    for row in rows:
        assert row.behaviour, row.name
        assert row.state in ("", *conformance.NOT_MARKED), row.name
        assert not row.state or row.why.endswith("."), f"{row.name}: no sentence says why"
