"""Bugs written by hand: what an engineer might get wrong, each with the harm that a user would notice.

A bug names a function and a fragment of its code, compared token by token: layout, comments and trailing commas do not
matter. A change of the product that touches the fragment changes the bug, too: it stays a bug, or another takes its
place.
"""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.source import ROOT, functions, replaced, tokens

FOLDER: Final = Path(__file__).parent / "planted"


class DoesNotApply(ValueError):
    """The function is gone, or its code does not hold the fragment exactly once."""


class Planted(NamedTuple):
    """A bug: in ``function`` of ``file``, ``new`` instead of ``old``; ``wrong`` says what a user notices."""

    id: str
    file: str
    function: str
    old: str
    new: str
    wrong: str

    def planted_in(self, text: str) -> str:
        """Write the bug into the text of its file."""
        function = functions(ast.parse(text)).get(self.function)
        if function is None:
            raise DoesNotApply(f"{self.id}: {self.file} has no function {self.function}")
        wanted = [token.text for token in tokens(self.old)]
        code = tokens(text, function.lineno, function.end_lineno)
        texts = [token.text for token in code]
        found = [at for at in range(len(code)) if texts[at : at + len(wanted)] == wanted]
        if len(found) != 1:
            raise DoesNotApply(
                f"{self.id}: {self.function} of {self.file} has its fragment {len(found)} times, not once"
            )
        first, last = code[found[0]], code[found[0] + len(wanted) - 1]
        mutant = replaced(text, first.first, last.last, self.new)
        compile(mutant, self.file, "exec")
        return mutant

    @property
    def mutant(self) -> str:
        """The text of the file with the bug."""
        return self.planted_in((ROOT / self.file).read_text(encoding="utf-8"))


@cache
def planted() -> tuple[Planted, ...]:
    """Read all bugs that were written by hand."""
    found: list[Planted] = []
    for path in sorted(FOLDER.glob("*.toml")):
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
        found += (Planted(id=name, **entry) for name, entry in entries.items())
    return tuple(found)
