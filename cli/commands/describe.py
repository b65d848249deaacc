"""Adds regent describe, which shows one cluster, broker, topic or partition."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Final

import typer

from cli.commands.observe import Partition, Topic
from cli.help import Panel
from cli.session import Session, command, group

HOSTED_SHOWN: Final = 20
"""Partitions of a dead broker that are listed with it."""


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "describe", "Show everything known of one cluster, broker, topic or partition.", Panel.LOOK)
    command(named, examples=("regent describe cluster", "regent describe cluster -o yaml"))(cluster)
    command(named, examples=("regent describe broker 1",))(broker)
    command(named, examples=("regent describe topic orders", "regent describe topic orders -o wide"))(topic)
    command(named, examples=("regent describe partition orders 0",))(partition)


def cluster(session: Session) -> None:
    """Show the cluster, and the daemons that queue for its role."""
    session.output.detail("Cluster", session.client().get("/v1/cluster")["items"][0])


def broker(session: Session, broker: Annotated[int, typer.Argument(help="Id of the broker.", min=0)]) -> None:
    """Show a broker, and the partitions it has not acknowledged; of a dead one, some of the partitions it hosts."""
    client, output = session.client(), session.output
    found = client.get(f"/v1/brokers/{broker}")["items"][0]
    output.detail("Broker", found)
    if found["state"] == "dead" and not output.for_programs:
        output.text("")
        output.listing("Partition", islice(client.pages("/v1/partitions", {"broker": broker}), HOSTED_SHOWN))
        if found["hosts"] > HOSTED_SHOWN:
            output.message(
                f"{HOSTED_SHOWN} of {found['hosts']} are shown; all: regent list partitions --broker {broker}"
            )


def topic(session: Session, topic: Topic) -> None:
    """Show a topic and its partitions."""
    from cli.client import topic_path

    client, output = session.client(), session.output
    found = client.get(topic_path(topic))["items"][0]
    rows = list(client.pages("/v1/partitions", {"topic": topic}))
    if output.for_programs:
        output.document("Topic", [{**found, "partitionItems": rows}])
        return
    output.detail("Topic", found)
    output.text("")
    output.listing("Partition", rows)


def partition(session: Session, topic: Topic, partition: Partition) -> None:
    """Show a partition; `regent explain` has the reasons."""
    from cli.client import partition_path

    found = session.client().get(partition_path(topic, partition))["items"][0]
    session.output.detail("Partition", found)
