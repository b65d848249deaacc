"""Changes of Kafka's access control lists: they are read beside the queue (:mod:`controller.access.authorizer`)."""

from __future__ import annotations

from controller.engine.controller import Controller


async def acl_change(c: Controller, *, known: bool) -> None:
    """Reads changed ACLs. ``known``: a notification names the changed ones; otherwise all are read."""
    c.authorizer.look_again(everything=not known)
