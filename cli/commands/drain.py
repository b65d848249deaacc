"""Adds regent drain, regent undrain and regent shutdown: brokers that lead nothing, and host nothing if wanted."""

from __future__ import annotations

import uuid
from typing import Annotated

import typer

from cli.commands.cordon import Brokers
from cli.commands.procedures import WaitS, awaited, planned, report
from cli.commands.restarting import JUDGE_TIMEOUT_S, Accept, causes
from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.rates import Throttle, given
from cli.session import Session, command

Replicas = Annotated[bool, typer.Option("--replicas", help="Move every replica away, too.")]
Reason = Annotated[str, typer.Option("--reason", help="The reason; kept with the mark.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the end.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    command(
        app,
        panel=Panel.CHANGE,
        examples=(
            'regent drain 3 --wait --reason "new disk"',
            "regent drain 3 4 --replicas --throttle 50000000",
            "regent drain 3 --replicas --dry-run",
        ),
    )(drain)
    command(app, panel=Panel.CHANGE, examples=("regent undrain 3",))(undrain)
    command(app, panel=Panel.CHANGE, examples=("regent shutdown 3", "regent shutdown 3 -o json"))(shutdown)


def drain(
    session: Session,
    brokers: Brokers,
    replicas: Replicas = False,
    throttle: Throttle = None,
    reason: Reason = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, do nothing.")] = False,
    wait: Wait = False,
    timeout: WaitS = 3600,
) -> None:
    """Move the leaders away from brokers, which lead last and get no replicas until regent undrain."""
    if throttle is not None and throttle.low and not replicas:
        raise Failure(Exit.USAGE, "--throttle bounds moves of replicas", "add --replicas, or leave --throttle out")
    body = {
        "brokers": brokers,
        "replicas": replicas,
        **given(throttle),
        "nonce": uuid.uuid4().hex,
        "reason": reason,
    }
    if dry_run:
        planned(session, "/v1/drains/planned", body)
        return
    found = session.client().post("/v1/drains", body)["items"][0]
    if wait:
        report(session, awaited(session, found["pid"], timeout))
    else:
        session.output.detail("Procedure", found)


def undrain(session: Session, brokers: Brokers) -> None:
    """Let brokers lead again, and host replicas unless they were cordoned before; also after regent shutdown."""
    client, output = session.client(), session.output
    marked = {one["broker"] for one in client.get("/v1/cordons")["items"] if one.get("drained")}
    left = client.post("/v1/drains/remove", {"brokers": brokers})["items"]
    if left or output.for_programs:
        output.listing("CordonedBroker", left)
    for broker in sorted(set(brokers)):
        done = (
            "it may lead again"
            if broker in marked
            else "it was not drained; a shutdown by command, if there was one, is undone"
        )
        output.message(f"broker {broker}: {done}", style="green" if broker in marked else "yellow")


def shutdown(
    session: Session, broker: Annotated[int, typer.Argument(help="Id of the broker.", min=0)], accept: Accept = None
) -> None:
    """Prepare the stop of a broker that cannot request it itself: exit code 0 when it may be stopped, 3 if not.

    Its leaders move in any case. Whether it may stop is judged as by regent can-stop.
    """
    found = session.client(JUDGE_TIMEOUT_S).post("/v1/shutdowns", {"broker": broker, "accept": accept or []})
    [item] = found["items"]
    hidden = () if session.output.for_programs else ("hindrances",)
    session.output.detail("Shutdown", {name: value for name, value in item.items() if name not in hidden})
    if not item["mayStop"]:
        causes(session.output, item.get("hindrances", []))
        message = f"broker {broker} must not stop: regent can-stop {broker} judges it again"
        raise Failure(Exit.REFUSED, message, f"see the remedies, or undo it: regent undrain {broker}")
