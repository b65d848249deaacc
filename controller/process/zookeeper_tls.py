"""Makes TLS to ZooKeeper from the settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from configs.zookeeper_section import ZooKeeperSettings
from metadata_store.kazoo_adapter.server_version import Limits, server_limits, server_version
from metadata_store.kazoo_adapter.tls import ZooKeeperTls

Release = tuple[int, int]
ReleaseOf = Callable[[str, int], Awaitable[Release | None]]
"""Release of the ZooKeeper server at an address, None where it does not send it."""


def tls_of(settings: ZooKeeperSettings) -> ZooKeeperTls | None:
    """Returns the files and checks of TLS; None without TLS."""
    if not settings.tls:
        return None
    return ZooKeeperTls(settings.ca_file, settings.certificate_file, settings.key_file, settings.check_host)


def through_tls(release_of: ReleaseOf, settings: ZooKeeperSettings) -> ReleaseOf:
    """Returns ``release_of``, with TLS a function that queries the servers through it."""
    tls = tls_of(settings)
    if tls is None:
        return release_of

    async def queried(host: str, port: int) -> Release | None:
        return await server_version(host, port, tls.context(check_host=False))

    return queried


async def limits_of(host: str, port: int, settings: ZooKeeperSettings) -> Limits | None:
    """Queries a server's limits, through TLS where the settings require it; None where it does not send them."""
    tls = tls_of(settings)
    return await server_limits(host, port, tls.context(check_host=False) if tls is not None else None)
