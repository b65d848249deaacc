"""Access control lists in a world's ZooKeeper, written as brokers write them."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from brokers.listener.envelopes import CarriedCall
from brokers.wire.versions import Api
from controller.requests.calls import Calls
from metadata_store.port import ANY_VERSION, ZooKeeper
from tests.core.controller_world import World

ROOTS = {"literal": "/kafka-acl", "prefixed": "/kafka-acl-extended/prefixed"}
Line = tuple[str, str, str]
"""Principal, operation, Allow or Deny."""


async def authorizer_starts(zk: ZooKeeper) -> None:
    """What brokers with an authorizer create."""
    for path in ("/kafka-acl-changes", "/kafka-acl-extended-changes", "/kafka-acl-extended", *ROOTS.values()):
        await zk.create(path, None)
    for root in ROOTS.values():
        for kind in ("Topic", "Cluster", "Group"):
            await zk.create(f"{root}/{kind}", None)


async def put(zk: ZooKeeper, name: str, *lines: Line, kind: str = "Topic", pattern: str = "literal") -> None:
    """Replaces a list, and tells; without lines it goes."""
    await put_raw(zk, name, encoded(*lines) if lines else None, kind, pattern)


def encoded(*lines: Line) -> bytes:
    """A list as its znode holds it."""
    acls = [{"principal": p, "permissionType": a, "operation": o, "host": "*"} for p, o, a in lines]
    return json.dumps({"version": 1, "acls": acls}).encode()


async def put_raw(zk: ZooKeeper, name: str, data: bytes | None, kind: str = "Topic", pattern: str = "literal") -> None:
    path = f"{ROOTS[pattern]}/{kind}/{name}"
    there = await zk.exists(path)
    if data is None:
        await zk.delete(path, ANY_VERSION)
    elif there is None:
        await zk.create(path, data)
    else:
        await zk.set(path, data, there.version)
    change = {"version": 1, "resourceType": kind.upper(), "name": name, "patternType": pattern.upper()}
    if pattern == "literal":
        await zk.create("/kafka-acl-changes/acl_changes_", f"{kind.upper()}:{name}".encode(), sequential=True)
    else:
        await zk.create("/kafka-acl-extended-changes/acl_changes_", json.dumps(change).encode(), sequential=True)


async def asked(w: World, principal: str, api: Api, body: Struct, version: int = 0, attempt: int = 0) -> Any:
    """What the controller answers to ``principal``."""
    call = CarriedCall(api, version, body, principal, "10.0.0.7", "", b"one call of many", attempt)
    term = w.term
    return await Calls(term.queue, term.authorizer, term.topic_name).carried(call)
