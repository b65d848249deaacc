"""Reads commands out of the how-to pages, for tests that carry them out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

HOW_TO: Final = Path(__file__).parents[2] / "docs" / "how-to"


def documented(heading: str) -> list[str]:
    """Returns the commands of a section of the how-to pages, in all its blocks."""
    found = [re.split(rf"(?m)^##+ {heading}$", page.read_text())[1:] for page in HOW_TO.glob("*.md")]
    [[below]] = [parts for parts in found if parts]
    section = below.split("\n## ")[0].split("\n### ")[0]
    lines = (line.partition("  #")[0].strip() for block in section.split("```")[1::2] for line in block.splitlines())
    return [line for line in lines if line]


def statement_for_going_back() -> str:
    """Returns what the documentation says, for the shell of SQLite."""
    text = (HOW_TO / "upgrade-and-uninstall.md").read_text()
    [found] = re.findall(r"^sqlite3 /var/lib/regent/regions\.db \"(BEGIN;.*?COMMIT)\"$", text, re.DOTALL | re.MULTILINE)
    return str(found)
