"""Adds regent config, which checks, shows and explains the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.session import Session, command, group

if TYPE_CHECKING:
    from cli.client import Json


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "config", "Check, show and explain the settings.", Panel.RUN)
    command(named, examples=("regent config check", "regent config check --config regent.toml"))(check)
    command(named, examples=("regent config show", "regent config show -o json"))(show)
    command(named, examples=("regent config example > regent.toml",))(example)


def check(session: Session) -> None:
    """Check the settings and every file they name: each problem with its remedy, exit code 2 if there is any.

    A warning names a setting that is possible and advised against; it is no problem.
    """
    from cli.named_files import unusable
    from configs.advice import advice

    loaded = session.settings(kafka_optional=True)
    for sentence in advice(loaded.settings):
        session.output.message(f"warning: {sentence}", style="yellow")
    if found := unusable(loaded.settings, loaded.origins):
        raise Failure(
            Exit.USAGE,
            f"{len(found)} problem(s) with files that the settings name:\n" + "\n".join(found),
            "run this as root, give the files to the daemon's user, or correct the keys",
        )
    session.output.message(
        f"the settings are right ({loaded.file or 'no file; environment and defaults'})", style="green"
    )


def show(session: Session) -> None:
    """Show the values in force, and the origin of each. Secrets are not shown.

    Values adopted from the brokers are known where a daemon of these settings runs and holds the role.
    """
    from configs.settings import shown, value_of

    loaded = session.settings(kafka_optional=True)
    adopted = _adopted(session)
    in_force = {"admin.secret_file": loaded.settings.secret_file}
    rows = [
        {"key": name, "value": shown(in_force.get(name, value_of(loaded.settings, name))), "origin": origin}
        | (adopted.get(name, {}) if origin == "default" else {})
        for name, origin in loaded.origins.items()
    ]
    session.output.listing("Setting", rows)


def _adopted(session: Session) -> dict[str, Json]:
    """Returns the values of the active daemon by key; without one, a note that the brokers' values will hold."""
    from state_machines.admin_rules.broker_settings import POLICY, SETTINGS

    try:
        found = session.client().get("/v1/settings")["items"]
    except Failure:
        keys = ["ibp", *(s.key for s in SETTINGS if s.key != POLICY)]
        return {f"controller.{key}": {"value": "as the brokers"} for key in keys}
    return {row["key"]: row | {"origin": row["source"]} for row in found if row["key"] != f"controller.{POLICY}"}


def example(session: Session) -> None:
    """Print a settings file with every key explained."""
    from configs.example import render

    session.output.text(render())
