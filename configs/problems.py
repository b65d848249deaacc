"""Describes problems of settings for the operator that fixes them: key, value, origin, reason, remedy."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from configs.sections import Section
from configs.settings import Key, Settings, shown


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of the settings. ``key`` is ``section.key``, a section, or empty for the whole file."""

    key: str
    value: str
    origin: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        named = f"{self.key} = {self.value}" if self.key and self.value else self.key or self.value
        origin = f" ({self.origin})" if self.origin else ""
        return f"{named}{origin} {self.reason}.\n    Remedy: {self.remedy}."


class ConfigError(Exception):
    """Error of unusable settings. ``problems`` holds every problem found."""

    def __init__(self, problems: list[Problem], file: Path | None) -> None:
        self.problems = problems
        self.file = file
        super().__init__("\n".join(f"  {problem}" for problem in problems))


def section_problems(
    name: str, kind: type[Section], raw: Mapping[str, Any], origins: Mapping[str, str]
) -> tuple[Section, list[Problem]]:
    """Checks one section. Returns it, with defaults or samples in place of wrong values, and the problems."""
    inline = _inline_secrets(name, kind, raw, origins)
    raw = {item: value for item, value in raw.items() if item not in inline}
    problems = [_inline_secret(name, item) for item in inline]
    try:
        return kind.model_validate(raw), problems
    except ValidationError as error:
        for details in error.errors(include_url=False):
            problems.append(_problem(name, kind, details, origins))
            raw.pop(str(details["loc"][0]), None)
    samples = {
        item: Key(name, f"{name}.{item}", field).meta("sample")
        for item, field in kind.model_fields.items()
        if field.is_required() and item not in raw
    }
    return kind.model_validate(samples | raw), problems


def unknown_section(name: str, values: Mapping[str, Any], origins: Mapping[str, str]) -> Problem:
    """Returns the problem of a section that does not exist."""
    origin = origins.get(f"{name}.{next(iter(values), '')}", "")
    remedy = _suggestion(name, list(Settings.model_fields)) or f"use one of {', '.join(Settings.model_fields)}"
    return Problem(name, "", origin, "is not a section", remedy)


def _inline_secrets(name: str, kind: type[Section], raw: Mapping[str, Any], origins: Mapping[str, str]) -> list[str]:
    return [
        item
        for item, field in kind.model_fields.items()
        if item in raw
        and Key(name, item, field).meta("environment_only")
        and not origins.get(f"{name}.{item}", "").startswith("environment ")
    ]


def _inline_secret(section: str, item: str) -> Problem:
    remedy = (
        f"put it into a file that only the daemon may read and name that file by {section}.{item}_file, "
        f"or set it in the environment as REGENT_{section.upper()}__{item.upper()}"
    )
    return Problem(f"{section}.{item}", "******", "", "is a secret and must not be in the settings file", remedy)


def _problem(section: str, kind: type[Section], details: ErrorDetails, origins: Mapping[str, str]) -> Problem:
    item = str(details["loc"][0])
    name = f"{section}.{item}"
    origin = origins.get(name, "")
    if details["type"] == "extra_forbidden":
        remedy = _suggestion(item, list(kind.model_fields), f"{section}.") or _known(section, kind)
        return Problem(name, _given(item, details["input"]), origin, "is not a key", remedy)
    key = Key(section, name, kind.model_fields[item])
    if details["type"] == "missing":
        variable = f"REGENT_{section.upper()}__{item.upper()}"
        remedy = f"{key.meta('remedy')}; set it in the file or as {variable}"
        return Problem(name, "", "", "is not set and has no default", remedy)
    secret = bool(key.meta("environment_only"))
    value = "******" if secret else _given(item, details["input"])
    return Problem(name, value, origin, _reason(key.field, details), _remedy(key))


def _given(item: str, value: object) -> str:
    return "******" if "password" in item or item in ("digest", "sasl") else shown(value)


def _reason(field: FieldInfo, details: ErrorDetails) -> str:
    if details["type"] == "value_error":
        return str(details["ctx"]["error"])
    return f"is not {expected(field)}"


def _remedy(key: Key) -> str:
    advice = key.meta("remedy") or f"give {expected(key.field)}"
    if key.field.is_required() or key.field.default is None:
        return str(advice)
    return f"{advice}; the default is {shown(key.field.default)}"


def expected(field: FieldInfo) -> str:
    """Returns the type and the limits of a key, in words."""
    kind = _bare(field.annotation)
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(kind))
    if get_origin(kind) is tuple:
        return "a list of texts"
    words = {bool: "true or false", int: "a whole number", float: "a number", Path: "an absolute path"}
    text = words.get(kind, "a text")
    low = next((m.ge for m in field.metadata if hasattr(m, "ge")), None)
    high = next((m.le for m in field.metadata if hasattr(m, "le")), None)
    return text if low is None and high is None else f"{text} from {low} to {high}"


def _bare(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    if hasattr(annotation, "__metadata__"):
        annotation = get_args(annotation)[0]
    return str if annotation is SecretStr else annotation


def _known(section: str, kind: type[Section]) -> str:
    return f"the keys of [{section}] are {', '.join(kind.model_fields)}"


def _suggestion(wrong: str, known: list[str], prefix: str = "") -> str:
    close = get_close_matches(wrong, known, n=1, cutoff=0.6)
    return f"write {prefix}{close[0]}" if close else ""
