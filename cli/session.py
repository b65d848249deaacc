"""Holds the shared parts of every command: its options, the daemon's socket, the end by a failure."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, ParamSpec, TypeVar

import typer

from cli.completing import TIMEOUT_S, completed
from cli.exit_codes import Exit, Failure
from cli.help import Command, Group, Panel, epilog
from cli.output import Format, Output

if TYPE_CHECKING:
    from cli.client import Client
    from configs.loading import Loaded
    from configs.sections import StateSettings
    from configs.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")
REQUEST_TIMEOUT_S: Final = 10.0
SERVER_VARIABLE: Final = "REGENT_SERVER"
DEFAULT_SOCKET: Final = Path("/run/regent/regent.sock")

FormatOption = Annotated[
    Format | None,
    typer.Option("--output", "-o", help="Format of the data (default: table).", rich_help_panel=Panel.SHARED),
]
ServerOption = Annotated[
    str | None,
    typer.Option(help="Unix socket of the daemon.", envvar=SERVER_VARIABLE, rich_help_panel=Panel.SHARED),
]
NoColorOption = Annotated[
    bool, typer.Option("--no-color", help="No colors (also NO_COLOR=1).", rich_help_panel=Panel.SHARED)
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--request-timeout",
        min=0.1,
        help="Longest wait for a response, in seconds (default: 10; can-stop and the like: 60; verify: 120).",
        rich_help_panel=Panel.SHARED,
    ),
]
ConfigOption = Annotated[
    Path | None, typer.Option(help="Settings file.", envvar="REGENT_CONFIG", rich_help_panel=Panel.SHARED)
]


@dataclass(frozen=True, slots=True)
class Session:
    """The shared options of one call; None stands for an option that was not given."""

    form: Format | None = None
    server: str | None = None
    no_color: bool = False
    request_timeout: float | None = None
    config: Path | None = None

    @property
    def output(self) -> Output:
        """Returns the writer of the command's data and messages."""
        return Output(self.form or Format.TABLE, color=not self.no_color)

    def client(self, timeout_s: float = REQUEST_TIMEOUT_S) -> Client:
        """Returns a client of the daemon. ``timeout_s`` is for requests that take longer than others."""
        from cli.client import Client

        return Client(self._socket(), self.request_timeout or timeout_s, partial(self.output.message, style="yellow"))

    def settings(self, *, endpoint: bool = False, kafka_optional: bool = False, without_file: str = "") -> Loaded:
        """Returns the settings, for commands that work without a daemon. Raises :class:`Failure` if they are wrong.

        ``endpoint``: as the admin endpoint has them. ``kafka_optional``: also those of a daemon for regions alone.
        ``without_file``: the remedy where there is no settings file, in place of all keys that it would have.
        """
        if not kafka_optional and self.is_without_kafka():
            message = "these settings are of a daemon for regions alone, which has no Kafka cluster"
            raise Failure(
                Exit.USAGE, message, "see 'regent regions status'; a cluster needs [zookeeper] and [listener]"
            )
        return _configured(lambda: self._load(endpoint=endpoint, kafka_optional=kafka_optional), without_file)

    def read_settings(self) -> Settings:
        """Reads the settings of a daemon anew. Raises ``ConfigError`` if they are wrong."""
        return self._load(kafka_optional=True).settings

    def _load(self, *, endpoint: bool = False, kafka_optional: bool = False) -> Loaded:
        from configs.loading import load

        return load(self.config, endpoint=endpoint, kafka_optional=kafka_optional)

    def _socket(self) -> Path:
        if self.server:
            return Path(self.server.removeprefix("unix:"))
        from configs.connections import HttpSettings
        from configs.loading import load_section
        from configs.problems import ConfigError

        try:
            return load_section(HttpSettings, self.config).socket
        except ConfigError:
            if self.config is not None:
                return _configured(lambda: load_section(HttpSettings, self.config)).socket
            # A default file that is private or broken must not hide a daemon that runs.
            return DEFAULT_SOCKET

    def section_of_state(self) -> StateSettings:
        """Returns the section of the daemon's files, whatever is wrong in other sections."""
        from configs.loading import load_section
        from configs.sections import StateSettings

        return _configured(lambda: load_section(StateSettings, self.config))

    def is_without_kafka(self) -> bool:
        """Checks whether the settings are of a daemon for regions alone."""
        from configs.loading import is_without_kafka

        return _configured(lambda: is_without_kafka(self.config))

    def merged(self, context: typer.Context, given: dict[str, Any]) -> Session:
        """Returns these options with those ``given`` here; any command line wins over the environment."""
        named = {name: value for name, value in given.items() if _typed(context, name) or not getattr(self, name)}
        return replace(self, **named)


SHARED: Final[dict[str, Any]] = {
    "form": FormatOption,
    "server": ServerOption,
    "no_color": NoColorOption,
    "request_timeout": TimeoutOption,
    "config": ConfigOption,
}
"""Options of every command by field of :class:`Session`; accepted before the command's name, too."""


def _configured(read: Callable[[], T], without_file: str = "") -> T:
    from configs.loading import DEFAULT_FILE
    from configs.problems import ConfigError

    try:
        return read()
    except ConfigError as error:
        if without_file and error.file is None and not any(one.origin for one in error.problems):
            raise Failure(Exit.USAGE, f"there is no settings file {DEFAULT_FILE}", without_file) from None
        file = f" in {error.file}" if error.file else ""
        raise Failure(Exit.USAGE, f"{len(error.problems)} problem(s) with the settings{file}:\n{error}") from None


def command(
    app: typer.Typer, name: str | None = None, *, examples: Sequence[str], panel: Panel | None = None
) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[Concatenate[Session, P], None]]:
    """Makes a function a command: its first parameter is the :class:`Session`, the others are its own options.

    The help ends with ``examples``; the list of commands has it in ``panel``.
    """

    def register(function: Callable[Concatenate[Session, P], None]) -> Callable[Concatenate[Session, P], None]:
        def run(context: typer.Context, **given: Any) -> None:
            session = (context.obj or Session()).merged(context, {option: given.pop(option) for option in SHARED})
            guarded(session, lambda: function(session, **given))  # type: ignore[call-arg]

        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        _take(run, [completed(function.__module__, parameter, _of_a_shell) for parameter in own])
        run.__doc__ = function.__doc__
        named = name or function.__name__.replace("_", "-")
        app.command(named, cls=Command, epilog=epilog(examples), rich_help_panel=panel)(run)
        return function

    return register


def of_parameters(
    run: Callable[..., None], like: Callable[..., object], own: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Returns ``run`` as a function for :func:`command`: with the name and text of ``like``, and given parameters."""
    first = inspect.Parameter("session", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Session)
    run.__signature__ = inspect.Signature([first, *own])  # type: ignore[attr-defined]
    run.__doc__, run.__name__, run.__module__ = like.__doc__, like.__name__, like.__module__
    return run


def _of_a_shell() -> Client:
    """Returns the client of a shell that completes a value: options on its line are not known yet."""
    config = os.environ.get("REGENT_CONFIG")
    session = Session(server=os.environ.get(SERVER_VARIABLE), config=Path(config) if config else None)
    return replace(session, request_timeout=TIMEOUT_S).client()


def group(app: typer.Typer, name: str, help_text: str, panel: Panel) -> typer.Typer:
    """Returns a group of commands below a common name, which takes the shared options, too."""

    def shared(context: typer.Context, **given: Any) -> None:
        context.obj = (context.obj or Session()).merged(context, given)

    _take(shared, [])
    made = typer.Typer(cls=Group, no_args_is_help=True, help=help_text, callback=shared)
    app.add_typer(made, name=name, rich_help_panel=panel)
    return made


def _take(run: Callable[..., None], own: list[inspect.Parameter]) -> None:
    """Gives a function the parameters that typer reads: the context, its own and the shared options."""
    shared = [_shared_parameter(option) for option in SHARED]
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    named = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    parameters = [context, *named, *shared]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def _typed(context: typer.Context, name: str) -> bool:
    """Returns whether an option comes from the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _shared_parameter(option: str) -> inspect.Parameter:
    default = False if option == "no_color" else None
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(option, kind, default=default, annotation=SHARED[option])


def guarded(session: Session, work: Callable[[], None]) -> None:
    """Runs a command; its failures become a sentence on standard error and an exit code."""
    try:
        work()
    except Failure as failure:
        session.output.failure(failure.message, failure.remedy, failure.code)
        raise typer.Exit(failure.code) from None
    except KeyboardInterrupt:
        session.output.message(
            "detached; an operation that a daemon has begun goes on. See: regent status, or regent regions status"
        )
        raise typer.Exit(Exit.DETACHED) from None


def on_terminal() -> bool:
    """Returns whether a question can be put to a person."""
    return os.isatty(0) and os.isatty(2)


def confirmed(agreed: bool, question: str) -> None:
    """Puts a question before a change; raises :class:`Failure` without a terminal, or where the user declines."""
    if agreed:
        return
    if not on_terminal():
        raise Failure(
            Exit.USAGE,
            "the question needs a terminal, and there is none",
            "give --yes, or --dry-run where the command has it",
        )
    if not typer.confirm(question, err=True):
        raise Failure(Exit.REFUSED, "nothing was done")
