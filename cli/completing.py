"""Completes values of options and arguments in a shell: topics, brokers, pids, kinds and causes.

Names come from the daemon of the default socket. One that does not respond within a second gives none.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, get_args

from typer.models import ParameterInfo

from cli.exit_codes import Failure

if TYPE_CHECKING:
    from cli.client import Client

Source = Callable[["Client"], Iterable[str]]
"""Returns names that a daemon has, or that the program knows itself."""

TIMEOUT_S: Final = 1.0
"""Longest wait for a daemon."""
SHOWN_MAX: Final = 200
"""Values that a shell is given; more of the name leads to the others."""
OF_REGIONS: Final = "cli.commands.region"
"""Begin of the modules whose pids are of the regions' domain."""


def completed(module: str, parameter: inspect.Parameter, client: Callable[[], Client]) -> inspect.Parameter:
    """Returns the parameter of a command with the completion of its values, where there is one."""
    source = _source_of(module, parameter.name)
    if source is None or not hasattr(parameter.annotation, "__metadata__"):
        return parameter

    def complete(incomplete: str) -> list[str]:
        try:
            fitting = (name for name in source(client()) if name.startswith(incomplete))
            return list(islice(fitting, SHOWN_MAX))
        except Failure:
            return []

    of_type, *infos = get_args(parameter.annotation)
    own = [copy.copy(info) for info in infos]
    for info in own:
        if isinstance(info, ParameterInfo):
            info.autocompletion = complete
    return parameter.replace(annotation=Annotated[of_type, *own])


def _source_of(module: str, name: str) -> Source | None:
    if name in ("pid", "pids"):
        return _pids_of_regions if module.startswith(OF_REGIONS) else _pids
    if name == "kind" and module == "cli.commands.procedures":
        return lambda _: kinds()
    if name == "kind" and module == "cli.commands.events":
        return _kinds_of_rows
    return _BY_NAME.get(name)


def kinds() -> list[str]:
    """Returns the kinds of procedures, sorted."""
    from controller.kafka.term.procedures import KINDS

    return sorted(kind.name for kind in KINDS)


def _topics(client: Client) -> Iterable[str]:
    return (one["name"] for one in client.pages("/v1/topics"))


def _brokers(client: Client) -> Iterable[str]:
    return (str(one["id"]) for one in client.get("/v1/brokers")["items"])


def _pids(client: Client) -> Iterable[str]:
    return (str(one["pid"]) for one in client.get("/v1/procedures")["items"])


def _pids_of_regions(client: Client) -> Iterable[str]:
    return (str(one["pid"]) for one in client.pages("/v1/regions/procedures"))


def _kinds_of_rows(_: Client) -> Iterable[str]:
    from state_machines.journal.events import Kind

    return sorted(Kind)


def _causes(_: Client) -> Iterable[str]:
    from state_machines.decisions.hindrances import StopCause

    return [cause.value for cause in StopCause]


_BY_NAME: Final[dict[str, Source]] = {
    "topic": _topics,
    "topics": _topics,
    "exclude": _topics,
    "broker": _brokers,
    "brokers": _brokers,
    "accept": _causes,
}
