"""Adds regent pipeline, which runs jobs on Spark over the journals of all daemons; no daemon needs to be alive."""

from __future__ import annotations

import typer

from cli.commands import pipeline_plan, pipeline_what_if
from cli.help import Panel
from cli.session import command, group
from cli.verbs import as_command
from pipeline.verbs import VERBS


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(
        app, "pipeline", "Merge and judge the journals of all daemons, report from them, plan moves.", Panel.PIPELINE
    )
    command(named, examples=pipeline_plan.EXAMPLES)(pipeline_plan.plan)
    command(named, examples=pipeline_what_if.EXAMPLES)(pipeline_what_if.what_if)
    for verb, examples in VERBS:
        command(named, examples=examples)(as_command(verb))
