"""regent config: check, show and explain the settings."""

from __future__ import annotations

import typer

from cli.exit_codes import Exit, Failure
from cli.session import Session, command, group


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "config", "The settings.")
    for function in (check, show, example):
        command(named)(function)


def check(session: Session) -> None:
    """Check the settings and every file they name: each problem with its remedy, exit code 2 if there is any."""
    from cli.named_files import unusable

    loaded = session.settings()
    if found := unusable(loaded.settings, loaded.origins):
        raise Failure(
            Exit.USAGE,
            f"{len(found)} problem(s) with files that the settings name:\n" + "\n".join(found),
            "give the files to the user that runs this command (it should be the daemon's), or correct the keys",
        )
    session.output.say(f"the settings are right ({loaded.file or 'no file; environment and defaults'})", style="green")


def show(session: Session) -> None:
    """What is in force, and where each value comes from. Secrets are not shown."""
    from configs.settings import shown, value_of

    loaded = session.settings()
    rows = [
        {"key": name, "value": shown(value_of(loaded.settings, name)), "origin": origin}
        for name, origin in loaded.origins.items()
    ]
    session.output.listing("Setting", rows)


def example(session: Session) -> None:
    """A settings file with every key explained."""
    from configs.example import render

    session.output.text(render())
