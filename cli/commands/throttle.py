"""Adds regent throttle: rates of replication that brokers confirm, and that end with what stood there before."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.commands.procedures import WaitS, Yes, awaited, planned, report
from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.rates import one_rate
from cli.session import Session, command, confirmed, group

if TYPE_CHECKING:
    from cli.client import Json

IN_FORCE: Final = "in force"
CLEAR_TIMEOUT_S: Final = 60.0
"""Longest wait for the configurations of all topics."""

Brokers = Annotated[list[int] | None, typer.Argument(help="Ids of brokers.", min=0, metavar="[BROKER...]")]
All = Annotated[bool, typer.Option("--all", help="Every broker, also those that are down.")]
Rate = Annotated[
    int,
    typer.Option(
        "--rate", parser=one_rate, metavar="RATE", help="Bytes per second of each broker and direction, as 50M."
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="Throttle all replicas of this topic; may be repeated."),
]
Reason = Annotated[str, typer.Option("--reason", help="The reason; kept with the throttle.")]
Pids = Annotated[list[int] | None, typer.Argument(help="Pids of throttles.", min=1, metavar="[PID...]")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "throttle", "Bound the bytes that brokers replicate, and take the bound back.", Panel.CHANGE)
    command(
        named,
        name="set",
        examples=(
            "regent throttle set 3 --rate 50000000 --topic orders --wait",
            "regent throttle set 3 --rate 50M --topic orders --dry-run",
            'regent throttle set --all --rate 20000000 --reason "the link is full"',
        ),
    )(set_rates)
    command(named, examples=("regent throttle lift 12", "regent throttle lift --all"))(lift)
    command(named, examples=("regent throttle show", "regent throttle show -o json"))(show)
    command(
        named,
        examples=(
            "regent throttle clear --dry-run",
            "regent throttle clear 3 --topic orders --yes",
            'regent throttle clear --yes --reason "left by a cancelled reassignment"',
        ),
    )(clear)


def set_rates(
    session: Session,
    rate: Rate,
    brokers: Brokers = None,
    every: All = False,
    topics: Topics = None,
    reason: Reason = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, do nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until brokers have confirmed the rate.")] = False,
    timeout: WaitS = 120,
) -> None:
    """Throttle brokers until regent throttle lift: each live one is queried until it reports the rate.

    A broker slows the replicas that topics list as throttled: those of --topic, and those of plans.
    """
    if bool(brokers) is every:
        raise Failure(Exit.USAGE, "give ids of brokers, or --all", "give one of them, not both")
    body = {
        "brokers": brokers or [],
        "allBrokers": every,
        "rateBytesPerS": rate,
        "topics": topics or [],
        "nonce": uuid.uuid4().hex,
        "reason": reason,
    }
    if dry_run:
        planned(session, "/v1/throttles/planned", body)
        return
    found = session.client().post("/v1/throttles", body)["items"][0]
    if not wait:
        session.output.detail("Procedure", found)
        return
    found = awaited(session, found["pid"], timeout, until=_is_in_force)
    if found["ended"]:
        report(session, found)
        return
    session.output.detail("Procedure", found)
    silent = [result["broker"] for result in found["results"] if not result["ok"]]
    if silent:
        session.output.message(f"brokers {silent} have not confirmed it: see the results", style="yellow")


def _is_in_force(found: Json) -> bool:
    return bool(found["step"] == IN_FORCE)


def lift(
    session: Session,
    pids: Pids = None,
    every: Annotated[bool, typer.Option("--all", help="Every throttle of operators; those of plans stay.")] = False,
    reason: Reason = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until former values are back.")] = False,
    timeout: WaitS = 120,
) -> None:
    """Lift throttles: settings get their former values back, unless another client changed them meanwhile."""
    if bool(pids) is every:
        raise Failure(Exit.USAGE, "give pids, or --all", "'regent throttle show' has the pids")
    request = {"pids": pids or [], "allThrottles": every} | ({"reason": reason} if reason else {})
    found = session.client().post("/v1/throttles/lift", request)["items"]
    if wait:
        found = [awaited(session, one["pid"], timeout) for one in found]
    session.output.listing("Procedure", found)
    if wait and any(one["state"] != "success" for one in found):
        raise typer.Exit(Exit.FAILED)


def _worded(found: Json) -> Json:
    """Returns a throttle with its bounds, and the cause of its present rate, beside the rate."""
    low, high = found.get("rateBytesPerSMin"), found.get("rateBytesPerSMax")
    if low is None or high is None:
        return found
    return found | {"rateBytesPerS": f"{found['rateBytesPerS']} ({low}..{high}: {found['rateWhy']})"}


def show(session: Session) -> None:
    """List throttles of operators and of plans, then every throttle setting in ZooKeeper with its owner or nobody."""
    output, items = session.output, session.client().get("/v1/throttles")["items"]
    if output.for_programs:
        output.document("Throttle", items)
        return
    throttles = [item for item in items if item.get("pid") is not None]
    settings = [setting for item in items for setting in item.get("settings", [])]
    if throttles or not settings:
        output.listing("Throttle", [*map(_worded, throttles)])
    if settings:
        output.listing("ThrottleSetting", settings)
    more = sum(item.get("settingsTotal", 0) for item in items) - sum(1 for one in settings if one["setting"])
    if more > 0:
        output.message(f"and {more} more settings", style="yellow")
    left = sum(item.get("settingsTotal", 0) for item in items if item.get("pid") is None)
    if left:
        text = f"{left} settings have no owner, and throttle until somebody removes them: regent throttle clear"
        output.message(text, style="yellow")


def clear(
    session: Session,
    brokers: Brokers = None,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Lists of this topic; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be removed, remove nothing.")] = False,
    yes: Yes = False,
    reason: Annotated[str, typer.Option("--reason", help="The reason; kept in the daemon's log.")] = "",
) -> None:
    """Remove throttle settings that no procedure owns: all, or those of brokers and topics.

    What a throttle or a plan owns stays, and what another client's reassignment under way may need: exit code 3.
    """
    client, output = session.client(CLEAR_TIMEOUT_S), session.output
    request = {"brokers": brokers or [], "topics": topics or [], "reason": reason}
    if not (yes or dry_run):
        planned = client.post("/v1/throttles/clear", {**request, "dryRun": True})["items"]
        wanted = [one for one in planned if one.get("outcome") == "planned"]
        if planned and not output.for_programs:
            output.listing("ThrottleRemoval", planned)
        confirmed(not wanted, f"Remove {len(wanted)} throttle settings?")
    found = client.post("/v1/throttles/clear", {**request, "dryRun": dry_run})["items"]
    if output.for_programs:
        output.document("ThrottleSetting", found)
    elif found:
        output.listing("ThrottleRemoval", found)
    outcomes = [one.get("outcome") or "unread" for one in found]
    counts = ", ".join(f"{outcomes.count(one)} {one}" for one in dict.fromkeys(outcomes))
    kept = "kept" in outcomes or "unread" in outcomes
    none = f"no throttle setting{' of these brokers and topics' if brokers or topics else ''} is in ZooKeeper"
    output.message(counts or none, style="yellow" if kept else "green")
    if kept:
        raise typer.Exit(Exit.REFUSED)
