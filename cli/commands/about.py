"""Adds regent version and regent completion."""

from __future__ import annotations

import os
import platform
from enum import StrEnum
from typing import Annotated

import typer

from cli.help import Panel
from cli.session import Session, command


class Shell(StrEnum):
    """Shells with a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer) -> None:
    """Adds the commands."""

    def completion(session: Session, shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]) -> None:
        """Print the completion script of a shell."""
        os.environ["_REGENT_COMPLETE"] = f"source_{shell.value}"
        app(args=[], prog_name="regent")

    command(
        app,
        panel=Panel.COMMAND,
        examples=(
            "regent completion bash > ~/.local/share/bash-completion/completions/regent",
            "regent completion zsh > ~/.zfunc/_regent",
            "regent completion fish > ~/.config/fish/completions/regent.fish",
        ),
    )(completion)
    command(app, panel=Panel.COMMAND, examples=("regent version", "regent version -o json"))(version)


def print_version(wanted: bool) -> None:
    """Prints the version and ends the command, for ``regent --version``."""
    if wanted:
        from configs.version import product_version

        print(f"regent {product_version()}")
        raise typer.Exit


def version(session: Session) -> None:
    """Print the version of this command and of Python."""
    from configs.version import product_version

    session.output.detail("Version", {"regent": product_version(), "python": platform.python_version()})
