"""Reports the status of the admin endpoint beside a daemon, to operators of an active or a standby daemon."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from controller.role.claim import Role
from metadata_store.nodes.endpoint_znode import AdminEndpoint, decode_endpoint, endpoint_path

FOREIGN: Final = (
    "its announcement is not sealed with this daemon's admin secret: give both the same admin.secret_file, then "
    "restart the endpoint"
)
SILENT: Final = (
    "none has announced itself beside this daemon: Kafka's tools find no controller while it holds the role; see the "
    "endpoint's log"
)


class Announced(Struct, frozen=True):
    """The endpoint's announcement in its znode. ``ours``: it is sealed with the daemon's secret."""

    endpoint: AdminEndpoint | None = None
    ours: bool = False


async def announced(role: Role) -> Announced:
    """Reads the announcement."""
    node = await role.zk.get(endpoint_path(role.me.id))
    found = decode_endpoint(node.data) if node is not None else None
    if node is None or found is None:
        return Announced()
    seals = await role.seals()
    return Announced(found, seals is not None and seals.announces(role.me.id, node.stat.ephemeral_owner, found))


def trouble_of(seen: Announced, secret_trouble: str | None) -> str | None:
    """Returns why the endpoint serves no clients, or would not after a restart; None without trouble."""
    if secret_trouble is not None:
        return secret_trouble
    if seen.endpoint is None:
        return SILENT
    return None if seen.ours else FOREIGN
