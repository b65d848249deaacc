"""Executes single steps, and turns their errors into outcomes."""

from __future__ import annotations

import logging
from typing import Final, Generic

from brokers.rate_limited_log import RateLimitedLog
from controller.procedures.kinds import Effect, Env, Kinds, Write
from metadata_store.errors import Code, MultiFailed, ZkError, ZooKeeperError
from metadata_store.records.port import StoreFailed, Unstorable
from state_machines.procedures.kernel import Act, Change
from state_machines.procedures.outcome import Children, Failed, Next, Retry, Yield
from state_machines.procedures.record import Record

log = logging.getLogger("regent.procedures")

RAISES_MAX: Final = 10
"""Attempts of a step that raises; then its procedure fails."""

NAMES_A_STEP: Final = Next, Children


class Steps(Generic[Env]):
    """Executes steps. Errors of ``interruptions`` repeat a step, those of ``ends`` pass.

    Any other error is a fault of the kind: the step is tried again, and fails after ten attempts.
    """

    def __init__(
        self,
        env: Env,
        kinds: Kinds[Env],
        interruptions: tuple[type[Exception], ...],
        ends: tuple[type[Exception], ...],
    ) -> None:
        self._env = env
        self._kinds = kinds
        self._interruptions = interruptions
        self._ends = ends
        self._limited_log = RateLimitedLog()

    async def run(self, record: Record, act: Act) -> Effect:
        """Executes the present step or undoes the latest; returns its outcome, with what is stored together with it."""
        kind = self._kinds[record.kind]
        step = kind.steps[record.step] if act is Act.EXECUTE else kind.undo_of(record)
        execute = step.execute if act is Act.EXECUTE else step.undo
        if execute is None:
            return Effect(Next(record.step, record.data))
        try:
            found = await execute(self._env, record)
        except self._interruptions:
            return Effect(Yield())
        except self._ends:
            raise
        except Exception as error:
            if not record.attempts:
                sentence = f"pid={record.pid} {kind.name}: step {step.name} raised; regent tries it again"
                self._limited_log.error(log, f"{kind.name} {step.name}", sentence, error)
            text = f"step {step.name} raised {type(error).__name__}: {error}"
            gives_up = act is Act.EXECUTE and record.attempts + 1 >= RAISES_MAX
            return Effect(Failed(text) if gives_up else Retry(text))
        effect = found if isinstance(found, Effect) else Effect(found)
        outcome = effect.outcome
        if isinstance(outcome, NAMES_A_STEP) and not 0 <= outcome.step < len(kind.steps):
            return Effect(Failed(f"step {step.name} names step {outcome.step}, {kind.name} has {len(kind.steps)}"))
        return effect

    async def write(self, write: Write, change: Change, pid: int) -> str | None:
        """Writes a change with its effect; returns None where that was applied, else why it was not.

        Raises ``StoreFailed`` where ZooKeeper failed: whether the record is stored is not known.
        """
        try:
            return await write(change)
        except self._ends:
            raise
        except ZooKeeperError as error:
            refused = isinstance(error, MultiFailed) or (isinstance(error, ZkError) and error.code is Code.TOO_BIG)
            failed = Unstorable if refused else StoreFailed
            raise failed(f"the write of pid {pid} failed: {type(error).__name__}: {error}") from error
