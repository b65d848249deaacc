"""Holds the shared parts of commands for rolling restarts: options, the request, and the wait for a batch."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.commands.procedures import queried
from cli.exit_codes import Exit, Failure
from cli.output import Output, cell

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.client import Json

POLL_S: Final = 1.0
REMIND_S: Final = 60.0
"""Time after which a call that waits says so again."""
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


class Reminder:
    """Says what a call waits for: at once, whenever that changes, and each minute, with the ways to end it."""

    def __init__(self, output: Output, timeout_s: float) -> None:
        self._output = output
        self._timeout_s = timeout_s
        self._begun_s = time.monotonic()
        self._said_s = self._begun_s
        self._shown = ""

    @property
    def is_over(self) -> bool:
        """Returns whether the longest wait is over."""
        self._now_s = time.monotonic()
        return self._now_s >= self._begun_s + self._timeout_s

    def waits(self, why: str, found: Json | None) -> None:
        """Says the reason, the causes and the ways out; nothing where it was said less than a minute ago."""
        if why == self._shown and self._now_s < self._said_s + REMIND_S:
            return
        self._shown, self._said_s = why, self._now_s
        waited = in_minutes(self._now_s - self._begun_s)
        ends = f"{waited} of {in_minutes(self._timeout_s)} have passed"
        self._output.message(why if self._now_s - self._begun_s < REMIND_S else f"{why}; {ends}")
        if found is not None:
            causes(self._output, found["hindrances"])
            self._output.message(f"Remedy: {ways_out(found)}")


def in_minutes(seconds: float) -> str:
    """Returns "30 min", or "45 s" below two minutes."""
    return f"{seconds / 60:.0f} min" if seconds >= 2 * REMIND_S else f"{seconds:.0f} s"


def ways_out(found: Json) -> str:
    """Returns how a wait ends: by a broker that starts, without it, or by the end of the restart."""
    pid, down = found.get("pid"), found["down"]
    ended = "end the call" if pid is None else f"'regent end {pid}' ends the restart"
    if not down:
        accept = "leave a cause out with --accept, " if found["hindrances"] else ""
        return f"wait, {accept}or {ended}"
    others = [str(broker) for broker in sorted({*found["pending"], *found["restarted"]} - set(down))]
    begun = f", and a new one with the ids {' '.join(others)} leaves {brokers_of(down)} out" if others else ""
    return f"start {brokers_of(down)}, or {ended}{begun}"


def awaited_batch(output: Output, judged: Callable[[], Json], timeout_s: float) -> Json:
    """Queries until there is a batch, all is done, or the time is over; says what it waits for.

    A daemon that stops or fails over meanwhile is queried again.
    """
    reminder = Reminder(output, timeout_s)
    while True:
        found, trouble = queried(judged)
        if found is not None and found["state"] != "wait":
            return found
        if reminder.is_over:
            if found is None:
                raise Failure(Exit.UNFINISHED, f"no daemon judged the restart at the end of {timeout_s:g} s: {trouble}")
            return found
        reminder.waits(trouble if found is None else str(found["why"]), found)
        time.sleep(POLL_S)


def causes(output: Output, hindrances: list[dict[str, Any]]) -> None:
    """Prints each cause with its count, and the remedies after them."""
    for one in hindrances:
        waits = f"; waits for {brokers_of(one['waitsFor'])}" if one["waitsFor"] else ""
        output.message(f"  {one['cause']} ({one['count']}: {cell(one['examples'])}): {one['meaning']}{waits}")
    remedies(output, hindrances)


def remedies(output: Output, hindrances: list[dict[str, Any]]) -> None:
    """Prints the remedy of each hindrance."""
    for one in hindrances:
        output.message(f"Remedy for {one['cause']}: {one['remedy']}")


def brokers_of(brokers: list[int]) -> str:
    """Returns brokers in a sentence, by their ids."""
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
