"""Follows a test run, as a plugin of pytest: the functions that each test ran, the test that runs, and failures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.mutants import hits

PROGRESS: Final = "MUTANTS_PROGRESS"
"""Variable that names the file in which the course of a run is kept."""

_seconds: dict[str, float] = {}
_failed: set[str] = set()
_begun: list[str] = []


def pytest_configure() -> None:
    """Notes that this process runs tests."""
    hits.in_tests.append(True)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Notes the test that begins: a run that is ended by force ends in it."""
    if not _begun:
        _begun.append(nodeid)
        hits.write("", str(os.getpid()))
    _note("runs", nodeid)
    hits.hits.clear()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes a failure, and how long the test took."""
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration
    if report.failed:
        _note("failed", report.nodeid)
        _failed.add(report.nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Writes down what the test ran."""
    hits.write(nodeid, str(os.getpid()), _seconds.pop(nodeid, 0.0), failed=nodeid in _failed)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Notes a module that cannot be imported."""
    if report.failed:
        _note("failed", report.nodeid)


def _note(what: str, nodeid: str) -> None:
    if path := os.environ.get(PROGRESS):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{what} {nodeid}\n")
