"""Makes the ACLs of regent's own znodes from the settings; each session gives them to what it creates.

| znodes | ``zookeeper.set_acl`` | ``on_absence = "hold"`` alone | an identity alone |
|---|---|---|---|
| of the role | as brokers' znodes | the daemons' digest | open |
| records | the same; with ``hold`` the daemons' digest | the daemons' digest | open |
| of the regions' domain | the daemons' digest, else as brokers' znodes | the daemons' digest | that identity |
| announcements | the endpoint that announces | the same | the same |

Any client may read all of them.
"""

from __future__ import annotations

from typing import Final

from configs.settings import Settings
from metadata_store.acl import ALL, CREATE, DELETE, READ, READABLE, Acl, digest_id
from metadata_store.own import Access, OwnAcls

READERS: Final = Acl(READ, "world", "anyone")
ANYONE: Final = ("world", "anyone")


def own_acls(settings: Settings) -> OwnAcls:
    """Returns the lists; none for znodes that stay open, or that are closed as brokers' znodes are."""
    zookeeper = settings.zookeeper
    pair = digest_pair(settings)
    lock = (Acl(ALL, "digest", digest_id(*pair)), READERS) if pair is not None else None
    held = lock if settings.controller.on_absence == "hold" else None
    daemons = READABLE if zookeeper.set_acl else held
    proven = zookeeper.set_acl or zookeeper.sasl is not None
    lists = {
        Access.DAEMONS: daemons,
        Access.RECORDS: held or daemons,
        Access.REGIONS: lock or (READABLE if proven else None),
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


def digest_pair(settings: Settings) -> tuple[str, str] | None:
    """Returns user and password of ZooKeeper's digest scheme, or None where none are set."""
    secret = settings.zookeeper.digest
    if secret is None:
        return None
    user, _, password = secret.get_secret_value().partition(":")
    return user, password
