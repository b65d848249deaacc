"""Adds regent cordon and regent uncordon: brokers on which regent places no further replica."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.help import Panel
from cli.session import Session, command

Brokers = Annotated[list[int], typer.Argument(help="Ids of brokers.", min=0)]
Reason = Annotated[str, typer.Option("--reason", help="The reason; kept with the mark.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    command(app, panel=Panel.CHANGE, examples=('regent cordon 3 --reason "disk is failing"', "regent cordon 3 4"))(
        cordon
    )
    command(app, panel=Panel.CHANGE, examples=("regent uncordon 3",))(uncordon)


def cordon(session: Session, brokers: Brokers, reason: Reason = "") -> None:
    """Keep new replicas off brokers: new topics, new partitions and plans avoid them; what they host stays."""
    found = session.client().post("/v1/cordons", {"brokers": brokers, "reason": reason})["items"]
    session.output.listing("CordonedBroker", found)


def uncordon(session: Session, brokers: Brokers) -> None:
    """Let new replicas onto brokers again."""
    found = session.client().post("/v1/cordons/remove", {"brokers": brokers})["items"]
    session.output.listing("CordonedBroker", found)
