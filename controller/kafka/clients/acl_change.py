"""Handles changed access control lists, which :mod:`controller.kafka.access.authorizer` reads beside the queue."""

from __future__ import annotations

from controller.kafka.path.controller import Controller


async def acl_change(c: Controller, *, known: bool) -> None:
    """Reads changed ACLs. ``known``: a notification names the changed ones; otherwise all are read."""
    c.authorizer.look_again(everything=not known)
