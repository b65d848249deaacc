"""What runs of tests leave: marks and outcomes, journals for the pipeline, and the watcher of long tests."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from metadata_store.codecs.cluster import Config
from scripts import conformance
from state_machines.model.types import Leadership
from tests.kit import results
from tests.stories.script import Story
from tests.verify.min_isr_watch import MIN_ISR, MinIsrWatch

ROOT = Path(__file__).resolve().parents[3]
QUICK = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Half of what pytest's start takes is plugins that these projects do not use."""
CONFTEST = """
from tests.kit import results
def pytest_configure(config):
    config.addinivalue_line("markers", "seed(*rows): rows")
    config.addinivalue_line("markers", "kafka(*tests): tests")
    config.pluginmanager.register(results.Recorder(config.rootpath), "seed-results")
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
    (tmp_path / results.CHECKLIST).write_text("row,behaviour\nS4-1,first\nS4-2,second\nS4-3,third\n")
    (tmp_path / results.KAFKA_TESTS).write_text("test,behaviour,state,why\nOneTest.testOne,one,,\n")
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


def read(project: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project / results.RESULTS).read_text())
    return found


def test_outcomes_of_marked_tests_are_kept_and_merged(project: Path) -> None:
    run(project)
    assert read(project)["test_it.py::test_one"] == {"rows": ["OneTest.testOne", "S4-1"], "outcome": "passed"}
    (project / "test_it.py").write_text(TESTS.format(limit=2))
    run(project, "test_it.py::test_two[2]")
    assert {name: result["outcome"] for name, result in read(project).items()} == {
        "test_it.py::test_one": "passed",
        "test_it.py::test_two[1]": "passed",
        "test_it.py::test_two[2]": "failed",
    }


def test_several_workers_keep_one_set_of_results(project: Path) -> None:
    run(project)
    before = read(project)
    (project / results.RESULTS).unlink()
    run(project, "-p", "xdist", "-n2")
    assert read(project) == before
    run(project, "-p", "xdist", "-n2", "-k", "test_one")
    assert read(project) == before


def test_results_of_tests_that_are_gone_are_dropped(project: Path) -> None:
    (project / "test_other.py").write_text(TESTS.format(limit=3))
    run(project)
    (project / "test_other.py").unlink()
    (project / "test_it.py").write_text(TESTS.format(limit=3).replace("test_one", "test_uno"))
    run(project)
    assert set(read(project)) == {"test_it.py::test_two[1]", "test_it.py::test_two[2]", "test_it.py::test_uno"}


def test_error_in_a_fixture_counts_as_failed(project: Path) -> None:
    (project / "test_it.py").write_text(
        "import pytest\n@pytest.fixture\ndef bad(): yield; raise ValueError\n"
        "@pytest.mark.seed('S4-3')\ndef test_ok(bad): pass\n"
    )
    run(project)
    assert read(project)["test_it.py::test_ok"] == {"rows": ["S4-3"], "outcome": "failed"}


@pytest.mark.parametrize("mark", ["seed('S9-9')", "kafka('OneTest.testTwo')", "kafka('S4-1')"])
def test_unknown_row_stops_the_run(project: Path, mark: str) -> None:
    (project / "test_it.py").write_text(f"import pytest\n@pytest.mark.{mark}\ndef test_it(): pass\n")
    table = "checklist" if "seed" in mark else "kafka-tests"
    assert f"no such row in docs/evidence/{table}.csv" in run(project)
    assert not (project / results.RESULTS).exists()


def test_page_counts_a_row_as_covered_only_if_all_its_tests_passed() -> None:
    rows = {
        "S4-1": conformance.Row("first", "", ""),
        "S4-2": conformance.Row("second", "", ""),
        "S4-3": conformance.Row("third", "", ""),
        "S4-4": conformance.Row("fourth", "It is one.", ""),
        "S4-5": conformance.Row("fifth", "A test exists, too.", ""),
        "S4-6": conformance.Row("sixth", "", "All of it."),
        "S4-7": conformance.Row("seventh", "", "Half of it."),
        "S4-8": conformance.Row("eighth", "", "Half of it, and the other half fails."),
        "S4-9": conformance.Row("ninth", "It is two.", ""),
    }
    page = conformance.render(
        rows,
        {
            "a.py::good[1]": {"rows": ["S4-1", "S4-2", "S4-7", "S4-9"], "outcome": "passed"},
            "a.py::good[2]": {"rows": ["S4-1", "S4-2"], "outcome": "passed"},
            "a.py::bad": {"rows": ["S4-2", "S4-5", "S4-8"], "outcome": "failed"},
        },
    )
    assert "2 of 9 rows are covered, 1 more are answered. 1 are built in part, 1 are not built." in page
    assert "Without a passing test: S4-2, S4-3, S4-5, S4-8." in page
    assert "Not built: S4-6." in page
    assert "| S4-1 | first | covered | `a.py::good` |" in page
    assert "| S4-2 | second | failing | `a.py::bad`<br>`a.py::good` |" in page
    assert "| S4-3 | third | no test |  |" in page
    assert "| S4-4 | fourth | answered | It is one. |" in page
    assert "| S4-5 | fifth | failing | `a.py::bad`<br>A test exists, too. |" in page
    assert "| S4-6 | sixth | not built | All of it. |" in page
    assert "| S4-7 | seventh | in part | `a.py::good`<br>Half of it. |" in page
    assert "| S4-8 | eighth | failing | `a.py::bad`<br>Half of it, and the other half fails. |" in page
    assert "| S4-9 | ninth | covered | `a.py::good`<br>It is two. |" in page


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


PARTS = {"S4": 88, "S0": 86, "S1": 98, "S2": 57, "S3": 48}
"""The parts of the checklist in its order, and how many rows each has."""


def test_committed_checklist_has_every_row_once() -> None:
    rows = results.read_names(ROOT / results.CHECKLIST)
    assert rows == [f"{part}-{number}" for part, count in PARTS.items() for number in range(1, count + 1)]


@cache
def named() -> frozenset[tuple[str, str]]:
    """Returns each function that marks a test, or makes a case of one, with each name that it is given."""
    return frozenset(
        (ast.unparse(call.func), str(argument.value))
        for file in (ROOT / "tests").rglob("*.py")
        if "pytest.mark." in (text := file.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("pytest.mark.kafka", "pytest.mark.seed", "case")
        for argument in call.args
        if isinstance(argument, ast.Constant)
    )


def marked(*functions: str) -> set[str]:
    return {name for function, name in named() if function in functions}


def stories() -> list[Story]:
    return [Story.read(path) for path in (ROOT / "tests" / "stories").glob("*.txt")]


def test_every_row_has_a_test_or_an_answer_or_says_what_is_missing() -> None:
    shown = marked("pytest.mark.seed", "case").union(*(story.seeds for story in stories()))
    for name, row in conformance.read_rows().items():
        assert row.behaviour, name
        assert name in shown or row.answer or row.missing, f"{name} has no test, no answer, and nothing is missing"
        assert not (row.answer and row.missing), f"{name} has an answer: nothing can be missing besides"
        for text in (row.answer, row.missing):
            assert not text or text.endswith("."), f"{name}: {text}"


def test_the_answer_about_the_speed_of_assignments_is_what_was_measured() -> None:
    page = (ROOT / "docs" / "reference" / "performance-regions.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| A1 |")]
    answer = conformance.read_rows()["S1-17"].answer
    assert rows
    for row in rows:
        assert row[3].split()[0] in answer, f"the page has {row[3]} for {row[1]}, the answer does not"
    assert ("its goal is missed" in answer) is any("**no**" in row[-1] for row in rows)


def test_every_test_of_kafka_is_shown_by_a_test_or_has_its_reason() -> None:
    """A row has either a test or a reason, and each name stands once."""
    rows = conformance.read_kafka_tests()
    assert len({row.name for row in rows}) == len(rows) > 200
    shown = marked("pytest.mark.kafka").union(*(story.kafka_tests for story in stories()))
    assert [row.name for row in rows if not row.state and row.name not in shown] == []
    assert [row.name for row in rows if row.state and row.name in shown] == []
    assert shown <= {row.name for row in rows}
    for row in rows:
        assert row.behaviour, row.name
        assert row.state in ("", *conformance.NOT_MARKED), row.name
        assert not row.state or row.why.endswith("."), f"{row.name}: no sentence says why"


FILE = "0000000002-000000000001.jsonl"


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Makes a daemon's journal; copies go below ``tmp_path``."""
    monkeypatch.setattr(results, "LEFT", tmp_path / "left")
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "this-run")
    results._emptied.cache_clear()
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / FILE).write_text("{}\n")
    (folder / "notes").write_text("none of the journal's")
    yield folder
    results._emptied.cache_clear()


def test_a_journal_is_left_under_its_tests_and_an_earlier_run_is_forgotten(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/real/cluster/test_role.py::test_it (teardown)")
    (tmp_path / "left" / "cluster" / "run-before" / "test_old-c-1").mkdir(parents=True)
    results.leave(journal, "c-1")
    results._emptied.cache_clear()  # as in another process of the same run
    results.leave(journal, "c-2")
    folders = [str(tmp_path / "left" / "cluster" / "this-run" / f"test_role-c-{number}") for number in (1, 2)]
    assert results.left() == {"cluster": folders}
    assert [file.name for file in Path(folders[0]).iterdir()] == [FILE]


def test_nothing_is_left_of_no_journal_of_a_large_one_and_outside_of_tests(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results.leave(tmp_path / "nowhere", "c-1")
    monkeypatch.setattr(results, "BYTES_MAX", 1)
    results.leave(journal, "c-2")
    monkeypatch.setattr(results, "BYTES_MAX", 1_000)
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    results.leave(journal, "c-3")
    assert results.left() == {}


SPOT = ("orders", 0)


def state(isr: tuple[int, ...], version: int = 0) -> Leadership:
    return Leadership(1, 0, isr, 1, version)


@pytest.mark.parametrize(
    ("own", "isr", "margin"),
    [(None, (1, 2, 3), 1), (None, (1, 2), 0), (None, (1,), -1), ("1", (1,), 0), ("3", (1, 2), -1), ("3", (), -3)],
)
def test_an_isr_below_the_topics_own_value_or_the_brokers_default_is_found(
    own: str | None, isr: tuple[int, ...], margin: int
) -> None:
    watch = MinIsrWatch(2)
    watch.judge({SPOT: state(isr)}, {"orders": Config({MIN_ISR: own} if own is not None else {})})
    assert watch.margins == {margin: 1}
    assert bool(watch.below) is (margin < 0)


def test_each_state_is_judged_once_and_states_that_were_not_read_are_counted() -> None:
    watch = MinIsrWatch(2)
    for isr, version in [((1, 2), 4), ((1, 2), 4), ((1, 2, 3), 5), ((1, 3), 8)]:
        watch.judge({SPOT: state(isr, version)}, {})
    assert (watch.readings, watch.writes, watch.unseen) == (4, 4, 2)
    assert watch.margins == {0: 2, 1: 1}
