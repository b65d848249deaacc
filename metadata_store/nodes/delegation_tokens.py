"""Handles ``/delegation_token``: tokens, and the notifications that make brokers read a token again.

Brokers create and renew tokens; the controller deletes expired ones. A token and its notification are one write:
Kafka's controller writes them one after the other, and where it dies in between no broker is notified.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct, field

from metadata_store import paths
from metadata_store.codecs.base import Int64, MalformedNode, guarded, require_version, strict
from metadata_store.errors import NotConnected
from metadata_store.fencing.fenced import batches, write
from metadata_store.fencing.outcome import Fence, MultiOutcome
from metadata_store.port import Create, Delete, Node, ZooKeeper
from metadata_store.reads import unreadable
from state_machines.admin_rules.credentials import Token

TokenOutcome = MultiOutcome[Token, str]
OPS: Final = 2
"""Operations that delete one token."""


class _Token(Struct):
    version: int
    expiry: Int64 = field(name="expiryTimestamp")
    max: Int64 = field(name="maxTimestamp")


_decode = strict(_Token)


async def token_ids(zk: ZooKeeper) -> list[str]:
    """Reads the ids of all tokens, sorted; none where no broker ever had tokens."""
    listed = await zk.children(paths.DELEGATION_TOKENS)
    return sorted(listed[0]) if listed is not None else []


async def read_tokens(zk: ZooKeeper, ids: Sequence[str]) -> list[Token | MalformedNode]:
    """Reads tokens by id; absent ones are left out."""
    wanted = [paths.delegation_token(name) for name in ids]
    tokens: list[Token | MalformedNode] = []
    for name, path, node in zip(ids, wanted, await zk.read_many(wanted), strict=True):
        found = _token(name, path, node) if isinstance(node, Node) else unreadable(path, node)
        if found is not None:
            tokens.append(found)
    return tokens


def _token(name: str, path: str, node: Node) -> Token | MalformedNode:
    def decoded() -> Token:
        found = _decode(node.data)
        require_version(found.version, (1, 2, 3))
        return Token(name, node.stat.version, found.expiry, found.max)

    return guarded(path, decoded)


async def delete_tokens(zk: ZooKeeper, tokens: Sequence[Token], fence: Fence, *, ops_max: int) -> TokenOutcome:
    """Deletes tokens as they were read, each with its notification, ``ops_max`` operations in a multi.

    A write that was not sent because the connection was lost counts as a conflict. Raises ``Fenced``.
    """
    total: TokenOutcome = MultiOutcome()
    writes = [
        (
            token.id,
            token,
            (
                Delete(paths.delegation_token(token.id), token.version),
                Create(paths.DELEGATION_CHANGE_PREFIX, token.id.encode(), sequential=True),
            ),
        )
        for token in tokens
    ]
    sent = 0
    try:
        for batch in batches(writes, total.refused, zk.request_bytes_max, ops_max):
            total.add(await write(zk, fence, batch))
            sent += len(batch.keys)
    except NotConnected:
        total.conflicts += [token.id for token in tokens[sent:]]
    return total
