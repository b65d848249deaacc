"""Values of options and arguments complete in a shell, from the daemon or from what the program knows itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.http_world import DaemonDouble, daemon_in_thread

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with daemon_in_thread(tmp_path_factory.mktemp("daemon"), DaemonDouble()) as found:
        yield found


def suggested(socket: Path, words: str) -> list[str]:
    """Returns what bash is given for the last of ``words``."""
    own = {"_REGENT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    found = subprocess.run(
        [sys.executable, "-c", "from cli.main import main; main()"],
        env={**os.environ, **own, "REGENT_SERVER": str(socket)}, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not found.stderr, found.stderr
    return found.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("regent procedures show ", ["12", "13"]),
        ("regent end 1", ["12", "13"]),
        ("regent explain or", ["orders"]),
        ("regent can-stop ", ["1", "2", "3"]),
        ("regent can-stop 1 --accept below", ["below-min-isr"]),
        ("regent procedures list --kind dr", ["drain"]),
        ("regent events show --kind LEAD", ["LEADER"]),
    ],
)
def test_values_complete(socket: Path, words: str, expected: list[str]) -> None:
    assert suggested(socket, words) == expected


def test_without_a_daemon_nothing_is_suggested_and_nothing_said(tmp_path: Path) -> None:
    assert suggested(tmp_path / "none.sock", "regent procedures show ") == []
