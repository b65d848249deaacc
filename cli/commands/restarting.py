"""Holds the shared parts of commands for rolling restarts: options, the request, and the wait for a batch."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.columns import cell
from cli.commands.procedures import queried
from cli.exit_codes import Exit, Failure
from cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.client import Json

POLL_S: Final = 1.0
JUDGE_TIMEOUT_S: Final = 60.0
"""Longest wait for a judgement: of a million partitions it takes some seconds."""

Chosen = Annotated[
    list[int] | None, typer.Argument(help="Ids of the brokers (default: all).", min=0, metavar="[BROKER...]")
]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        "--accept",
        metavar="CAUSE",
        help="Ignore a cause, such as single-replica or below-min-isr; may be repeated.",
    ),
]
BatchMax = Annotated[int, typer.Option("--batch-max", min=1, max=1_000, help="Most brokers to restart together.")]


def restart_request(brokers: list[int] | None, accept: list[str] | None, batch_max: int, reason: str) -> Json:
    """Returns the request for a rolling restart."""
    return {
        "brokers": brokers or [],
        "batchMax": batch_max,
        "accept": accept or [],
        "nonce": uuid.uuid4().hex,
        "reason": reason,
    }


def awaited_batch(output: Output, judged: Callable[[], Json], timeout_s: float) -> Json:
    """Queries until there is a batch, all is done, or the time is over; reports each new reason of the wait.

    A daemon that stops or fails over meanwhile is queried again.
    """
    deadline_s, shown = time.monotonic() + timeout_s, ""
    while True:
        found, trouble = queried(judged)
        if found is not None and found["state"] != "wait":
            return found
        if time.monotonic() >= deadline_s:
            if found is None:
                raise Failure(Exit.UNFINISHED, f"no daemon judged the restart at the end of {timeout_s:g} s: {trouble}")
            return found
        why = trouble if found is None else str(found["why"])
        if why != shown:
            shown = why
            output.message(why)
            causes(output, [] if found is None else found["hindrances"])
        time.sleep(POLL_S)


def causes(output: Output, hindrances: list[dict[str, Any]]) -> None:
    for one in hindrances:
        waits = f"; waits for {brokers_of(one['waitsFor'])}" if one["waitsFor"] else ""
        output.message(f"  {one['cause']} ({one['count']}: {cell(one['examples'])}): {one['meaning']}{waits}")
    remedies(output, hindrances)


def remedies(output: Output, hindrances: list[dict[str, Any]]) -> None:
    for one in hindrances:
        output.message(f"Remedy for {one['cause']}: {one['remedy']}")


def brokers_of(brokers: list[int]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
