"""Describes arguments and options of a verb once, whatever parses them."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin

import msgspec

from pipeline.ending import USAGE, Stopped


class Argument(msgspec.Struct, frozen=True):
    """A value by its place; the last one takes several where its type is a list."""

    help: str


class Option(msgspec.Struct, frozen=True):
    """A value by its name, ``--name``. A list is repeatable, a ``bool`` takes no value."""

    name: str
    help: str
    min: float | None = None
    max: float | None = None
    metavar: str | None = None
    short: str | None = None

    @property
    def names(self) -> list[str]:
        return [self.name, *([self.short] if self.short else [])]


class Parameter(NamedTuple):
    """A parameter of a verb. ``kind``: the type of one value."""

    name: str
    kind: type
    several: bool
    default: Any
    described: Argument | Option

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


Master = Annotated[
    str | None,
    Option(
        "--master",
        "Master of Spark: local[2], spark://host:7077, yarn, k8s://... (default: spark-submit's, or local[*]).",
    ),
]
Conf = Annotated[list[str] | None, Option("--conf", "A setting of Spark, NAME=VALUE; may be repeated.")]
Quiet = Annotated[bool, Option("--quiet", "Say nothing about the progress.", short="-q")]

Verb = Callable[..., int]
NONE: Final = type(None)


def own_parameters(verb: Verb) -> list[inspect.Parameter]:
    """Returns the parameters after the first one, which is no argument of a command line."""
    return list(inspect.signature(verb, eval_str=True).parameters.values())[1:]


def parameters_of(verb: Verb) -> list[Parameter]:
    """Returns what a command line gives to a verb."""
    found = []
    for one in own_parameters(verb):
        of_type, described = get_args(one.annotation)
        if get_origin(of_type) in (Union, types.UnionType):
            [of_type] = [each for each in get_args(of_type) if each is not NONE]
        several = get_origin(of_type) is list
        kind = get_args(of_type)[0] if several else of_type
        found.append(Parameter(one.name, kind, several, one.default, described))
    return found


_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def moment(option: str, text: str | None, now: datetime) -> int | None:
    """Returns microseconds of the wall clock; raises :class:`Stopped`."""
    if text is None:
        return None
    try:
        span = length(text)
        then = now - span if span is not None else datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        remedy = "give 90s, 30m, 2h or 1d, or a time such as 2026-01-31T12:00:00 (UTC unless it says otherwise)"
        raise Stopped(USAGE, f"{option} {text} is no time", remedy) from None
    then = then if then.tzinfo is not None else then.replace(tzinfo=UTC)
    return int(then.timestamp() * 1e6)


def length(text: str) -> timedelta | None:
    """Returns a length of time such as ``90s``, ``30m``, ``2h`` or ``14d``; None for what is none, or is too long."""
    found = _AGO.fullmatch(text)
    try:
        return timedelta(**{_UNITS[found[2]]: float(found[1])}) if found else None
    except OverflowError:
        return None
