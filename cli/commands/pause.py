"""Adds regent pause and regent resume: automatic moves stand still on all daemons, elections never do."""

from __future__ import annotations

import re
from typing import Annotated, Final

import typer

from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.session import Session, command

UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    command(
        app, panel=Panel.CHANGE, examples=("regent pause", 'regent pause --for 2h --reason "the network is repaired"')
    )(pause)
    command(app, panel=Panel.CHANGE, examples=("regent resume",))(resume)


def pause(
    session: Session,
    duration: Annotated[
        str, typer.Option("--for", metavar="TIME", help="End by itself after this time, such as 90s, 30m, 2h or 1d.")
    ] = "",
    reason: Annotated[str, typer.Option("--reason", help="The reason; kept with the pause.")] = "",
) -> None:
    """Pause all automatic moves: the balance of leaders, and further waves of plans and drains.

    Elections go on, so do moves under way and requests of clients. It outlives daemons, and ends with regent resume.
    One plan alone is paused by regent reassign pause.
    """
    request = {"reason": reason, **({"forS": seconds_of(duration)} if duration else {})}
    session.output.detail("PauseItem", session.client().post("/v1/pause", request)["items"][0])


def resume(session: Session) -> None:
    """End the pause of automatic moves. A plan that was paused alone stays so: regent reassign resume."""
    session.output.detail("PauseItem", session.client().post("/v1/pause/remove", {})["items"][0])


def seconds_of(duration: str, examples: str = "90s, 30m, 2h or 1d") -> int:
    """Returns the seconds of a time such as ``90s`` or ``2h``; raises :class:`Failure` with ``examples``."""
    found = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", duration)
    if found is None:
        raise Failure(Exit.USAGE, f"--for {duration} is no time", f"give a number and a unit: {examples}")
    return int(found[1]) * UNITS_S[found[2]]
