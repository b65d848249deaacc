"""Prepares a cluster in memory for the preflight: each function returns one change of a sound cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from controller.role import own_znodes as own
from controller.role.own_znodes import this_process
from metadata_store.acl import READ, Acl, digest_acl
from metadata_store.port import ANY_VERSION
from tests.kit.kafka.role import Kafka

Prepare = Callable[[Kafka], Awaitable[object] | None]


async def prepare(c: Kafka, *changes: Prepare) -> None:
    """Carries out changes."""
    for change in changes:
        if (work := change(c)) is not None:
            await work


def both(*changes: Prepare) -> Prepare:
    """Returns one change made of several."""
    return lambda c: prepare(c, *changes)


def cluster(**attributes: object) -> Prepare:
    """Sets attributes of the cluster."""
    return lambda c: vars(c).update(attributes)


def ours(section: str = "controller", **values: object) -> Prepare:
    """Changes keys of the daemon's settings."""
    return lambda c: c.change(section, **values)


def broker(broker_id: int, **attributes: object) -> Prepare:
    """Sets attributes of a broker."""
    return lambda c: vars(c.brokers[broker_id]).update(attributes)


def restarted(broker_id: int, **attributes: object) -> Prepare:
    """Restarts a broker with other attributes, which its registration shows."""
    return lambda c: c.again(broker_id, **attributes)


def config(name: str, value: str | None, *brokers: int) -> Prepare:
    """Changes a setting of some brokers, or of all; None: they hide the value."""

    def change(c: Kafka) -> None:
        for b in brokers or c.brokers:
            c.brokers[b].configs[name] = value

    return change


def offers(broker_id: int, api: int, versions: tuple[int, int] | None) -> Prepare:
    """Changes the versions of an API that a broker accepts; None: it does not know the API."""

    def change(c: Kafka) -> None:
        known = c.brokers[broker_id].api_versions
        c.brokers[broker_id].api_versions = (
            {**known, api: versions} if versions else {k: v for k, v in known.items() if k != api}
        )

    return change


def topic(name: str, *replicas: tuple[int, ...]) -> Prepare:
    """Creates a topic."""
    return lambda c: c.topic(name, *replicas)


def created(path: str, data: bytes | None = None) -> Prepare:
    """Creates a znode."""
    return lambda c: c.operator.create(path, data)


def written(path: str, data: object) -> Prepare:
    """Replaces the data of a znode."""
    return lambda c: c.operator.set(path, data if isinstance(data, bytes) else str(data).encode(), ANY_VERSION)


def deleted(path: str) -> Prepare:
    """Deletes a znode."""
    return lambda c: c.operator.delete(path, ANY_VERSION)


def closed(path: str, owner: Acl = digest_acl("brokers", "other")) -> Prepare:  # noqa: B008 - a constant
    """Closes a znode, so that one identity alone may write there."""
    acls = [owner, Acl(READ, "world", "anyone")]
    return lambda c: c.operator.set_acls(path, acls, ANY_VERSION)


def queued(number: int, listener: str = "") -> Prepare:
    """Creates the queue position of a live daemon, without the daemon."""

    async def change(c: Kafka) -> None:
        for path in (own.ROOT, own.LOCKS):
            if await c.operator.exists(path) is None:
                await c.operator.create(path, b"")
        process = replace(this_process(number), mark="of its secret", listener=listener)
        await c.operator.create(f"{own.LOCKS}/lock-", own.encode(process), ephemeral=True, sequential=True)

    return change
