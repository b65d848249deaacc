"""Finds functions and tokens in the product's source, and replaces spans of it."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
AREAS: Final = (
    "state_machines",
    "controller",
    "metadata_store",
    "brokers",
    "regent_agent",
    "cli",
    "admin",
    "configs",
    "pipeline",
)
MODULE: Final = "<module>"
"""Stands for the code outside of functions."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
_LAYOUT: Final = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER)
_CLOSING: Final = (")", "]", "}")


class Token(NamedTuple):
    """A token of code, and its lines (from 1) and columns (from 0, in characters)."""

    text: str
    first: tuple[int, int]
    last: tuple[int, int]


def product_files() -> list[str]:
    """Lists the product's modules, relative to the repository."""
    found = (path for area in AREAS for path in (ROOT / area).rglob("*.py"))
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def functions(tree: ast.AST, prefix: str = "") -> dict[str, Function]:
    """Maps qualified names to functions and methods; a nested function is part of the outer one."""
    found: dict[str, Function] = {}
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found[f"{prefix}{node.name}"] = node
        elif isinstance(node, ast.ClassDef):
            found |= functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            found |= functions(node, prefix)
    return found


def tokens(text: str, first_line: int = 1, last_line: int | None = None) -> list[Token]:
    """Reads the tokens of code on some lines: no layout, no comments, no comma before a closing bracket."""
    found: list[Token] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            within = token.start[0] >= first_line and (last_line is None or token.end[0] <= last_line)
            if within and token.type not in _LAYOUT and token.string:
                found.append(Token(token.string, token.start, token.end))
    except (tokenize.TokenError, IndentationError):  # a fragment may end within brackets, or be indented
        pass
    after = [token.text for token in found[1:]] + [""]
    return [token for token, following in zip(found, after, strict=True) if not _is_trailing(token, following)]


def _is_trailing(token: Token, following: str) -> bool:
    return token.text == "," and following in _CLOSING


def replaced(text: str, first: tuple[int, int], last: tuple[int, int], new: str) -> str:
    """Replaces a span; further lines of ``new`` are indented as the line on which the span begins."""
    lines = text.splitlines(keepends=True)
    line = lines[first[0] - 1]
    indent = line[: len(line) - len(line.lstrip())]
    body = new.strip().replace("\n", f"\n{indent}")
    changed = line[: first[1]] + body + lines[last[0] - 1][last[1] :]
    return "".join([*lines[: first[0] - 1], changed, *lines[last[0] :]])
