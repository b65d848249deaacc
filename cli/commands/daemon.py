"""Adds regent run, regent admin-endpoint and regent demo, which are long-running processes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from cli.exit_codes import Exit, Failure, ends_at_once
from cli.help import Panel
from cli.session import Session, command


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    command(
        app,
        panel=Panel.RUN,
        examples=("regent run", "regent run --shadow", "regent run --config /etc/regent/regent.toml"),
    )(run)
    command(app, panel=Panel.RUN, examples=("regent admin-endpoint --config /etc/regent/regent.toml",))(admin_endpoint)
    command(app, panel=Panel.RUN, examples=("regent demo", "regent demo regions", "regent demo --keep"))(demo)


def run(
    session: Session,
    shadow: Annotated[bool, typer.Option("--shadow", help="Decide beside Kafka's controller; write nothing.")] = False,
    takeover: Annotated[bool, typer.Option("--takeover", help="Take the role, even from a live broker.")] = False,
) -> None:
    """Run the daemon: hold the controller role, or stand by for it."""
    if shadow and takeover:
        raise Failure(Exit.USAGE, "--shadow never takes the role", "give --shadow or --takeover")
    settings = session.settings(kafka_optional=True).settings
    if not settings.has_kafka and (shadow or takeover):
        option = "--shadow" if shadow else "--takeover"
        raise Failure(Exit.USAGE, f"{option} is about a Kafka cluster, and the settings name none", "add [zookeeper]")
    import uvloop

    from cli.daemon_process import run_daemon

    raise typer.Exit(ends_at_once(lambda: uvloop.run(run_daemon(settings, session, shadow=shadow, takeover=takeover))))


def admin_endpoint(session: Session) -> None:
    """Run the admin endpoint: it serves admin clients as the controller, and passes all other requests to a broker."""
    settings = session.settings(endpoint=True).settings
    import uvloop

    from cli.endpoint_process import serve

    raise typer.Exit(ends_at_once(lambda: uvloop.run(serve(settings))))


def demo(
    session: Session,
    story: Annotated[
        Literal["failures", "reassign", "regions"],
        typer.Argument(
            help="failures: brokers and regent are killed; reassign: regent is killed in a plan of moves; regions: "
            "servers of a key-value service and regent are killed, without Kafka and Java."
        ),
    ] = "failures",
    keep: Annotated[bool, typer.Option("--keep", help="Leave all of it up and print how to reach it.")] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Audit the journal with Spark at the end, and report it into this folder."),
    ] = None,
    transport: Annotated[
        Literal["poll", "zookeeper"],
        typer.Option(
            "--transport",
            help="With the story regions: servers answer by reports, or by znodes of a ZooKeeper, which needs Java.",
        ),
    ] = "poll",
) -> None:
    """Play failures, a plan of moves, or regions of a key-value service, with real processes on this machine."""
    from rich.console import Console

    from cli.demo.run import Play
    from cli.demo.run import run as play

    if report is not None and Play(story) is Play.REGIONS:
        remedy = "play failures or reassign, or leave --report out"
        raise Failure(Exit.USAGE, "--report is about partitions, and this story has none", remedy)
    if transport != "poll" and Play(story) is not Play.REGIONS:
        remedy = "play regions, or leave --transport out"
        raise Failure(Exit.USAGE, "--transport is about servers of regions, and this story has none", remedy)
    console = Console(no_color=session.no_color, highlight=False)
    try:
        code = asyncio.run(play(console, keep=keep, play=Play(story), report=report, noded=transport == "zookeeper"))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("The demo is ended; it leaves no process behind.", file=sys.stderr)
        code = Exit.DETACHED
    raise typer.Exit(code)
