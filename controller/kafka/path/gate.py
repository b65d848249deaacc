"""Guards a term by its gate: its epoch, its fence and the scope that all its tasks run in.

Invariant: once :meth:`Gate.end` was called, from whichever thread, nothing more is submitted, applied or sent in the
term's name; once :meth:`Gate.close` was called, nothing more is submitted or sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar
from weakref import WeakMethod

import anyio

from controller.role.lease import Lease

P = ParamSpec("P")
R = TypeVar("R")


def weakly(method: Callable[P, R], gone: R) -> Callable[P, R]:
    """Wraps a bound method without keeping its object in memory; a call returns ``gone`` once the object is gone."""
    found = WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = found()
        return gone if bound is None else bound(*args, **kwargs)

    return call


class TermEnded(Exception):
    """Ends a handler because the term is over; the text is the reason."""


class Gate:
    """Guards a term. ``epoch``: the controller epoch; ``fence_version``: the version that writes check.

    ``is_up`` checks the connection; ``ready`` is set while it is up and the claim was compared on it.
    """

    def __init__(self, epoch: int, fence_version: int, lease: Lease, is_up: Callable[[], bool]) -> None:
        self.epoch = epoch
        self.fence_version = fence_version
        self.lease = lease
        self.scope = anyio.CancelScope()
        self.why_ended: str | None = None
        self.ready = asyncio.Event()
        self.ready.set()
        self._closed = False
        self._is_up = is_up
        self._loop = asyncio.get_running_loop()

    @property
    def ended(self) -> bool:
        """Checks whether the term is over."""
        return self.why_ended is not None

    def open(self) -> bool:
        """Checks before every ZooKeeper submit and every socket write that term, connection and lease hold."""
        return not self._closed and self.why_ended is None and self.connected() and self.lease.valid()

    def connected(self) -> bool:
        """Checks that the connection is up, and that the claim was compared since the last doubt about it."""
        return self.ready.is_set() and self._is_up()

    def check(self) -> None:
        """Raises :class:`TermEnded` where the term is over."""
        if self.why_ended is not None:
            raise TermEnded(self.why_ended)

    def close(self) -> None:
        """Stops new decisions while the role is given up; responses to submitted requests still arrive."""
        self._closed = True

    def end(self, why: str) -> None:
        """Ends the term at once; callable from any thread. The first reason stays."""
        if self.why_ended is None:
            self.why_ended = why
            self._loop.call_soon_threadsafe(self.scope.cancel)
