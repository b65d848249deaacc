"""The functions that ran, by number: what the recorded copy of the product imports (:mod:`tests.mutants.coverage`).

A process that a test started writes its own when it ends, at once too: regent leaves by ``os._exit``.
"""

from __future__ import annotations

import atexit
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

FOLDER: Final = "MUTANTS_RECORD"
"""Variable that names the folder for what tests ran."""

hits: set[int] = set()
in_tests: list[bool] = []
"""Holds something in processes that run tests: these write by test."""


def write(test: str, name: str, seconds: float = 0.0, *, failed: bool = False) -> None:
    """Adds what a test ran, or the imports before the first one (an empty name), to a file of the folder."""
    if folder := os.environ.get(FOLDER):
        record = {"test": test, "hits": sorted(hits), "seconds": round(seconds, 3), "failed": failed}
        with (Path(folder) / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def _write_at_exit() -> None:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if test and not in_tests:
        write(test, uuid.uuid4().hex)


def _end_at_once(status: int, leave: Callable[[int], NoReturn] = os._exit) -> NoReturn:
    _write_at_exit()
    leave(status)


atexit.register(_write_at_exit)
if FOLDER in os.environ:
    os._exit = _end_at_once
