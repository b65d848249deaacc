"""Adds regent procedures and regent locks: longer operations, their progress and their results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from cli.commands import procedures_log
from cli.completing import kinds
from cli.exit_codes import Exit, Failure
from cli.help import Panel
from cli.progress import BAR_POLL_S, POLL_S
from cli.session import Session, command, confirmed, group, on_terminal

if TYPE_CHECKING:
    from cli.client import Json

MEASURED_S_MAX: Final = 20.0
"""Longest time of a request beyond its wait: the daemon measures the progress of a plan."""
LONG: Final = timedelta(hours=1)
"""Age from which a procedure that runs is flagged."""
RETRY_S: Final = 0.5
"""Pause after a failed request of a command that waits: the daemon may be in a failover."""


class Domain(NamedTuple):
    """Where the procedures of a domain are: ``path`` at the daemon, ``command`` of this program.

    ``poll_s``: longest wait of one request for the end of a procedure.
    """

    path: str
    command: str
    poll_s: float


KAFKA: Final = Domain("/v1/procedures", "regent procedures", POLL_S)
REGIONS: Final = Domain("/v1/regions/procedures", "regent regions procedures", BAR_POLL_S)

REMOVES: Final = "Remove the record of {}, with its family? A daemon that has its kind could go on with it."

Pid = Annotated[int, typer.Argument(help="Pid of the procedure.", min=1)]
Pids = Annotated[list[int] | None, typer.Argument(help="Pids of procedures.", min=1, metavar="[PID...]")]
PidFile = Annotated[Path | None, typer.Option("--file", help="File with the pids, one on each line.")]
PIDS_MAX: Final = 1_000
"""Procedures of one command."""
Why = Annotated[str, typer.Option("--reason", help="Why; kept with the procedure and in the journal.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Begin without a question.")]
WaitS = Annotated[float, typer.Option("--timeout", min=1, help="Longest wait, in seconds.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    named = group(app, "procedures", "List, follow, undo and end longer operations.", Panel.LOOK)
    command(
        named,
        name="list",
        examples=(
            "regent procedures list",
            "regent procedures list --live -o wide",
            "regent procedures list --topic orders",
            "regent procedures list --kind drain --stuck",
        ),
    )(listed)
    command(named, examples=("regent procedures show 12",))(show)
    command(named, examples=("regent procedures wait 12 --timeout 3600",))(wait)
    command(named, examples=("regent procedures cancel 12 --yes",))(cancel)
    command(
        named,
        examples=(
            "regent procedures abort 12 --reason 'wrong rack' --yes",
            "regent procedures abort --file pids.txt --yes",
        ),
    )(abort)
    command(named, examples=("regent procedures bypass 12 --yes",))(bypass)
    command(named, examples=("regent procedures remove 12 --reason 'its record is damaged' --yes",))(remove)
    procedures_log.register(named)
    command(app, panel=Panel.LOOK, examples=("regent locks", "regent locks --waiting"))(locks)


def listed(
    session: Session,
    live: Annotated[bool, typer.Option("--live", help="Without results.")] = False,
    topic: Annotated[str | None, typer.Option("--topic", help="Only those that lock a topic or are about it.")] = None,
    broker: Annotated[
        int | None, typer.Option("--broker", help="Only those that lock a broker or are about it.")
    ] = None,
    kind: Annotated[str, typer.Option("--kind", help="Those of one kind, such as drain.")] = "",
    stuck: Annotated[
        bool, typer.Option("--stuck", help="Those that try a step in vain, are parked or unusable.")
    ] = False,
) -> None:
    """List procedures that run, those in trouble and the oldest first, and then the kept results."""
    wanted = {name: value for name, value in (("topic", topic), ("broker", broker)) if value is not None}
    items = session.client().get("/v1/procedures", wanted)["items"]
    if kind and kind not in {item["kind"] for item in items} and kind not in (known := kinds()):
        raise Failure(Exit.USAGE, f"there is no kind {kind}", f"the kinds are {', '.join(known)}")
    now = datetime.now(UTC)
    flagged = [
        item | {"flag": flag(item, now)}
        for item in items
        if not (live and item["ended"])
        and (not kind or item["kind"] == kind)
        and (not stuck or item["stuck"] or item["unusable"] or item.get("parked"))
    ]
    session.output.listing("Procedure", [phased(session, one) for one in sorted(flagged, key=_urgency)])


def phased(session: Session, item: Json) -> Json:
    """Returns a procedure with its phase as the state that a table shows; programs get the stored state."""
    if session.output.for_programs or not item.get("phase"):
        return item
    return {name: value for name, value in item.items() if name != "phase"} | {"state": item["phase"]}


def flag(item: Json, now: datetime) -> str:
    """Returns what an operator should see of a procedure at once, empty where it goes its way."""
    if item["state"] in ("failed", "rolledback"):
        return "rolled back" if item["ended"] else "undoing"
    if item.get("unusable"):
        return "unusable"
    if item["ended"]:
        if item["state"] != "success":
            return ""
        return "bypassed" if item.get("bypassed") else "unmet" if item.get("unmet") else ""
    if item.get("parked"):
        return "parked"
    if item.get("aborted"):
        return "undoing"
    if item.get("stuck"):
        return "stuck"
    submitted = item.get("submitted")
    return "long" if submitted and now - datetime.fromisoformat(submitted) >= LONG else ""


def _urgency(item: Json) -> tuple[bool, bool, str, int]:
    """Returns the order: what runs before what has ended, flagged ones first, the oldest first."""
    return bool(item["ended"]), not item["flag"], item.get("submitted") or "", item["pid"]


def show(session: Session, pid: Pid) -> None:
    """Show one procedure."""
    found = session.client().get(f"/v1/procedures/{pid}")["items"][0]
    session.output.detail("Procedure", phased(session, found))


def wait(session: Session, pids: Pids = None, file: PidFile = None, timeout: WaitS = 3600) -> None:
    """Wait for the end of procedures, also over failovers.

    Exit code 0 when all succeeded, 1 when one was undone, 3 when one ended with something undone.
    """
    ends_s = time.monotonic() + timeout
    found = [awaited(session, pid, max(1.0, ends_s - time.monotonic())) for pid in chosen(pids, file)]
    show_all(session, found)
    exit_by(found)


def cancel(session: Session, pids: Pids = None, file: PidFile = None, reason: Why = "", yes: Yes = False) -> None:
    """End procedures gently: a plan, an election or a throttle ends with what it has done; others are undone."""
    named = chosen(pids, file)
    confirmed(yes, f"Cancel {words_of(named)}?")
    each(session, named, "cancel", reason)


def abort(session: Session, pids: Pids = None, file: PidFile = None, reason: Why = "", yes: Yes = False) -> None:
    """Undo procedures: what they did is taken back, step by step."""
    named = chosen(pids, file)
    confirmed(yes, f"Undo {words_of(named)}? A part of another procedure is undone with that one.")
    each(session, named, "abort", reason)


def bypass(session: Session, pids: Pids = None, file: PidFile = None, reason: Why = "", yes: Yes = False) -> None:
    """End procedures as they are; nothing is undone, and what they left half done is yours to repair.

    On a terminal the kind and the pid of each are typed.
    """
    named = chosen(pids, file)
    if not yes and on_terminal():
        for pid in named:
            _type_its_name(session, pid)
    else:
        confirmed(yes, f"End {words_of(named)} as it is, without undoing anything?")
    each(session, named, "bypass", reason)


def remove(session: Session, pids: Pids = None, file: PidFile = None, reason: Why = "", yes: Yes = False) -> None:
    """Remove records that cannot be used, each with its family; what they left half done is yours to repair."""
    named = chosen(pids, file)
    confirmed(yes, REMOVES.format(words_of(named)))
    each(session, named, "remove", reason)


def _type_its_name(session: Session, pid: int) -> None:
    found = session.client().get(f"/v1/procedures/{pid}")["items"][0]
    name = f"{found['kind']}/{pid}"
    typed = typer.prompt(f"Nothing of procedure {pid} is undone. Type {name} to end it as it is", err=True)
    if typed != name:
        raise Failure(Exit.REFUSED, f"{typed!r} is not {name}: nothing was done")


def chosen(pids: list[int] | None, file: Path | None) -> list[int]:
    """Returns the pids of a command, from its arguments or from a file with one on each line."""
    if bool(pids) is (file is not None):
        raise Failure(Exit.USAGE, "give pids, or --file", "one of them, not both")
    if file is None:
        return list(pids or [])
    try:
        lines = file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(Exit.USAGE, f"{file} cannot be read: {error}") from error
    wrong = [line for line in lines if not line.isdecimal() or int(line) < 1]
    if wrong or not 0 < len(lines) <= PIDS_MAX:
        message = f"{file} names {len(lines)} procedures, and {wrong[:3]} are no pids"
        raise Failure(Exit.USAGE, message, f"write between 1 and {PIDS_MAX} pids, one on each line")
    return list(map(int, lines))


def each(session: Session, pids: list[int], act: str, reason: str, domain: Domain = KAFKA) -> None:
    """Sends a request for each procedure; a refusal of one keeps no other from being requested."""
    client, failures = session.client(), list[Failure]()
    found: list[Json] = []
    for pid in pids:
        try:
            found += client.post(f"{domain.path}/{pid}/{act}", {"reason": reason} if reason else {})["items"]
        except Failure as failure:
            failures.append(failure)
    if found:
        show_all(session, found)
    if act == "abort":
        name_families(session, found)
    for later in failures[1:]:
        session.output.message(later.message, style="red")
    if failures:
        raise failures[0]


def name_families(session: Session, found: list[Json]) -> None:
    """Names the parents of procedures that are undone: a child is undone with its whole family."""
    for one in found:
        if one.get("parent"):
            text = f"procedure {one['pid']} is a part of procedure {one['parent']}, which is undone with it"
            session.output.message(text, style="yellow")


def show_all(session: Session, found: list[Json]) -> None:
    """Shows procedures: one with all its fields, several as a list."""
    if len(found) == 1:
        session.output.detail("Procedure", phased(session, found[0]))
    else:
        session.output.listing("Procedure", [phased(session, one) for one in found])


def words_of(pids: list[int]) -> str:
    """Returns procedures in a sentence, by their pids."""
    return f"procedure{'s' if len(pids) > 1 else ''} {', '.join(map(str, pids))}"


def locks(
    session: Session,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Only those that are waited for, with the holders.")
    ] = False,
) -> None:
    """List the locks that procedures hold or wait for."""
    items = session.client().get("/v1/locks")["items"]
    session.output.listing("Lock", [item for item in items if item["waiting"] or not waiting])


def awaited(
    session: Session,
    pid: int,
    timeout_s: float,
    until: Callable[[Json], bool] | None = None,
    domain: Domain = KAFKA,
) -> Json:
    """Returns a procedure once it has ended; a daemon that stops or fails over meanwhile is queried again.

    ``until``: returns it earlier, as soon as this holds. Raises :class:`Failure` where the time is over.
    """
    ends_s, client = time.monotonic() + timeout_s, session.client(POLL_S + MEASURED_S_MAX)
    with session.output.progress(pid) as line:
        while True:
            began_s, wait_s = time.monotonic(), max(0.0, min(line.poll_s, domain.poll_s, ends_s - time.monotonic()))
            query = {"waitS": 0.0 if until is not None else wait_s}
            found, trouble = queried(partial(client.get, f"{domain.path}/{pid}", query))
            if found is not None and (found["ended"] or (until is not None and until(found))):
                return found
            line.show(found, trouble)
            if time.monotonic() >= ends_s:
                message = f"procedure {pid} has not ended after {round(timeout_s, 1):g} s"
                raise Failure(Exit.UNFINISHED, message, f"it goes on: {domain.command} wait {pid}")
            if time.monotonic() - began_s < wait_s / 2:  # only the active daemon waits; a standby responds at once
                time.sleep(min(RETRY_S, max(0.0, ends_s - time.monotonic())))


def queried(query: Callable[[], Json]) -> tuple[Json | None, str]:
    """Returns the first item of a response, or why no daemon gives one now: it may be in a failover."""
    try:
        found: Json = query()["items"][0]
    except Failure as failure:
        if failure.code is not Exit.UNREACHABLE:
            raise
        return None, failure.message
    return found, ""


def planned(session: Session, path: str, body: Json) -> None:
    """Shows in rows what a request would change; nothing is done."""
    session.output.listing("PlannedChange", session.client(MEASURED_S_MAX).post(path, body)["items"])
    session.output.message("nothing was done: leave --dry-run out to do it")


def report(session: Session, found: Json) -> None:
    """Shows a procedure that has ended; exits by its end."""
    session.output.detail("Procedure", found)
    exit_by([found])


def exit_by(found: Iterable[Json]) -> None:
    """Exits by the ends of procedures: 1 where one was undone or ended as it is, 3 where one left something undone."""
    codes = {end_code(one) for one in found}
    for code in (Exit.FAILED, Exit.REFUSED):
        if code in codes:
            raise typer.Exit(code)


def end_code(found: Json) -> Exit:
    """Returns the exit code of a procedure that has ended."""
    if found["state"] != "success" or found.get("bypassed"):
        return Exit.FAILED
    return Exit.REFUSED if found.get("unmet") else Exit.DONE
