"""Creates ZooKeeper sessions from the settings; apart from the daemon, which the admin endpoint does not load."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import SecretStr

from configs.settings import Settings
from controller.process.znode_acls import own_acls
from controller.process.zookeeper_tls import tls_of
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.port import ZooKeeper


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
