"""Tells a story of the demo: one line for each step, each waited for up to a bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from rich.console import Console

from cli.demo.process import DaemonProcess

STEP_S_MAX: Final = 60.0
POLL_S: Final = 0.1


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


class Playable(Protocol):
    """A story."""

    async def play(self) -> bool:
        """Plays the whole story; returns whether it ended well."""


class Stage(NamedTuple):
    """Has a story. ``includes``: what the time of the demo includes; ``stay``: shows how to reach it all, and waits."""

    story: Playable
    includes: str
    stay: Callable[[], Awaitable[None]]
