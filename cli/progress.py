"""Shows how far a procedure is while a command waits: a bar on a terminal, a line at each change elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.progress import Progress, TaskID

POLL_S: Final = 20.0
"""Longest wait of one request for the end of a procedure, where each change is a line."""
BAR_POLL_S: Final = 2.0
"""The same where a bar moves."""
SAID_AGAIN_S: Final = 10.0
"""Time after which a trouble that lasts is a line again."""
NEWS_AGAIN_S: Final = 60.0
"""Time after which a sentence that alternates with others is a line again."""
SAID_MAX: Final = 100
"""Sentences that are remembered."""


class ProgressLine:
    """Writer of the progress of one procedure. ``poll_s``: how often it wants news.

    Where ``console`` is no terminal, ``say`` gets each change as a sentence.
    """

    def __init__(self, console: Console, pid: int, say: Callable[[str], None]) -> None:
        self._console = console
        self._title = f"pid {pid}"
        self._say = say
        self._latest = ""
        self._said: dict[str, float] = {}
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self.poll_s = BAR_POLL_S if console.is_terminal else POLL_S

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, found: dict[str, Any] | None, trouble: str = "") -> None:
        """Shows a procedure, or why no daemon describes it now."""
        text = trouble or sentence(found or {})
        if found is not None and found.get("sizeBytes") and self._console.is_terminal:
            self._move_bar(found, text)
        elif text and (trouble or text != self._latest):
            self._say_in_turn(text, SAID_AGAIN_S if trouble else NEWS_AGAIN_S)
        self._latest = text

    def _say_in_turn(self, text: str, pause_s: float) -> None:
        """Says a sentence, unless it was said a moment ago: the causes of attempts at several servers take turns."""
        now_s = time.monotonic()
        if text in self._said and now_s - self._said[text] < pause_s:
            return
        self._say(f"{self._title}: {text}")
        self._said.pop(text, None)
        self._said[text] = now_s
        if len(self._said) > SAID_MAX:
            del self._said[next(iter(self._said))]

    def _move_bar(self, found: dict[str, Any], text: str) -> None:
        if self._bar is None or self._task is None:
            self._bar = _bar_on(self._console)
            self._task = self._bar.add_task(self._title, total=found["sizeBytes"], text=text)
            self._bar.start()
        self._bar.update(self._task, completed=found["copiedBytes"], total=found["sizeBytes"], text=text)


def _bar_on(console: Console) -> Progress:
    """Returns a bar; its tasks have a ``text``."""
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}", markup=False))
    return Progress(*columns, console=console, transient=True)


def sentence(found: dict[str, Any]) -> str:
    """Returns how far a procedure is, in words."""
    return "; ".join(part for part in (found.get("detail"), found.get("progress"), found.get("endsBy")) if part)
