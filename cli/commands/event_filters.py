"""Turns the filters of ``regent events`` into the conditions of a query, and refuses those that no row can meet."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from cli.exit_codes import Exit, Failure
from cli.verbs import as_failure

if TYPE_CHECKING:
    from controller.journal.query import Wanted

_SERVER: Final = re.compile(r"[^,]+(,\d+)?")

Topic = Annotated[str | None, typer.Option("--topic", help="Only rows of one topic, and of procedures about it.")]
Partition = Annotated[int | None, typer.Option("--partition", min=0, help="Only rows of one partition of the topic.")]
Broker = Annotated[
    int | None,
    typer.Option(
        "--broker",
        help="Only rows with the broker: as leader before or after, in or out of the ISR, or of a procedure about it.",
    ),
]
Region = Annotated[
    int | None, typer.Option("--region", min=1, help="Only rows of one region, by its id, and of procedures about it.")
]
OfTable = Annotated[
    str | None, typer.Option("--table", help="Only rows of one table, of its regions, and of procedures about them.")
]
AtServer = Annotated[
    str | None,
    typer.Option(
        "--server-name",
        help="Only rows of one server, NAME or NAME,INCARNATION: of it, of regions that it gets or gives up, of "
        "requests to it.",
    ),
]
ByPid = Annotated[int | None, typer.Option("--pid", min=1, help="Only rows of a procedure and its children.")]
Kinds = Annotated[
    list[str] | None, typer.Option("--kind", help="Only rows of a kind, such as LEADER; may be repeated.")
]
Since = Annotated[str | None, typer.Option("--since", help="Start: 90s, 30m, 2h, 1d ago, or a time in ISO 8601.")]
Until = Annotated[str | None, typer.Option("--until", help="End, in the same forms.")]


class OfKafka(NamedTuple):
    """Filters of rows of a Kafka cluster."""

    topic: str | None
    partition: int | None
    broker: int | None


class OfRegions(NamedTuple):
    """Filters of rows of the domain of regions."""

    region: int | None
    table: str | None
    server_name: str | None


def wanted(
    of_kafka: OfKafka,
    of_regions: OfRegions,
    pid: int | None,
    kinds: list[str] | None,
    since: str | None,
    until: str | None = None,
) -> Wanted:
    """Returns the conditions of a query; raises :class:`Failure`."""
    from controller.journal.query import Wanted
    from state_machines.journal.events import Kind

    if of_kafka.partition is not None and of_kafka.topic is None:
        raise Failure(Exit.USAGE, "--partition needs --topic", "name the topic, too")
    if (one := first_of(of_kafka)) and (other := first_of(of_regions)):
        why = f"no row has both {one} and {other}: partitions and regions have journals of their own"
        raise Failure(Exit.USAGE, why, "leave one of the two out")
    names = frozenset(kind.upper() for kind in kinds or ())
    if unknown := sorted(names - set(Kind)):
        raise Failure(Exit.USAGE, f"there is no kind {unknown[0]}", f"the kinds are {', '.join(sorted(Kind))}")
    now = datetime.now(UTC)
    server, incarnation = _process(of_regions.server_name)
    begin, end = moment("--since", since, now), moment("--until", until, now)
    if begin is not None and end is not None and end < begin:
        raise Failure(Exit.USAGE, f"--until {until} is before --since {since}", "exchange the two")
    return Wanted(
        *of_kafka,
        names,
        begin,
        end,
        pid,
        of_regions.region,
        _table(of_regions.table),
        server,
        incarnation,
    )


def first_of(given: OfKafka | OfRegions) -> str | None:
    """Returns the first option that is given."""
    return next((f"--{name.replace('_', '-')}" for name, value in given._asdict().items() if value is not None), None)


def _table(name: str | None) -> str | None:
    from state_machines.regions.layout import name_problem

    if name is not None and (problem := name_problem(name)) is not None:
        raise Failure(Exit.USAGE, f"--table: {problem}", "see 'regent tables list'")
    return name


def _process(named: str | None) -> tuple[str | None, int | None]:
    """Returns the name of a server, and the incarnation of its process where that is given."""
    if named is None:
        return None, None
    if _SERVER.fullmatch(named) is None:
        remedy = "give NAME or NAME,INCARNATION, as 'regent servers list' has them"
        raise Failure(Exit.USAGE, f"--server-name {named} is no server", remedy)
    name, _, incarnation = named.partition(",")
    return name, int(incarnation) if incarnation else None


def moment(option: str, text: str | None, now: datetime) -> int | None:
    """Returns microseconds of the wall clock."""
    from pipeline.verbs import options

    with as_failure():
        return options.moment(option, text, now)
