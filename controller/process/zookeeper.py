"""Creates ZooKeeper sessions from the settings, with TLS, an identity, and the ACLs of regent's own znodes.

Each session gives these ACLs to what it creates:

| znodes | ``zookeeper.set_acl`` | ``on_absence = "hold"`` alone | an identity alone |
|---|---|---|---|
| of the role | as brokers' znodes | the daemons' digest | open |
| records | the same; with ``hold`` the daemons' digest | the daemons' digest | open |
| of the regions' domain | the daemons' digest, else as brokers' znodes | the daemons' digest | that identity |
| that servers move | the same, and ``regions.servers_identity`` | the same | the same |
| announcements | the endpoint that announces | the same | the same |

Any client may read all of them. The module stands apart from the daemon, which the admin endpoint does not load.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from pydantic import SecretStr

from configs.connections import ZooKeeperSettings
from configs.settings import Settings
from metadata_store.acl import ALL, CREATE, DELETE, READ, READABLE, WRITE, Acl, digest_id
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.kazoo_adapter.servers import ServerLimits, server_limits, server_version
from metadata_store.kazoo_adapter.tls import ZooKeeperTls
from metadata_store.own import Access, OwnAcls
from metadata_store.port import ZooKeeper

READERS: Final = Acl(READ, "world", "anyone")

ANYONE: Final = ("world", "anyone")
OF_SERVERS: Final = {Access.UNASSIGNED: CREATE, Access.OPENED: CREATE | DELETE, Access.MOVED: READ | WRITE}
"""What servers of regions may do where they have an identity of their own."""


def own_acls(settings: Settings) -> OwnAcls:
    """Returns the lists; none for znodes that stay open, or that are closed as brokers' znodes are."""
    zookeeper = settings.zookeeper
    pair = digest_pair(settings)
    lock = (Acl(ALL, "digest", digest_id(*pair)), READERS) if pair is not None else None
    held = lock if settings.controller.on_absence == "hold" else None
    daemons = READABLE if zookeeper.set_acl else held
    proven = zookeeper.set_acl or zookeeper.sasl is not None
    regions = lock or (READABLE if proven else None)
    lists = {
        Access.DAEMONS: daemons,
        Access.RECORDS: held or daemons,
        Access.REGIONS: regions,
        **{one: regions and (*regions, *_servers(settings, perms)) for one, perms in OF_SERVERS.items()},
        Access.ENDPOINTS: None if daemons is None else (*daemons, *_announcers(settings)),
        Access.ANNOUNCED: READABLE if proven or lock is not None else (READERS,),
    }
    return {access: acls for access, acls in lists.items() if acls is not None}


def _announcers(settings: Settings) -> tuple[Acl, ...]:
    """Returns the right to announce an endpoint, for those that have another identity than the daemon.

    Without ``set_acl`` an endpoint needs no identity. Its announcement is sealed, so any client may come and go there.
    """
    admin, zookeeper = settings.admin, settings.zookeeper
    if admin.zookeeper_sasl is not None:
        identity = "sasl", admin.zookeeper_sasl.get_secret_value().partition(":")[0]
    elif admin.zookeeper_digest is not None:
        identity = "digest", digest_id(*admin.zookeeper_digest.get_secret_value().split(":", 1))
    elif zookeeper.set_acl:
        return ()
    else:
        identity = ANYONE
    return (Acl(CREATE | DELETE, *identity),)


def _servers(settings: Settings, perms: int) -> tuple[Acl, ...]:
    """Returns rights of servers of regions that have another identity than the daemon."""
    identity = settings.regions.servers_identity
    if identity is None:
        return ()
    scheme, _, name = identity.partition(":")
    return (Acl(perms, scheme, name),)


def digest_pair(settings: Settings) -> tuple[str, str] | None:
    """Returns user and password of ZooKeeper's digest scheme, or None where none are set."""
    secret = settings.zookeeper.digest
    if secret is None:
        return None
    user, _, password = secret.get_secret_value().partition(":")
    return user, password


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


async def limits_of(host: str, port: int, settings: ZooKeeperSettings) -> ServerLimits | None:
    """Queries a server's limits, through TLS where the settings require it; None where it does not send them."""
    tls = tls_of(settings)
    return await server_limits(host, port, tls.context(check_host=False) if tls is not None else None)


def connections(settings: Settings) -> Callable[[], ZooKeeper]:
    """Returns a factory of sessions; each knows the last zxid of earlier ones, to detect an ensemble that lost data."""
    last: KazooZooKeeper | None = None

    def make() -> ZooKeeper:
        nonlocal last
        last = connection(settings, last.zxid_seen if last is not None else 0)
        return last

    return make


def connection(settings: Settings, zxid_seen: int = 0) -> KazooZooKeeper:
    """Creates a ZooKeeper session object from the settings."""
    return KazooZooKeeper(
        settings.zookeeper.connect,
        session_timeout_ms=settings.zookeeper.session_timeout_ms,
        zxid_seen=zxid_seen,
        credentials=_revealed(settings.zookeeper.digest),
        tls=tls_of(settings.zookeeper),
        sasl=_revealed(settings.zookeeper.sasl),
        set_acl=settings.zookeeper.set_acl,
        own_acls=own_acls(settings),
    )


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
