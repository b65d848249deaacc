"""Shapes the help: commands in panels, flags without a type, examples below the options."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from typer import BadParameter
from typer.core import TyperCommand, TyperGroup, TyperOption

if TYPE_CHECKING:
    from typer._click import Context, Parameter


class Panel(StrEnum):
    """Headings below which ``regent --help`` lists the commands, and each command its shared options."""

    RUN = "Run"
    LOOK = "Look"
    CHANGE = "Change"
    GIVE_BACK = "Give back"
    REGIONS = "Regions"
    PIPELINE = "Pipeline"
    COMMAND = "The command itself"
    SHARED = "Options of every command"


class Command(TyperCommand):
    """A command whose help shows ``--flag`` instead of ``--flag <bool>``."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Returns the parameters, flags without a type."""
        return _flags_without_type(super().get_params(ctx))

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parses the command line; an error names the value that is refused, and what the option takes."""
        try:
            return super().parse_args(ctx, args)
        except BadParameter as error:
            error.message = _wrong_value(error)
            raise


def _wrong_value(error: BadParameter) -> str:
    """Words the fault that pydantic found in a value."""
    found: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    if not found:
        return error.message
    value, bounds = found[0]["input"], found[0].get("ctx", {})
    match found[0]["type"]:
        case "int_parsing" | "int_from_float":
            return f"{value!r} is no whole number."
        case "float_parsing":
            return f"{value!r} is no number."
        case "greater_than_equal":
            return f"{value} is less than {bounds['ge']}."
        case "less_than_equal":
            return f"{value} is more than {bounds['le']}."
        case _:
            return str(found[0]["msg"]).removeprefix("Value error, ")


class Group(TyperGroup):
    """A group of commands in the order of their panels; its help shows ``--flag`` instead of ``--flag <bool>``."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Returns the names, panel by panel."""
        panels = list(Panel)
        return sorted(super().list_commands(ctx), key=lambda name: self._place(name, panels))

    def _place(self, name: str, panels: list[Panel]) -> int:
        panel = getattr(self.commands[name], "rich_help_panel", None)
        return panels.index(panel) if isinstance(panel, Panel) else 0

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Returns the parameters, flags without a type."""
        return _flags_without_type(super().get_params(ctx))


def _flags_without_type(parameters: list[Parameter]) -> list[Parameter]:
    for parameter in parameters:
        if isinstance(parameter, TyperOption) and parameter.is_flag:
            parameter.metavar = ""
    return parameters


def epilog(examples: Iterable[str]) -> str:
    """Returns the examples as the text below a command's options."""
    return "\n".join(("Examples:", *examples))
