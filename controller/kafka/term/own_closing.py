"""Closes regent's own znodes at the begin of a term, beside its queue."""

from __future__ import annotations

from functools import partial

from controller.kafka.path.controller import Controller
from controller.kafka.path.gate import TermEnded
from controller.metrics.counters import Counters
from controller.role.own_acls import close_own, closes
from metadata_store.closing import Closed, close_again, follow
from metadata_store.errors import SessionLost
from metadata_store.fencing.fenced import confirm
from metadata_store.fencing.outcome import Fenced


async def close_own_znodes(c: Controller, counters: Counters) -> None:
    """Closes what any client may write, and notes for the status what stays open, while the term lasts."""
    if not closes(c.zk):
        return
    may_write = partial(confirm, c.zk, c.fence)

    async def again(before: Closed) -> Closed:
        return await c.until_read(lambda: close_again(c.zk, before, may_write=may_write))

    try:
        await follow(await c.until_read(lambda: close_own(c.zk, may_write)), again, partial(_note, counters))
    except (Fenced, TermEnded, SessionLost):  # the term's own writes find out, too
        return
    finally:
        _note(counters, "")


def _note(counters: Counters, complaint: str) -> None:
    counters.open_znodes = complaint
