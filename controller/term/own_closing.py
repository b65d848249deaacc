"""Closes regent's own znodes at the begin of a term, beside its queue."""

from __future__ import annotations

from functools import partial

from controller.engine.controller import Controller
from controller.engine.gate import TermEnded
from controller.metrics.counters import Counters
from controller.role.own_acls import close_own, closes
from metadata_store.errors import SessionLost
from metadata_store.fencing.fenced import confirm
from metadata_store.fencing.outcome import Fenced


async def close_own_znodes(c: Controller, counters: Counters) -> None:
    """Closes what any client may write, and notes for the status what stays open; ends where the term does."""
    if not closes(c.zk):
        return
    try:
        found = await c.until_read(lambda: close_own(c.zk, partial(confirm, c.zk, c.fence)))
    except (Fenced, TermEnded, SessionLost):  # the term's own writes find out, too
        return
    counters.open_znodes = found.complaint
