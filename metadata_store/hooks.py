"""Provides ready-made parts for :class:`metadata_store.port.WriteHooks`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from metadata_store.port import Write, WriteHooks

Result = TypeVar("Result")


class Kill(BaseException):
    """The process dies here, as far as a test is concerned: not an Exception, so that nothing cleans up after it."""


async def surrounded(hooks: WriteHooks | None, ops: Sequence[Write], write: Callable[[], Awaitable[Result]]) -> Result:
    """Runs a write between the hooks."""
    if hooks is None:
        return await write()
    await hooks.before(ops)
    result = await write()
    await hooks.after(ops)
    return result
