"""The ``regent`` command in this process, and settings files with the problems that loading finds in them."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any
from unittest import mock

import typer
from typer.testing import CliRunner, Result

from cli.exit_codes import Exit
from cli.main import app

if TYPE_CHECKING:
    from typer._click import Command
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from configs.loading import load
from configs.problems import ConfigError, Problem


@cache
def command() -> Command:
    """Returns what Typer makes of the application, which costs ten times as much as most commands."""
    return typer.main.get_command(app)


def regent(*arguments: object, code: int = Exit.DONE, typed: str | None = None) -> Result:
    """Runs a command, which must end with ``code``; ``typed`` is on its input."""
    words = [str(argument) for argument in arguments]
    with mock.patch("typer.testing._get_command", return_value=command()):
        result = CliRunner().invoke(app, words, input=typed, prog_name="regent")
    assert result.exit_code == code, result.output
    return result


def items(*arguments: object, code: Exit = Exit.DONE) -> list[dict[str, Any]]:
    """Returns the items that a command prints as JSON."""
    body = json.loads(regent(*arguments, "-o", "json", code=code).stdout)
    assert (body["apiVersion"], bool(body["kind"])) == ("regent/v1", True)
    found: list[dict[str, Any]] = body["items"]
    return found


def unwrapped(text: str) -> str:
    """Returns messages without the line breaks of the console."""
    return text.replace("\n", "")


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
