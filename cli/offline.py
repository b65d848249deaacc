"""Works on ZooKeeper without a daemon: preflight, take-over, and a hand-back with no daemon alive."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from brokers.queries import dial_for
from cli.exit_codes import Exit, Failure
from configs.settings import Settings
from controller.daemon.handback import HandbackFailed, HandbackRefused, hand_back_offline, handed_back
from controller.daemon.preflight.context import PreflightReport, gather
from controller.daemon.preflight.run import preflight as run_checks
from controller.daemon.takeover import Takeover, TakeoverRefused, role_of, take_over, until_held
from controller.http.models import Check, Operation, OperationRequest
from controller.process.logs import LIBRARIES
from controller.process.zookeeper import connection, through_tls
from controller.role.claim import Role
from controller.role.own_znodes import this_user
from metadata_store.errors import ZooKeeperError
from metadata_store.kazoo_adapter.servers import server_version

NEXT_TAKES_IT: Final = "the next one that starts takes the role, even from a broker"
UNDONE: Final = "'regent handback --offline' undoes this"

Progress = Callable[[str], None]
"""Takes a sentence for each step."""


@asynccontextmanager
async def role_at(settings: Settings) -> AsyncIterator[Role]:
    """Reads the role from ZooKeeper. Raises :class:`Failure` where ZooKeeper does not answer."""
    zk = connection(settings)
    with _each_library_line_once():
        try:
            await zk.connect(settings.zookeeper.connect_timeout_ms / 1e3)
            yield role_of(settings, zk)
        except ZooKeeperError as error:
            remedy = "check zookeeper.connect (with its chroot) and that the ensemble answers"
            raise Failure(Exit.UNREACHABLE, f"ZooKeeper at {settings.zookeeper.connect}: {error}", remedy) from error
        finally:
            await zk.close()


@contextmanager
def _each_library_line_once() -> Iterator[None]:
    """Lets each line of a library pass once: a library logs every attempt to connect."""
    passed: set[str] = set()

    def new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        known = text in passed
        passed.add(text)
        return not known

    loggers = [logging.getLogger(name) for name in LIBRARIES]
    for logger in loggers:
        logger.addFilter(new)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(new)


async def preflight(settings: Settings) -> list[Check]:
    """Runs every check; writes nothing."""
    async with role_at(settings) as role:
        context = await gather(
            settings, role, dial_for(settings), through_tls(server_version, settings.zookeeper), own_listener=False
        )
        return checks(await run_checks(context))


def checks(report: PreflightReport) -> list[Check]:
    """Returns the findings as the command shows them."""
    return [
        Check.model_validate({"name": f.name, "result": f.level.value, "found": f.text, "remedy": f.remedy})
        for f in report.findings
    ]


async def takeover(
    settings: Settings,
    request: OperationRequest,
    *,
    wait_s: float | None,
    progress: Progress,
    without_daemon: bool = False,
) -> Operation:
    """Checks, saves the present state, sets the flag; waits ``wait_s`` seconds (None: none) for a daemon to claim.

    Refused where no daemon is alive, unless ``without_daemon``: then it does not wait.
    """
    dial = dial_for(settings)
    async with role_at(settings) as role:
        alive = {p.nonce: p.id for _, p in await role.queue() if p is not None}
        refused = not alive and not without_daemon
        try:
            done = await take_over(
                settings,
                role,
                dial=dial,
                release_of=through_tls(server_version, settings.zookeeper),
                reason=request.reason,
                by=this_user(),
                dry_run=request.dry_run or refused,
            )
        except TakeoverRefused as why:
            return _refused(why)
        if refused:
            return _no_daemon_alive(done)
        holder, _ = await role.controller()
        if done.report is None and holder is not None and holder.nonce in alive:
            message = f"daemon {alive[holder.nonce]} holds the role already: nothing to do"
            return Operation(kind="takeover", state="done", message=message, steps=done.steps)
        if request.dry_run:
            return Operation(kind="takeover", state="planned", message="this would be done", steps=done.steps)
        if done.file is not None:
            progress(f"the state before it is saved in {done.file}")
        if not alive:
            message = f"the role is regent's, and no daemon is alive: {NEXT_TAKES_IT}; {UNDONE}"
            return Operation(kind="takeover", state="done", message=message, steps=done.steps)
        found = Operation(
            kind="takeover", state="running", message="the role is regent's; a daemon claims it", steps=done.steps
        )
        if wait_s is None:
            return found
        held, seen = await until_held(lambda: role, dial, wait_s)
        found_role = seen.sentence() if seen is not None else "ZooKeeper did not answer"
        update = {"message": found_role, "state": "done" if held else "running"}
        return found.model_copy(update=update if held else update | {"remedy": "is a daemon up? See: regent status"})


def _no_daemon_alive(done: Takeover) -> Operation:
    """Refuses a take-over where no daemon is alive; nothing was changed."""
    start = "start one first ('regent run' without --shadow), then repeat this"
    if done.report is None:
        message, remedy = f"no daemon is alive, and {done.steps[0]}: {NEXT_TAKES_IT}", f"start one; {UNDONE}"
    else:
        message, remedy = "no daemon is alive that could take the role", f"{start}; or give --without-daemon"
    return Operation(kind="takeover", state="refused", message=message, remedy=remedy)


def _refused(refused: TakeoverRefused) -> Operation:
    found = refused.report.refusals if refused.report is not None else []
    message = f"{len(found)} checks of the preflight stand in the way" if found else refused.why
    steps = [f"{finding.name}: {finding.text}. Remedy: {finding.remedy}" for finding in found]
    return Operation(kind="takeover", state="refused", message=message, remedy=refused.remedy, steps=steps)


async def handback(settings: Settings, request: OperationRequest, *, wait_s: float, progress: Progress) -> Operation:
    """Gives the role to the brokers, and waits ``wait_s`` seconds until one holds it and every broker shows it."""
    patience = settings.controller.model_copy(update={"handback_timeout_ms": int(wait_s * 1e3)})
    settings = settings.model_copy(update={"controller": patience})
    steps: list[str] = []

    def note(step: str) -> None:
        steps.append(step)
        progress(step)

    async with role_at(settings) as role:
        if (broker := await handed_back(role)) is not None:
            message = f"broker {broker} holds the role already: nothing to do"
            return Operation(kind="handback", state="done", message=message)
        try:
            seen = await hand_back_offline(
                settings,
                role,
                dial_for(settings),
                request.reason,
                note,
                by=this_user(),
                dry_run=request.dry_run,
            )
        except HandbackFailed as failed:
            return Operation(kind="handback", state="failed", message=failed.why, remedy=failed.remedy, steps=steps)
        except HandbackRefused as refused:
            return Operation(kind="handback", state="refused", message=refused.why, remedy=refused.remedy)
    if seen is None:
        return Operation(kind="handback", state="planned", message="this would be done", steps=steps)
    return Operation(kind="handback", state="done", message=seen.sentence(), steps=steps)
