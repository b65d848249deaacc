"""Reads and writes scripts of runs: settings of the cluster, and actions with their times, a line each."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

Word = str | int | float


@dataclass(frozen=True)
class Action:
    """One action. ``words`` are the arguments of the verb; times are virtual seconds."""

    at_s: float
    verb: str
    words: tuple[Word, ...] = ()

    def later(self, seconds: float) -> Action:
        """Returns the same action, later."""
        return replace(self, at_s=round(self.at_s + seconds, 3))

    def __str__(self) -> str:
        return " ".join([f"{self.at_s:.3f}", self.verb, *map(text_of, self.words)])


def read(
    text: str, given: Collection[str], word: Callable[[str], Word] = str
) -> tuple[dict[str, list[str]], tuple[Action, ...]]:
    """Reads settings and actions, without empty lines and comments (``#``); raises ValueError. ``given``: required."""
    settings: dict[str, list[str]] = {}
    actions: list[Action] = []
    for words in (line.partition("#")[0].split() for line in text.splitlines()):
        if words and words[0][0].isdigit():
            if len(words) < 2:
                raise ValueError(f"at {words[0]} nothing happens: a time is followed by a verb")
            actions.append(Action(float(words[0]), words[1], tuple(map(word, words[2:]))))
        elif words:
            settings[words[0]] = words[1:]
    if missing := [name for name in given if not settings.get(name)]:
        raise ValueError(f"it does not set {', '.join(missing)}")
    return settings, tuple(actions)


def text_of(word: Word) -> str:
    """Writes a word as it is read again."""
    return f"{word:.3f}" if isinstance(word, float) else str(word)


def number_or_text(text: str) -> Word:
    """Reads a word that may be a number."""
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text
