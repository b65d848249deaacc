"""Bugs written by hand: mistakes of an engineer, each with the harm that a user would notice.

A bug names a function and a fragment of its code, compared token by token: layout, comments and trailing commas do not
matter. A function that moved within its area is found by its name, and a name of the fragment that the function does
not have any more stands for another: locals may be renamed. A change of the product that touches more than this
changes the bug, too: it stays a bug, or another takes its place.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.source import ROOT, Function, Token, functions, product_files, replaced, tokens

FOLDER: Final = Path(__file__).parent / "planted"
_NAME: Final = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


class DoesNotApply(ValueError):
    """The function is gone, or its code does not hold the fragment exactly once."""


class Found(NamedTuple):
    """The function in which a bug is planted, and the text of its file with the bug."""

    file: str
    function: str
    mutant: str


class Planted:
    """A bug: in a function, ``new`` instead of ``old``; ``wrong`` says what a user notices.

    ``room``: the part of the product that it belongs to, the name of its file.
    """

    def __init__(self, id: str, file: str, function: str, old: str, new: str, wrong: str, room: str = "") -> None:
        self.id = id
        self.room = room
        self.wrong = wrong
        self._file, self._function = file, function
        self.old, self.new = old, new

    @property
    def file(self) -> str:
        """Returns the file in which the function is now."""
        return self._found.file

    @property
    def function(self) -> str:
        """Returns the qualified name of the function."""
        return self._found.function

    @property
    def mutant(self) -> str:
        """Returns the text of the file with the bug."""
        return self._found.mutant

    @cached_property
    def _found(self) -> Found:
        text, named = _read(self._file)
        if self._function in named:
            return Found(self._file, self._function, self.planted_in(text, self._function))
        bare = self._function.rpartition(".")[2]
        found: list[Found] = []
        for file in _files_near(self._file):
            text, named = _read(file)
            for name in named:
                if name.rpartition(".")[2] == bare:
                    found += self._tried(file, text, name)
        if len(found) != 1:
            raise DoesNotApply(f"{self.id}: {len(found)} functions near {self._file} are {bare} with its fragment")
        return found[0]

    def _tried(self, file: str, text: str, function: str) -> Iterator[Found]:
        try:
            yield Found(file, function, self.planted_in(text, function))
        except DoesNotApply:
            pass

    def planted_in(self, text: str, function: str) -> str:
        """Writes the bug into the text of a file."""
        node = _functions(text)[function]
        code = tokens(text, node.lineno, node.end_lineno)
        wanted = [token.text for token in tokens(self.old)]
        found = _matches(code, wanted, ()) or _matches(code, wanted, _names_gone(code, wanted))
        if len(found) != 1:
            raise DoesNotApply(f"{self.id}: {function} of {self._file} has its fragment {len(found)} times, not once")
        at, names = found[0]
        new = _NAME.sub(lambda name: names.get(name[0], name[0]), self.new)
        mutant = replaced(text, code[at].first, code[at + len(wanted) - 1].last, new)
        compile(mutant, self._file, "exec")
        return mutant


def _names_gone(code: Sequence[Token], wanted: Sequence[str]) -> frozenset[str]:
    """Returns names of a fragment that the code does not have: they may have been renamed."""
    known = _plain([token.text for token in code]) | set(keyword.kwlist) | set(dir(builtins))
    return frozenset(text for text in _plain(wanted) - known if text.isidentifier())


def _plain(texts: Sequence[str]) -> set[str]:
    """Returns the tokens that are no attributes."""
    return {text for before, text in zip(["", *texts], texts, strict=False) if before != "."}


def _matches(code: Sequence[Token], wanted: Sequence[str], free: Collection[str]) -> list[tuple[int, dict[str, str]]]:
    """Finds the fragment in the code, and the names that its ``free`` ones are there."""
    found: list[tuple[int, dict[str, str]]] = []
    for at in range(len(code) - len(wanted) + 1):
        names = _bound([token.text for token in code[at : at + len(wanted)]], wanted, free)
        if names is not None:
            found.append((at, names))
    return found


def _bound(texts: Sequence[str], wanted: Sequence[str], free: Collection[str]) -> dict[str, str] | None:
    names: dict[str, str] = {}
    for before, text, name in zip(["", *wanted], texts, wanted, strict=False):
        if before != "." and name in free and text.isidentifier() and not keyword.iskeyword(text):
            if names.setdefault(name, text) != text:
                return None
        elif text != name:
            return None
    others = _plain(wanted) - set(free)
    return names if len(set(names.values())) == len(names) and others.isdisjoint(names.values()) else None


def _files_near(file: str) -> list[str]:
    """Lists the files of the same area."""
    return [other for other in product_files() if other.partition("/")[0] == file.partition("/")[0]]


@cache
def _functions(text: str) -> Mapping[str, Function]:
    """Returns the functions of a file with this text."""
    return functions(ast.parse(text))


@cache
def _read(file: str) -> tuple[str, Mapping[str, Function]]:
    path = ROOT / file
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return text, _functions(text)


def rooms() -> list[str]:
    """Lists the rooms that have bugs."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@cache
def planted() -> tuple[Planted, ...]:
    """Reads all bugs that were written by hand."""
    found: list[Planted] = []
    for path in sorted(FOLDER.glob("*.toml")):
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
        found += (Planted(id=name, room=path.stem, **entry) for name, entry in entries.items())
    return tuple(found)
