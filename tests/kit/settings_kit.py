"""Settings files of tests, and the problems that loading finds in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from configs.loading import load
from configs.problems import ConfigError, Problem

MINIMAL = """
[zookeeper]
connect = "zk1:2181,zk2:2181/kafka"
[listener]
advertised_host = "regent1.example.com"
"""


def written(folder: Path, text: str) -> Path:
    """Writes a settings file."""
    path = folder / "regent.toml"
    path.write_text(text)
    return path


def problems(
    folder: Path, text: str, environ: dict[str, str] | None = None, *, endpoint: bool = False
) -> dict[str, Problem]:
    """Loads wrong settings and returns their problems by key."""
    with pytest.raises(ConfigError) as raised:
        load(written(folder, text), environ or {}, endpoint=endpoint)
    found = raised.value.problems
    assert all(problem.reason and problem.remedy for problem in found)
    return {problem.key: problem for problem in found}


@contextmanager
def closed(folder: Path) -> Iterator[None]:
    """Closes a folder to its owner; root, which no mode stops, is another user meanwhile."""
    folder.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o700)
