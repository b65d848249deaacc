"""Kafka's access control lists changed: they are read beside the queue (:mod:`controller.access.authorizer`)."""

from __future__ import annotations

from controller.engine.controller import Controller


async def acl_change(c: Controller, *, known: bool) -> None:
    """``known``: a notification tells what changed; otherwise anything may have."""
    c.authorizer.look_again(everything=not known)
