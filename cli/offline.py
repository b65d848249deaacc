"""What the command does on ZooKeeper by itself: preflight, take-over, and a hand-back with no daemon alive."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from cli.exit_codes import Exit, Failure
from configs.settings import Settings
from controller.handback import HandbackFailed, HandbackRefused, hand_back_offline
from controller.http.models import Check, Operation, OperationRequest
from controller.main import connection
from controller.office import Office
from controller.preflight.context import gather
from controller.preflight.finding import PreflightReport
from controller.preflight.run import preflight as run_checks
from controller.questions import asker
from controller.takeover import TakeoverRefused, office_of, take_over, until_held
from metadata_store.errors import ZooKeeperError
from metadata_store.kazoo_adapter.server_version import server_version

Tell = Callable[[str], None]
"""Takes a sentence about the progress."""


@asynccontextmanager
async def office_at(settings: Settings) -> AsyncIterator[Office]:
    """The role as ZooKeeper has it. Raises :class:`Failure` where ZooKeeper does not answer."""
    zk = connection(settings)
    try:
        await zk.connect(settings.zookeeper.connect_timeout_ms / 1e3)
        yield office_of(settings, zk)
    except ZooKeeperError as error:
        remedy = "check zookeeper.connect (with its chroot) and that the ensemble answers"
        raise Failure(Exit.UNREACHABLE, f"ZooKeeper at {settings.zookeeper.connect}: {error}", remedy) from error
    finally:
        await zk.close()


async def preflight(settings: Settings) -> list[Check]:
    """Every check; nothing is written."""
    async with office_at(settings) as office:
        context = await gather(settings, office, asker(settings), server_version, own_listener=False)
        return checks(await run_checks(context))


def checks(report: PreflightReport) -> list[Check]:
    """Findings as they are shown."""
    return [
        Check.model_validate({"name": f.name, "result": f.level.value, "found": f.what, "remedy": f.remedy})
        for f in report.findings
    ]


async def takeover(settings: Settings, request: OperationRequest, *, wait_s: float | None, tell: Tell) -> Operation:
    """Checks, saves, sets the flag; then waits (``wait_s`` seconds, None: not at all) until a daemon holds the role."""
    ask = asker(settings)
    async with office_at(settings) as office:
        try:
            done = await take_over(
                settings,
                office,
                ask=ask,
                release_of=server_version,
                reason=request.reason,
                dry_run=request.dry_run,
            )
        except TakeoverRefused as refused:
            return _refused(refused)
        if request.dry_run:
            return Operation(kind="takeover", state="planned", message="this would be done", steps=done.steps)
        if done.file is not None:
            tell(f"what was before is saved in {done.file}")
        found = Operation(
            kind="takeover", state="running", message="the role is regent's; a daemon claims it", steps=done.steps
        )
        if wait_s is None:
            return found
        held, seen = await until_held(lambda: office, ask, wait_s)
        said = seen.sentence() if seen is not None else "ZooKeeper did not answer"
        update = {"message": said, "state": "done" if held else "running"}
        return found.model_copy(update=update if held else update | {"remedy": "is a daemon up? See: regent status"})


def _refused(refused: TakeoverRefused) -> Operation:
    found = refused.report.refusals if refused.report is not None else []
    message = f"{len(found)} checks of the preflight stand in the way" if found else refused.why
    steps = [f"{finding.name}: {finding.what}. Remedy: {finding.remedy}" for finding in found]
    return Operation(kind="takeover", state="refused", message=message, remedy=refused.remedy, steps=steps)


async def handback(settings: Settings, request: OperationRequest, *, wait_s: float, tell: Tell) -> Operation:
    """Gives the role to the brokers, and waits ``wait_s`` seconds until one holds it and all know."""
    patience = settings.controller.model_copy(update={"handback_timeout_ms": int(wait_s * 1e3)})
    settings = settings.model_copy(update={"controller": patience})
    steps: list[str] = []

    def note(step: str) -> None:
        steps.append(step)
        tell(step)

    async with office_at(settings) as office:
        try:
            seen = await hand_back_offline(
                settings, office, asker(settings), request.reason, note, dry_run=request.dry_run
            )
        except HandbackFailed as failed:
            return Operation(kind="handback", state="failed", message=failed.why, remedy=failed.remedy, steps=steps)
        except HandbackRefused as refused:
            return Operation(kind="handback", state="refused", message=refused.why, remedy=refused.remedy)
    if seen is None:
        return Operation(kind="handback", state="planned", message="this would be done", steps=steps)
    return Operation(kind="handback", state="done", message=seen.sentence(), steps=steps)
