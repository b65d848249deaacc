"""The ``regent`` command, called in this process."""

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
