"""Describes arguments and options of a verb once, and parses them by the standard library alone."""

from __future__ import annotations

import argparse
import inspect
import re
import types
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin

import msgspec

from pipeline.ending import USAGE, Stopped
from pipeline.verbs.running import Plain


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
        """Returns the long name, and the short one where there is one."""
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
        """Checks whether a value must be given."""
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


PROGRAM = "python -m pipeline"


def run(verbs: Sequence[Verb], words: Sequence[str]) -> int:
    """Runs the verb that ``words`` name and returns its exit code; wrong words exit with 2, as argparse does."""
    given = vars(parser(verbs).parse_args(words))
    verb = given.pop("verb")
    show = Plain(json_wanted=given.pop("output") == "json")
    try:
        code: int = verb(show, **given)
    except Stopped as end:
        show.failure(end.message, end.remedy, end.code)
        return end.code
    return code


def parser(verbs: Sequence[Verb]) -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    made = argparse.ArgumentParser(
        PROGRAM, description="Runs a verb of regent's pipeline on Spark, also below spark-submit.", allow_abbrev=False
    )
    named = made.add_subparsers(required=True, metavar="VERB")
    for verb in verbs:
        about = (verb.__doc__ or "").partition("\n")[0]
        one = named.add_parser(verb.__name__, help=about, description=about, allow_abbrev=False)
        one.set_defaults(verb=verb)
        for parameter in parameters_of(verb):
            _add(one, parameter)
        one.add_argument("-o", "--output", choices=("table", "json"), default="table", help="format of the data")
    return made


def _add(parser: argparse.ArgumentParser, parameter: Parameter) -> None:
    described = parameter.described
    about: dict[str, Any] = {"help": described.help.replace("%", "%%"), "default": parameter.default}
    if isinstance(described, Argument):
        several = "+" if parameter.required else "*"
        parser.add_argument(
            parameter.name, help=about["help"], nargs=several if parameter.several else None, type=parameter.kind
        )
        return
    about |= {"dest": parameter.name, "required": parameter.required}
    if parameter.kind is bool:
        parser.add_argument(*described.names, action="store_true", **about)
        return
    action = "append" if parameter.several else "store"
    metavar = described.metavar or described.name.strip("-").upper()
    parser.add_argument(*described.names, action=action, type=_within(parameter), metavar=metavar, **about)


def _within(parameter: Parameter) -> Callable[[str], Any]:
    """Returns what reads a value and refuses one out of bounds."""
    described, kind = parameter.described, parameter.kind
    if isinstance(described, Argument) or kind not in (int, float):
        return kind
    low, high = described.min, described.max

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            whole = "whole " if kind is int else ""
            raise argparse.ArgumentTypeError(f"{text!r} is no {whole}number") from None
        if low is not None and not value >= low:
            raise argparse.ArgumentTypeError(f"{text} is less than {low:g}")
        if high is not None and not value <= high:
            raise argparse.ArgumentTypeError(f"{text} is more than {high:g}")
        return value

    return read
