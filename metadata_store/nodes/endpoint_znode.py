"""Announces the admin endpoint beside a daemon in ``/regent/endpoints/ID``, as long as the endpoint's session lasts.

The znode is ephemeral, on the endpoint's own session. The daemon ``ID``, while it holds the role, sends the address to
brokers: clients of any broker then find their controller there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct, structs

from metadata_store.codecs.base import decoded
from metadata_store.errors import Code, ZkError
from metadata_store.own import ENDPOINTS, ROOT
from metadata_store.port import ZooKeeper

TRIES_MAX: Final = 3


class AdminEndpoint(Struct, frozen=True):
    """An endpoint. ``listener``: listener of its clients; ``seal``: see :mod:`brokers.security.shared_secret`."""

    listener: Annotated[str, Meta(min_length=1)]
    host: Annotated[str, Meta(min_length=1)]
    port: Annotated[int, Meta(ge=1, le=65_535)]
    version: int = 1
    seal: str = ""

    def __str__(self) -> str:
        return f"{self.host}:{self.port} on listener {self.listener}"


def endpoint_path(daemon: int) -> str:
    """Returns the znode of the endpoint beside a daemon."""
    return f"{ENDPOINTS}/{daemon}"


def decode_endpoint(data: bytes | None) -> AdminEndpoint | None:
    """Decodes the znode; None where it cannot be understood."""
    try:
        return decoded(data or b"", AdminEndpoint)
    except msgspec.DecodeError:
        return None


async def announce(zk: ZooKeeper, daemon: int, endpoint: AdminEndpoint) -> str | None:
    """Creates the znode on this session, and deletes that of an earlier incarnation of the endpoint.

    Returns the data of another endpoint's znode, which stays. Two daemons have one id, or an earlier incarnation
    listened elsewhere and its session is not over yet.
    """
    path, data = endpoint_path(daemon), msgspec.json.encode(endpoint)
    for _ in range(TRIES_MAX):
        node = await zk.get(path)
        if node is None:
            if await _written(zk, path, data):
                return None
            continue
        if node.stat.ephemeral_owner == zk.session_id:
            return None
        if node.stat.ephemeral_owner and not _same(node.data, endpoint):
            return (node.data or b"").decode(errors="replace")
        with suppress(ZkError):
            await zk.delete(path, node.stat.version)
    return "others that come and go"


def _same(data: bytes | None, endpoint: AdminEndpoint) -> bool:
    """Checks whether another session announced the same; its seal is its own."""
    found = decode_endpoint(data)
    return found is not None and structs.replace(found, seal=endpoint.seal) == endpoint


async def _written(zk: ZooKeeper, path: str, data: bytes) -> bool:
    """Creates the znode, with its parents where they are missing; False where another writer was faster."""
    try:
        return await _created(zk, path, data, ephemeral=True)
    except ZkError as error:
        if error.code is not Code.NO_NODE:
            raise
    for parent in (ROOT, ENDPOINTS):
        await _created(zk, parent, b"")
    return await _created(zk, path, data, ephemeral=True)


async def _created(zk: ZooKeeper, path: str, data: bytes, *, ephemeral: bool = False) -> bool:
    """Creates a znode; False where it exists already."""
    try:
        await zk.create(path, data, ephemeral=ephemeral)
    except ZkError as error:
        if error.code is not Code.NODE_EXISTS:
            raise
        return False
    return True
