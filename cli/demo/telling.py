"""Prints one line for each step of a demo, and waits for each step up to a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from rich.console import Console
from rich.markup import escape

from cli.demo.process import DaemonProcess
from controller.journal.reader import CUT_SHORT, Gap, read
from controller.process.wording import counted
from state_machines.journal.audit import judge
from state_machines.journal.events import Row

STEP_S_MAX: Final = 60.0
POLL_S: Final = 0.1
VIOLATIONS_SHOWN: Final = 10
GAPS_SHOWN: Final = 5


class DemoFailed(Exception):
    """Failure of a step that did not happen in time; the text names it."""


class Telling:
    """Prints the lines of a story. ``regent``: the daemon, whose log is shown where a step fails."""

    def __init__(self, console: Console, regent: DaemonProcess) -> None:
        self.console = console
        self._daemon = regent
        self._began = time.monotonic()

    def line(self, text: str) -> None:
        """Prints one line, with the seconds since the start."""
        self.console.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/]  {text}", soft_wrap=True)

    async def until(self, done: Callable[[], Awaitable[bool]], step: str) -> float:
        """Polls until ``done``; returns the seconds, raises :class:`DemoFailed`."""
        began = time.monotonic()
        while not await done():
            if time.monotonic() - began > STEP_S_MAX:
                raise DemoFailed(f"not within {STEP_S_MAX:.0f} s: {step}\n{self._daemon.log_tail()}")
            await asyncio.sleep(POLL_S)
        return time.monotonic() - began

    def judged(self) -> bool:
        """Judges every row of the daemon's journal by itself; prints and returns the verdict."""
        found = list(read(self._daemon.journal))
        rows = [row for row in found if isinstance(row, Row)]
        gaps = [gap for gap in found if isinstance(gap, Gap)]
        violations = list(judge(rows))
        self.line(
            f"regent's journal holds {len(rows)} events of {len({row.ctl_epoch for row in rows})} terms; judged one "
            f"by one: [bold]{counted(len(violations), 'violation')}[/], {counted(len(gaps), 'gap')}"
        )
        for gap in gaps[:GAPS_SHOWN]:
            expected = ": the kill -9 of regent above" if gap.why == CUT_SHORT else ""
            self.line(f"gap: {escape(str(gap))}{expected}")
        for violation in violations[:VIOLATIONS_SHOWN]:
            self.line(f"[red]{escape(str(violation))}[/]")
        return bool(rows) and not violations


class Playable(Protocol):
    """A story."""

    async def play(self) -> bool:
        """Plays the whole story; returns whether it ended well."""


class Stage(NamedTuple):
    """Has a story. ``includes``: what the time of the demo includes; ``stay``: shows how to reach it all, and waits.

    ``journal``: the folder of the journal of partitions, where there is one.
    """

    story: Playable
    includes: str
    stay: Callable[[], Awaitable[None]]
    journal: Path | None = None
