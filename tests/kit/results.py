"""What runs of tests leave: results of marked tests, and journals of daemons for the pipeline's tests."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from controller.journal.segments import segments_in

RESULTS = Path("build", "seed-results.json")
CHECKLIST = Path("docs", "evidence", "checklist.csv")
KAFKA_TESTS = Path("docs", "evidence", "kafka-tests.csv")
TABLES = {"seed": CHECKLIST, "kafka": KAFKA_TESTS}
"""The table that holds what each kind of mark may name, in its first column."""
ROWS = "rows"
"""The property of a report that names what its test shows: who collects tests need not be who reports them."""


class Recorder:
    """Collects marks and outcomes of one run. An unknown name in a mark is an error: the mark would prove nothing."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rows: dict[str, list[str]] = {}
        self._outcomes: dict[str, str] = {}
        self._collected: set[str] = set()
        self._unmarked: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self._collected.update(item.nodeid for item in items)
        for kind, table in TABLES.items():
            known = read_names(self._root / table)
            for item in items:
                rows = [row for mark in item.iter_markers(kind) for row in mark.args]
                unknown = [row for row in rows if row not in known]
                if unknown:
                    raise pytest.UsageError(f"{item.nodeid}: no such row in {table}: {', '.join(map(str, unknown))}")
                if rows:
                    found = self._rows[item.nodeid] = sorted({*self._rows.get(item.nodeid, ()), *rows})
                    item.user_properties.append((ROWS, found))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Adds the tests that a worker collected."""
        self._collected.update(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        shown = dict(report.user_properties).get(ROWS)
        if isinstance(shown, list):
            self._rows[report.nodeid] = shown
        else:
            self._unmarked.add(report.nodeid)
        if report.nodeid in self._rows and (report.when == "call" or not report.passed):
            worse = self._outcomes.get(report.nodeid) == "failed"
            self._outcomes[report.nodeid] = "failed" if worse else report.outcome

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self._outcomes or hasattr(session.config, "workerinput"):
            return
        path = self._root / RESULTS
        found = json.loads(path.read_text()) if path.exists() else {}
        results = {test: result for test, result in found.items() if not self._stale(session, test)}
        results |= {test: {"rows": self._rows[test], "outcome": was} for test, was in self._outcomes.items()}
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")

    def _stale(self, session: pytest.Session, test: str) -> bool:
        """Returns whether an earlier run's test is gone: its file is, or a run of whole files collects it no longer."""
        file, _, _ = test.partition("::")
        if not (self._root / file).exists():
            return True
        chosen = session.config.option.keyword or session.config.option.markexpr
        whole = not chosen and not any("::" in argument for argument in session.config.args)
        ran = any(known.startswith(f"{file}::") for known in self._collected)
        return whole and ran and (test not in self._collected or test in self._unmarked)


def read_names(table: Path) -> list[str]:
    """Returns the first column of a table, without its heading."""
    with table.open(newline="") as lines:
        return [row[0] for row in list(csv.reader(lines))[1:]]


LEFT: Final = Path(__file__).parents[2] / "build" / "journals"
BYTES_MAX: Final = 32_000_000
"""Of one daemon; a larger journal is not left."""


def leave(journal: Path, name: str) -> None:
    """Copies a daemon's journal, once it is dead; ``name`` is the cluster's and the daemon's together.

    What an earlier run of the same folder of tests left is removed first. Outside of pytest nothing is left.
    """
    test = os.environ.get("PYTEST_CURRENT_TEST")
    files = segments_in(journal)
    if test is None or not files or sum(file.stat().st_size for file in files) > BYTES_MAX:
        return
    module = Path(test.partition("::")[0])
    into = _emptied(module.parent.name) / f"{module.stem}-{name}"
    into.mkdir()
    for file in files:
        shutil.copy(file, into)


def left() -> dict[str, list[str]]:
    """Returns folders of journals by the folder of their tests."""
    return {suite.name: sorted(map(str, suite.glob("*/*"))) for suite in sorted(LEFT.glob("*"))}


@cache
def _emptied(suite: str) -> Path:
    """Returns the folder of this run, which all processes of the run share."""
    folder = LEFT / suite / os.environ.get("PYTEST_XDIST_TESTRUNUID", f"process-{os.getpid()}")
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in set(folder.parent.iterdir()) - {folder}:
        shutil.rmtree(earlier, ignore_errors=True)
    return folder
