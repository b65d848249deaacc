"""Writes ``configs/example.toml`` from the settings: ``python -m configs.example > configs/example.toml``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Final

from configs.problems import expected
from configs.settings import Key, Settings, keys, section_type

WIDTH: Final = 110
HEAD: Final = """\
# Settings of regent. `regent config check` checks a file; `regent config show` prints every value in force and its
# origin. Commented keys show their defaults or, where they have none, a sample; of the other keys, enabled = false
# keeps a section switched off, and the rest are required.
# The environment overrides every key: REGENT_SECTION__KEY, for example REGENT_LOG__LEVEL=debug.
"""


def render() -> str:
    """Returns the example file: every section, every key with its explanation, its default or a sample."""
    parts = [HEAD]
    by_section: dict[str, list[Key]] = {section: [] for section in Settings.model_fields}
    for key in keys():
        by_section[key.section].append(key)
    for section, members in by_section.items():
        parts.append(f"\n# {section_type(section).__doc__}\n[{section}]\n")
        parts.append("\n".join("\n".join(_lines(key)) + "\n" for key in members))
    return "".join(parts)


def _lines(key: Key) -> Iterator[str]:
    item = key.name.partition(".")[2]
    for line in wrap(f"{key.field.description}{_limits(key)}", WIDTH, break_on_hyphens=False):
        yield f"# {line}"
    if key.meta("environment_only"):
        yield f"# REGENT_{key.section.upper()}__{item.upper()}=user:password"
    elif key.field.is_required():
        yield f"{item} = {toml(key.meta('sample'))}"
    elif key.meta("sample") is False:  # a section that would switch something on
        yield f"{item} = {toml(False)}"
    elif key.field.default is None:
        yield f"#{item} = {toml(key.meta('sample'))}"
    else:
        yield f"#{item} = {toml(key.field.default)}"


def _limits(key: Key) -> str:
    words = expected(key.field)
    if words.startswith("one of "):
        return f" ({words.removeprefix('one of ').replace(', ', ' | ')})"
    _, separator, limits = words.partition(" from ")
    return f" (From {limits}.)" if separator else ""


def toml(value: object) -> str:
    """Returns a value in TOML's notation."""
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    print(render(), end="")
