"""Adds regent list, which lists brokers, topics, partitions and snapshots."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from cli.help import Panel
from cli.session import Session, command, group

SECONDS: Final = len("2026-11-28T12:50:03")
"""Characters of a time up to its seconds."""

OfTopic = Annotated[str | None, typer.Option("--topic", help="Only those of one topic.")]
Offline = Annotated[bool, typer.Option("--offline", help="Those without a leader.")]
UnderReplicated = Annotated[
    bool, typer.Option("--under-replicated", help="Those whose ISR lacks a replica, beside those being added.")
]
AtMinIsr = Annotated[bool, typer.Option("--at-min-isr", help="Those whose ISR is just min.insync.replicas.")]
UnderMinIsr = Annotated[
    bool, typer.Option("--under-min-isr", help="Those whose ISR is below min.insync.replicas: acks=all producers wait.")
]
NotPreferred = Annotated[bool, typer.Option("--not-preferred", help="Those not led by their first replica.")]
Refused = Annotated[bool, typer.Option("--refused", help="Those that a broker refuses: see regent explain.")]
OnBroker = Annotated[int | None, typer.Option("--broker", min=0, help="Those with a replica on this broker.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "list", "List brokers, topics, partitions or snapshots.", Panel.LOOK)
    command(named, examples=("regent list brokers", "regent list brokers -o wide"))(brokers)
    command(named, examples=("regent list topics", "regent list topics -o json"))(topics)
    command(
        named,
        examples=(
            "regent list partitions --offline",
            "regent list partitions --under-min-isr --topic orders",
            "regent list partitions --broker 2 -o json",
        ),
    )(partitions)
    command(named, examples=("regent list snapshots", "regent list snapshots -o wide"))(snapshots)


def brokers(session: Session) -> None:
    """List the brokers, with the dead ones that replicas are assigned to.

    LEADS and HOSTS count partitions.
    UNACKED counts those whose last change the broker has not acknowledged yet.
    AGE is the seconds since the oldest of these changes.
    REFUSES counts partitions whose replica the broker refuses; `regent list partitions --refused` lists them.
    An unreachable broker is registered, and no connection to it can be made; `regent describe broker` has the error.
    A dead broker is not registered any more: it hosts replicas, or a running plan waits for it.
    It is dead since the time beside it, or was so when the term of the daemon began.
    """
    found = session.client().get("/v1/brokers")["items"]
    session.output.listing("Broker", found if session.output.for_programs else [*map(_dated, found)])


def _dated(broker: dict[str, Any]) -> dict[str, Any]:
    """Returns a broker with the time of its death beside its state."""
    for key, word in (("deadSince", "since"), ("deadBefore", "before")):
        if (at := broker.get(key)) is not None:
            return broker | {"state": f"{broker['state']} {word} {at[:SECONDS].replace('T', ' ')} UTC"}
    return broker


def topics(session: Session) -> None:
    """List the topics, with counts of partitions.

    UNDER-MIN-ISR counts partitions whose acks=all producers wait; it is - while that is unknown.
    """
    session.output.listing("Topic", session.client().pages("/v1/topics"))


def partitions(
    session: Session,
    topic: OfTopic = None,
    offline: Offline = False,
    under_replicated: UnderReplicated = False,
    at_min_isr: AtMinIsr = False,
    under_min_isr: UnderMinIsr = False,
    not_preferred: NotPreferred = False,
    refused: Refused = False,
    broker: OnBroker = None,
) -> None:
    """List partitions; several filters together list those that match any of them."""
    wanted = {
        "offline": offline,
        "under-replicated": under_replicated,
        "at-min-isr": at_min_isr,
        "under-min-isr": under_min_isr,
        "not-preferred": not_preferred,
        "refused": refused,
    }
    params: dict[str, Any] = {"only": [name for name, given in wanted.items() if given]}
    params |= {"topic": topic} if topic else {}
    params |= {"broker": broker} if broker is not None else {}
    session.output.listing("Partition", session.client().pages("/v1/partitions", params))


def snapshots(session: Session) -> None:
    """List the last snapshots of the daemon since its start, oldest first; `regent snapshot` takes one."""
    session.output.listing("Snapshot", session.client().get("/v1/snapshots")["items"])
