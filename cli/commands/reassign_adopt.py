"""Adds regent reassign list and adopt: reassignments under way, and those of other clients as a plan of their own."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.procedures import MEASURED_S_MAX, Yes
from cli.exit_codes import Exit, Failure
from cli.rates import Throttle, given
from cli.session import Session, command, confirmed

if TYPE_CHECKING:
    from cli.client import Json

Topics = Annotated[list[str] | None, typer.Option("--topic", help="Limits it to a topic; repeatable.")]


def register(named: typer.Typer) -> None:
    """Adds the commands."""
    command(named, name="list", examples=("regent reassign list", "regent reassign list --topic orders -o wide"))(
        listed
    )
    command(
        named,
        examples=("regent reassign adopt --yes", "regent reassign adopt --topic orders --throttle 50000000 --yes"),
    )(adopt)


def listed(session: Session, topic: Topics = None) -> None:
    """List reassignments under way: of plans, with their pid, and of other clients."""
    session.output.listing("Reassignment", _under_way(session, topic))


def adopt(
    session: Session,
    topic: Topics = None,
    throttle: Throttle = None,
    reason: Annotated[str, typer.Option("--reason", help="The reason; kept with the plan.")] = "",
    yes: Yes = False,
) -> None:
    """Make a plan of reassignments that other clients began: with progress, a throttle, and a way back."""
    foreign = [one for one in _under_way(session, topic) if one.get("pid") is None]
    if not foreign:
        where = f" in {', '.join(topic)}" if topic else ""
        message = f"no reassignment of another client is under way{where}"
        raise Failure(Exit.REFUSED, message, "see regent reassign list")
    confirmed(yes, f"Adopt {len(foreign)} reassignments?")
    moves = [{field: one[field] for field in ("topic", "partition", "origin", "target")} for one in foreign]
    request: Json = {
        "moves": moves,
        "adopts": True,
        **given(throttle),
        "reason": reason,
        "nonce": uuid.uuid4().hex,
    }
    found = session.client(MEASURED_S_MAX).post("/v1/reassignments", request)["items"][0]
    session.output.detail("Procedure", found)


def _under_way(session: Session, topics: list[str] | None) -> list[Json]:
    found = session.client().get("/v1/reassignments")["items"]
    return [one for one in found if topics is None or one["topic"] in topics]
