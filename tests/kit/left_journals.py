"""Leaves the journals of daemons in ``build/journals``, so that the pipeline's tests can audit them."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path
from typing import Final

from controller.journal.segments import segments_in

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
