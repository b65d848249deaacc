"""Shows how far a procedure is while a command waits: a bar on a terminal, a line at each change elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from cli.output import Output

POLL_S: Final = 20.0
"""Longest wait of one request for the end of a procedure, where each change is a line."""
BAR_POLL_S: Final = 2.0
"""The same where a bar moves."""


class ProgressLine:
    """Writer of the progress of one procedure. ``poll_s``: how often it wants news."""

    def __init__(self, output: Output, pid: int) -> None:
        self._output = output
        self._pid = pid
        self._said = ""
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self.poll_s = BAR_POLL_S if output.is_terminal else POLL_S

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, found: dict[str, Any] | None, trouble: str = "") -> None:
        """Shows a procedure, or why no daemon describes it now."""
        text = trouble or sentence(found or {})
        if found is not None and found.get("sizeBytes") and self._output.is_terminal:
            self._move_bar(found, text)
        elif text and text != self._said:
            self._output.message(f"pid {self._pid}: {text}")
        self._said = text

    def _move_bar(self, found: dict[str, Any], text: str) -> None:
        if self._bar is None or self._task is None:
            self._bar = self._output.progress_bar()
            self._task = self._bar.add_task(f"pid {self._pid}", total=found["sizeBytes"], text=text)
            self._bar.start()
        self._bar.update(self._task, completed=found["copiedBytes"], total=found["sizeBytes"], text=text)


def sentence(found: dict[str, Any]) -> str:
    """Returns how far a procedure is, in words."""
    return "; ".join(part for part in (found.get("detail"), found.get("progress")) if part)
