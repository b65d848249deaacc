"""Makes commands of the pipeline's verbs: typer gets their options, their ends become failures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, get_args

import typer

from cli.exit_codes import Exit, Failure
from cli.session import Session
from pipeline.verbs.ending import Stopped
from pipeline.verbs.options import Argument, Option, Verb, own_parameters


@contextmanager
def as_failure() -> Iterator[None]:
    """Makes a failure of the end of a verb."""
    try:
        yield
    except Stopped as end:
        raise Failure(Exit(end.code), end.message, end.remedy) from end.__cause__


def as_command(verb: Verb) -> Callable[..., None]:
    """Returns a verb as a function for :func:`cli.session.command`."""

    def run(session: Session, **given: Any) -> None:
        with as_failure():
            code = verb(session.output, **given)
        if code:
            raise typer.Exit(code)

    first = inspect.Parameter("session", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Session)
    own = [one.replace(annotation=of_typer(one.annotation)) for one in own_parameters(verb)]
    run.__signature__ = inspect.Signature([first, *own])  # type: ignore[attr-defined]
    run.__doc__, run.__name__, run.__module__ = verb.__doc__, verb.__name__, verb.__module__
    return run


def of_typer(annotation: Any) -> Any:
    """Returns the annotation of a verb's parameter as typer reads it."""
    of_type, described = get_args(annotation)
    if isinstance(described, Argument):
        return Annotated[of_type, typer.Argument(help=described.help)]
    assert isinstance(described, Option)
    option = typer.Option(
        *described.names, help=described.help, min=described.min, max=described.max, metavar=described.metavar
    )
    return Annotated[of_type, option]
