"""regent version, regent completion."""

from __future__ import annotations

import os
import platform
from enum import StrEnum
from typing import Annotated

import typer

from cli.session import Session, command


class Shell(StrEnum):
    """Shells that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer) -> None:
    """Adds the commands."""

    def completion(session: Session, shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]) -> None:
        """Print a completion script: regent completion bash > ~/.local/share/bash-completion/completions/regent."""
        os.environ["_REGENT_COMPLETE"] = f"source_{shell.value}"
        app(args=[], prog_name="regent")

    command(app)(version)
    command(app)(completion)


def print_version(asked: bool) -> None:
    """Prints the version and ends the command, for ``regent --version``."""
    if asked:
        from configs.version import product_version

        print(f"regent {product_version()}")
        raise typer.Exit


def version(session: Session) -> None:
    """The version of this command."""
    from configs.version import product_version

    session.output.detail("Version", {"regent": product_version(), "python": platform.python_version()})
