"""Makes commands that change regions, tables and servers: each is requested once, however often it is sent."""

from __future__ import annotations

import inspect
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.commands.procedures import REGIONS, WaitS, Yes, awaited, report
from cli.exit_codes import Exit, Failure
from cli.session import Session, command, confirmed, of_parameters

if TYPE_CHECKING:
    from cli.client import Json

AGAIN_S: Final = 0.5
"""Pause before a request is sent again."""
TRIED_S: Final = 2.0
"""Time for which a request that no daemon takes is repeated."""
WAITED_S: Final = 60.0
"""The same with ``--wait``, at most: a failover is over by then, a full disk is not."""
SAID_AGAIN_S: Final = 10.0
"""Time after which a cause that lasts is printed again."""
AT_ONCE_S: Final = 60.0
"""Longest wait for a change that is done at once."""

Request = tuple[str, dict[str, Any]]
"""The path of a change, and the fields of its body that other changes do not have."""

Shower = Callable[[Session, dict[str, Any]], None]
"""Shows people an item."""

ServerName = Annotated[str, typer.Argument(help="Name of the server.", metavar="SERVER")]
Reason = Annotated[str, typer.Option("--reason", help="The reason; kept with the procedure.")]
Nonce = Annotated[
    str,
    typer.Option(
        "--nonce",
        help="Name of this request: the same one again never begins a second procedure, and another one is refused.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check the request, change nothing.")]
Force = Annotated[
    bool, typer.Option("--force", help="Move regions that rest after a move (regions.move_cooldown_ms), too.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end, also over restarts of the daemon.")]


def change(
    named: typer.Typer,
    request: Callable[..., Request],
    *examples: str,
    asks: str | Callable[..., str] = "",
    force: bool = False,
    at_once: bool = False,
    reasoned: bool = False,
    foretold: bool = False,
    planned: Shower | None = None,
) -> None:
    """Adds a command with the parameters of ``request``, which returns the change, and the options of all changes.

    ``asks``: a question before it, which names parameters in braces, or a function of the body and these. ``force``: it
    has this option. ``at_once``: it waits without ``--wait``, too. ``reasoned``: it is a repair, and needs a
    reason. ``foretold``: the daemon judges it before the question, which begins with what would be done.
    ``planned``: shows people more of a dry run than a sentence.
    """
    own = list(inspect.signature(request, eval_str=True).parameters.values())
    common: list[tuple[str, Any, Any]] = [("reason", Reason, ""), ("nonce", Nonce, "")]
    common += [("force", Force, False)] if force else []
    common += [("dry_run", DryRun, False)]
    common += [("yes", Yes, False)] if asks else []
    common += [("wait", Wait, at_once), ("timeout", WaitS, AT_ONCE_S if at_once else 3600)]

    def run(session: Session, **given: Any) -> None:
        chosen = {parameter.name: given[parameter.name] for parameter in own}
        if reasoned and not (given["reason"].strip() or given["dry_run"]):
            raise Failure(
                Exit.USAGE, "--reason is empty: a repair needs one", "say why, as --reason 'no copy has its row'"
            )
        path, body = request(**chosen)
        if asks:
            question = asks.format(**chosen) if isinstance(asks, str) else asks(body, **chosen)
            sure = given["yes"] or given["dry_run"]
            confirmed(sure, question if sure or not foretold else f"{_foretold(session, path, body)}\n{question}")
        body |= {"reason": given["reason"], "nonce": given["nonce"], "dryRun": given["dry_run"]}
        body |= {"force": given["force"]} if force else {}
        changed(session, path, body, given["wait"], given["timeout"], planned)

    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, annotation, default in common
    ]
    command(named, examples=examples)(of_parameters(run, request, [*own, *options]))


def _foretold(session: Session, path: str, body: dict[str, Any]) -> str:
    """Returns what a change would do, as the daemon says; raises its refusal."""
    found = session.client().post(path, {**body, "dryRun": True})["items"][0]
    return str(found.get("detail", ""))


def marked(kind: str, subject: str, **more: Any) -> Request:
    """Returns the change that sets a mark of operators."""
    return "/v1/regions/marks", {"kind": kind, "subject": subject, **more}


def unmarked(kind: str, subject: str) -> Request:
    """Returns the change that removes a mark."""
    return "/v1/regions/marks/remove", {"kind": kind, "subject": subject}


def changed(
    session: Session,
    path: str,
    body: dict[str, Any],
    wait: bool,
    timeout_s: float,
    planned: Shower | None = None,
) -> None:
    """Sends a change, and shows its procedure; with ``wait`` once it has ended, and exits by its end.

    A request without a response is repeated with its nonce, so that it takes effect once.
    """
    nonce = body.pop("nonce", "") or uuid.uuid4().hex
    client, again = session.client(), f"the request is sent again, with nonce {nonce}"
    found = tried(session, lambda: client.post(path, {**body, "nonce": nonce}), wait, timeout_s, again)
    if body.get("dryRun"):
        _planned(session, found, planned)
    elif wait:
        report(session, awaited(session, found["pid"], timeout_s, domain=REGIONS))
    else:
        session.output.detail("Procedure", found)


def _planned(session: Session, found: Json, more: Shower | None) -> None:
    """Shows what a dry run has judged: no procedure has begun, so people see its kind and what it is about."""
    shown = ("kind", "detail")
    session.output.detail("Procedure", found if session.output.for_programs else {one: found.get(one) for one in shown})
    if more is not None and not session.output.for_programs:
        more(session, found)
    session.output.message("nothing was changed")


def tried(session: Session, send: Callable[[], Json], wait: bool, timeout_s: float, again: str) -> Json:
    """Sends a request until a daemon responds, for a bounded time; returns the first item of the response."""
    tried_s = min(timeout_s, WAITED_S) if wait else TRIED_S
    began_s, said = time.monotonic(), dict[str, float]()
    while True:
        try:
            found: Json = send()["items"][0]
        except Failure as failure:
            if failure.code is not Exit.UNREACHABLE or time.monotonic() + AGAIN_S >= began_s + tried_s:
                raise
            if time.monotonic() - said.get(failure.message, -SAID_AGAIN_S) >= SAID_AGAIN_S:
                session.output.message(f"{failure.message}; {again}")
                said[failure.message] = time.monotonic()
            time.sleep(AGAIN_S)
        else:
            return found
