"""Gives tests of commands a daemon whose answers they choose; one serves all tests of a process, emptied for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.answering import Answering, daemon_in_thread


@pytest.fixture(scope="session")
def surface(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Answering, Path]]:
    double = Answering()
    with daemon_in_thread(tmp_path_factory.mktemp("daemon"), double) as socket:
        yield double, socket


@pytest.fixture
def view(surface: tuple[Answering, Path], monkeypatch: pytest.MonkeyPatch) -> Answering:
    """Resets the double of a daemon, which every command of the test reaches."""
    double, socket = surface
    double.reset()
    monkeypatch.setenv("REGENT_SERVER", str(socket))
    return double
