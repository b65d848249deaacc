"""A copy of the repository in which mutants are planted, and commands run in it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, NamedTuple

from tests.mutants.source import ROOT

LEFT_OUT: Final = (".git", ".venv", "build", "dist", "__pycache__", ".hypothesis", ".*_cache")
OUTPUT_MAX: Final = 2_000
"""Characters of the end of a command's output that are kept."""
POLL_S: Final = 0.5


class Ran(NamedTuple):
    """The result of a command; ``code`` None: it was ended, at its time limit or because ``found`` was printed."""

    code: int | None
    output: str
    found: str = ""


class Workplace:
    """A copy of the repository without its history; the virtual environment is the repository's own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="regent-mutants-"))
        self.root = self.folder / "regent"
        shutil.copytree(ROOT, self.root, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        (self.root / ".venv").symlink_to(ROOT / ".venv")
        (self.root / "build").mkdir()
        self._process: subprocess.Popen[bytes] | None = None

    def write(self, file: str, text: str) -> None:
        """Writes a module and drops its compiled form: the same second and size would hide the change."""
        path = self.root / file
        path.write_text(text, encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def restore(self, file: str) -> None:
        """Writes a module as the repository has it, and drops examples that failed with the mutant."""
        self.write(file, (ROOT / file).read_text(encoding="utf-8"))
        shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)

    def run(
        self,
        arguments: Sequence[str],
        limit_s: float,
        environ: Mapping[str, str] | None = None,
        until: re.Pattern[str] | None = None,
    ) -> Ran:
        """Runs Python here, with low priority, and ends it with all that it started.

        It ends at the limit, or at a line of its output that ``until`` matches.
        """
        given = {**os.environ, "PYTHONPATH": str(self.root), **(environ or {})}
        given.pop("PYTHONDONTWRITEBYTECODE", None)  # each run would compile all sources anew
        command = ["nice", "-n", "5", sys.executable, *arguments]
        end_s, found, code = time.monotonic() + limit_s, "", None
        with tempfile.TemporaryFile() as output:
            self._process = process = subprocess.Popen(
                command, cwd=self.root, env=given, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                while code is None and not found and (left_s := end_s - time.monotonic()) > 0:
                    with suppress(subprocess.TimeoutExpired):
                        code = process.wait(min(left_s, POLL_S))
                    found = _line(output, until)
            finally:
                _end(process)
            return Ran(None if found else code, _read(output)[-OUTPUT_MAX:], found)

    def close(self) -> None:
        """Ends what runs, and removes the copy."""
        if self._process is not None and self._process.returncode is None:
            _end(self._process)
        shutil.rmtree(self.folder, ignore_errors=True)


def _read(output: IO[bytes]) -> str:
    """Reads without moving the place at which the process writes: both share it."""
    return os.pread(output.fileno(), os.fstat(output.fileno()).st_size, 0).decode(errors="replace")


def _line(output: IO[bytes], wanted: re.Pattern[str] | None) -> str:
    return next((line for line in _read(output).splitlines() if wanted.match(line)), "") if wanted is not None else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process group of a run."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
