"""Words what brokers refuse: the cause, and the way out that brings no record of an earlier topic into the new one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from brokers.wire.errors import Error, error_name
from controller.process.wording import counted
from state_machines.model.cluster import Cluster
from state_machines.model.refusals import Refusal

SHOWN_MAX: Final = 10
"""Brokers that a status names; the others are counted."""
LISTED: Final = "regent list partitions --refused"
ANOTHER_ID: Final = "the log there has another topic id than the topic's znode, as of an earlier topic of this name"


def refused_sentences(cluster: Cluster) -> Iterator[str]:
    """Yields a sentence for each broker that refuses partitions, with the first of them."""
    brokers = cluster.refusals.brokers()
    for broker in brokers[:SHOWN_MAX]:
        rows = cluster.refusals.on(broker)
        first = next(iter(rows))
        count, name, found = counted(len(rows), "partition"), cluster.name(first), rows[first]
        yield (
            f"broker {broker} refuses {count} since {_time(found)} with {error_name(found.error)}, "
            f"the first is {name}: regent explain {name.topic} {name.partition}"
        )
    if len(brokers) > SHOWN_MAX:
        yield f"{len(brokers) - SHOWN_MAX} more brokers refuse partitions: {LISTED}"


def cause(found: Refusal) -> str:
    """Returns the error of a refusal with its meaning, and since when it holds."""
    meaning = f"; {ANOTHER_ID}" if found.error == Error.INCONSISTENT_TOPIC_ID else ""
    return f"it refuses the partition with {error_name(found.error)} since {_time(found)}{meaning}"


def ways_out(cluster: Cluster, i: int) -> Iterator[str]:
    """Yields a way out for the brokers that refuse a row; records of an earlier topic stay out of the new one."""
    row, name = cluster.rows[i], cluster.name(i)
    for broker in cluster.refusals.refusing(i, row.assignment.replicas):
        found = cluster.refusals.of(i, broker)
        if found is None:
            continue
        if found.error != Error.INCONSISTENT_TOPIC_ID:
            yield f"broker {broker} may accept it after a restart: its log has the cause"
        else:
            yield (
                f"broker {broker} accepts it without that log: stop it, move the directory {name} out of its log "
                "directories (keep it: it has the earlier topic's records), start it; it copies the partition from the "
                "leader"
            )
    others = [b for b in row.assignment.replicas if cluster.refusals.of(i, b) is None]
    if cluster.refusals and not others:
        yield (
            "all replicas refuse it, so nothing was written to it; deleting the topic deletes the earlier logs, too: "
            "copy them before if their records are needed"
        )


def _time(found: Refusal) -> str:
    return f"{datetime.fromtimestamp(found.since_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
