"""Adds regent status, history, health, explain and verify, which show the state of the cluster and its reasons."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import typer

from cli.exit_codes import Exit
from cli.help import Panel
from cli.output import Format, cell
from cli.session import Session, command

VERIFY_TIMEOUT_S: Final = 120.0
ALWAYS: Final = (
    "controllerEpoch", "adminEndpoint", "brokers", "topics", "partitions", "offlinePartitions",
    "underReplicatedPartitions", "underMinIsrPartitions", "reassignments",
)  # fmt: skip
"""Rows of every status; a dash where the daemon has no value, as a standby without a model of the cluster."""
FIRST: Final = ("health", "warnings", "procedures", "throttles", "paused", "mode", "why", "holder", "holderKind")
COUNTS_OF_TROUBLE: Final = ("offlinePartitions", "underReplicatedPartitions", "underMinIsrPartitions")
ZEROS: Final = frozenset({*COUNTS_OF_TROUBLE, "reassignments", "unacknowledgedPartitions", "eventQueueSize"})
"""Rows that are dimmed where their count is 0."""
IDENTITY: Final = (
    "version", "controllerId", "clusterId", "ibp", "roleFlag", "onAbsence", "sessionTimeoutMs", "zookeeperConnected",
)  # fmt: skip
"""Rows that rarely change: with ``-o wide`` alone."""
WELL: Final = "nothing is wrong with the cluster"

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]
Partition = Annotated[int, typer.Argument(help="Number of the partition.", min=0)]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    command(app, panel=Panel.LOOK, examples=("regent status", "regent status --watch 2"))(status)
    command(app, panel=Panel.LOOK, examples=("regent explain orders 0", "regent explain orders 0 -o json"))(explain)
    command(app, panel=Panel.LOOK, examples=("regent verify", "regent verify --request-timeout 300"))(verify)
    command(app, panel=Panel.LOOK, examples=("regent history", "regent history -o json"))(history)
    command(app, panel=Panel.LOOK, examples=("regent health", "regent health --ready"))(health)


def status(
    session: Session,
    watch: Annotated[
        float | None, typer.Option("--watch", min=0.2, help="Repeat every N seconds.", metavar="N")
    ] = None,
) -> None:
    """Show the holder of the role and the state of the cluster in one look."""
    client, output = session.client(), session.output
    while True:
        item = client.get("/v1/status")["items"][0]
        if watch is not None and not output.for_programs:
            output.clear()
        if output.for_programs:
            output.document("Status", [item])
        else:
            output.detail("Status", arranged(item, wide=output.form is Format.WIDE), bad=bad_rows(item), quiet=ZEROS)
        if watch is None:
            return
        time.sleep(watch)


def arranged(item: dict[str, Any], *, wide: bool) -> dict[str, Any]:
    """Returns the rows in the order of a table: troubles, procedures, role, counts; with ``wide`` the identity, too."""
    if item.get("health") == [] and not item.get("warnings"):
        item = item | {"health": WELL}
    last = {name: item[name] for name in IDENTITY if name in item}
    named = {name: item.get(name) for name in (*FIRST, *ALWAYS) if name in item or name in ALWAYS}
    return {name: value for name, value in (named | item).items() if name not in last} | (last if wide else {})


def bad_rows(item: dict[str, Any]) -> frozenset[str]:
    """Returns the rows that tell of something wrong."""
    troubled = {name for name in ("health", "warnings") if item.get(name)}
    return frozenset(troubled | {name for name in COUNTS_OF_TROUBLE if item.get(name)})


def history(session: Session) -> None:
    """List the latest take-overs and hand-backs with author and reason. Decisions of daemons are in regent events."""
    session.output.listing("RoleChangeItem", session.client().get("/v1/role/history")["items"])


def health(
    session: Session,
    ready: Annotated[bool, typer.Option("--ready", help="Query readiness instead of liveness.")] = False,
) -> None:
    """Check whether the daemon is well: exit code 0 or 1 (5 if it cannot be reached)."""
    probe = session.client().probe("/readiness" if ready else "/liveness")
    session.output.detail("Health", probe)
    if not probe.get("ok"):
        raise typer.Exit(Exit.FAILED)


def explain(session: Session, topic: Topic, partition: Partition) -> None:
    """Explain why a partition has this leader, ISR and state, and what would change it."""
    from cli.client import partition_path

    found = session.client().get(f"{partition_path(topic, partition)}/explanation")["items"][0]
    if session.output.for_programs:
        session.output.document("Explanation", [found])
        return
    session.output.text(explained(found))


def explained(found: dict[str, Any]) -> str:
    """Returns an explanation in sentences."""
    row = found["partition"]
    lines = [
        f"{row['topic']}-{row['partition']} is {found['stateBecause']}",
        f"leader {cell(row.get('leader'))} (leader epoch {row['leaderEpoch']}): {found['leaderBecause']}",
        f"ISR {cell(row['isr'])} of replicas {cell(row['replicas'])}: {found['isrBecause']}",
    ]
    lines += [f"verify finds: {text}" for text in found.get("differs", [])]
    lines += [f"would change: {change}" for change in found.get("wouldChange", [])]
    if found.get("waitingFor"):
        lines.append(f"not acknowledged yet by broker {cell(found['waitingFor'])}")
    if found.get("history"):
        lines.append("its last rows in this daemon's journal:")
        lines += [f"  {row['at']}  epoch {row['controllerEpoch']}  {row['told']}" for row in found["history"]]
    return "\n".join(lines)


def verify(session: Session) -> None:
    """Compare ZooKeeper, every broker's metadata and the active daemon's memory: exit code 3 if anything differs."""
    output = session.output
    found = session.client(VERIFY_TIMEOUT_S).get("/v1/verification")["items"][0]
    if output.for_programs:
        output.document("Verification", [found])
    elif found["differences"]:
        output.listing("Difference", found["differences"])
    clean = not found["differencesTotal"] and not found["unreachable"]
    output.message(_verdict(found, clean), style="green" if clean else "red")
    if not clean:
        raise typer.Exit(Exit.REFUSED)


def _verdict(found: dict[str, Any], clean: bool) -> str:
    compared = f"{found['partitions']} partitions on brokers {cell(found['brokers'])}"
    if clean:
        if found.get("memory"):
            return f"{compared}: ZooKeeper, memory and every broker agree"
        return f"{compared}: ZooKeeper and every broker agree (no memory to compare: this daemon is not active)"
    text = f"{compared}: {found['differencesTotal']} differences"
    if found["unreachable"]:
        text += f"; brokers {cell(found['unreachable'])} did not respond"
    return text
