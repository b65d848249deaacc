"""Parses the command line of ``python -m pipeline`` by the standard library alone."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from pipeline.ending import Stopped
from pipeline.verbs.options import Argument, Parameter, Verb, parameters_of
from pipeline.verbs.showing import Plain

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
