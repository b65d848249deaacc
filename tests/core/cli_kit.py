"""The ``regent`` command, called in this process."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from cli.exit_codes import Exit
from cli.main import app


def regent(*arguments: object, code: Exit = Exit.DONE) -> Result:
    """Runs a command, which must end with ``code``."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="regent")
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
