"""Access control lists in a world's ZooKeeper, written as brokers write them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from msgspec import Struct

from brokers.listener.envelopes import CarriedCall
from brokers.wire.versions import Api
from controller.kafka.requests.calls import Calls
from metadata_store.port import ANY_VERSION, ZooKeeper
from tests.kit.kafka.world import KafkaWorld, world

ALICE, BOB, ROOT, ANONYMOUS = "User:alice", "User:bob", "User:root", "User:ANONYMOUS"
CHANGES = {"literal": "/kafka-acl-changes", "prefixed": "/kafka-acl-extended-changes"}
ROOTS = {"literal": "/kafka-acl", "prefixed": "/kafka-acl-extended/prefixed"}
Line = tuple[str, str, str]
"""Principal, operation, Allow or Deny."""


def allow(principal: str, operation: str) -> Line:
    return principal, operation, "Allow"


def deny(principal: str, operation: str) -> Line:
    return principal, operation, "Deny"


class Rule(NamedTuple):
    """The list of one resource; ``raw`` instead of lines is the znode's data."""

    name: str
    lines: tuple[Line, ...] = ()
    kind: str = "Topic"
    pattern: str = "literal"
    raw: bytes | None = None

    @property
    def path(self) -> str:
        """Returns the list's znode."""
        return f"{ROOTS[self.pattern]}/{self.kind}/{self.name}"

    @property
    def data(self) -> bytes | None:
        """Returns the znode's data, None for a list without lines: its znode goes."""
        acls = [{"principal": p, "permissionType": a, "operation": o, "host": "*"} for p, o, a in self.lines]
        return self.raw or (json.dumps({"version": 1, "acls": acls}).encode() if acls else None)


def on_topic(name: str, *lines: Line, prefixed: bool = False, raw: bytes | None = None) -> Rule:
    return Rule(name, lines, pattern="prefixed" if prefixed else "literal", raw=raw)


def on_cluster(*lines: Line) -> Rule:
    return Rule("kafka-cluster", lines, "Cluster")


async def authorizer_starts(zk: ZooKeeper) -> None:
    """Creates the znodes of brokers with an authorizer."""
    for path in (*CHANGES.values(), "/kafka-acl-extended", *ROOTS.values()):
        await zk.create(path, None)
    for root in ROOTS.values():
        for kind in ("Topic", "Cluster", "Group"):
            await zk.create(f"{root}/{kind}", None)


async def put(zk: ZooKeeper, rule: Rule, *, notify: bool = True) -> None:
    """Replaces a list, and writes its notification."""
    there = await zk.exists(rule.path)
    if rule.data is None:
        await zk.delete(rule.path, ANY_VERSION)
    elif there is None:
        await zk.create(rule.path, rule.data)
    else:
        await zk.set(rule.path, rule.data, there.version)
    kind = rule.kind.upper()
    change = {"version": 1, "resourceType": kind, "name": rule.name, "patternType": rule.pattern.upper()}
    data = f"{kind}:{rule.name}" if rule.pattern == "literal" else json.dumps(change)
    if notify:
        await zk.create(f"{CHANGES[rule.pattern]}/acl_changes_", data.encode(), sequential=True)


@asynccontextmanager
async def ruled(*rules: Rule, topics: Iterable[str] = (), **settings: Any) -> AsyncIterator[KafkaWorld]:
    """Begins a term in a cluster with an authorizer, these lists and topics."""
    async with world(**settings) as w:
        await authorizer_starts(w.operator)
        for rule in rules:
            await put(w.operator, rule)
        for name in topics:
            await w.topic(name, (1, 2, 3), leaders=True)
        await w.begin_term()
        yield w


async def carried(w: KafkaWorld, principal: str, api: Api, body: Struct, version: int = 0, attempt: int = 0) -> Any:
    """Returns the controller's response to a principal's call."""
    call = CarriedCall(api, version, body, principal, "10.0.0.7", "", b"one call of many", attempt)
    term = w.term
    return await Calls(term.queue, term.authorizer, term.topic_name).carried(call)
