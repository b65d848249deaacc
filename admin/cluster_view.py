"""Who is there: the brokers' client listeners and the active daemon, as ZooKeeper has them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import anyio

from admin.ports import Address, Holder, Node
from brokers.rate_limited_log import RateLimitedLog
from brokers.security.attested import Seals
from metadata_store import paths
from metadata_store.codecs.controller import ControllerZnode
from metadata_store.errors import Code, NotConnected, SessionLost, ZkError, ZooKeeperError
from metadata_store.nodes.cluster_nodes import read_cluster_id, read_controller
from metadata_store.nodes.endpoint_znode import ENDPOINTS, AdminEndpoint, announce, endpoint_path
from metadata_store.port import ConnectionState, WatchEvent, ZooKeeper
from metadata_store.reads import read_brokers
from state_machines.model.types import Broker

log = logging.getLogger("regent.admin")

PLAINTEXT: Final = 0
WITHOUT_TLS: Final = frozenset({PLAINTEXT, 2})
"""Security protocols of listeners: PLAINTEXT, SASL_PLAINTEXT."""
WITH_SASL: Final = frozenset({2, 3})
"""SASL_PLAINTEXT, SASL_SSL."""
TOGETHER_S: Final = 0.05
"""After a change, the wait for others that come with it: a broker's death changes several znodes."""
AGAIN_S: Final = 1.0
"""Pause before a new session is tried."""


class ClusterView:
    """What was read last, kept while ZooKeeper is away: brokers and daemon go on without it for a while.

    ``listener`` is the name of the brokers' client listener; ``advertised`` is where clients reach this
    endpoint, None as long as it has no port; ``announced_for`` the daemon that shows it to clients of brokers; ``tls``
    whether it speaks TLS, which its brokers must then do, too. ``secret`` is what daemons know, too: nothing else that
    names a daemon is believed.
    """

    def __init__(
        self,
        listener: str,
        secret: bytes,
        advertised: Address | None = None,
        *,
        announced_for: int | None = None,
        tls: bool = False,
    ) -> None:
        self._tls = tls
        self.advertised = advertised
        self._announced_for = announced_for
        self._listener = listener
        self._secret = secret
        self._brokers: tuple[Address, ...] = ()
        self._daemon: int | None = None
        self._holder: Holder | None = None
        self._vacant = True
        self._secured = True
        self._authenticating = True
        self._changed = asyncio.Event()
        self._known = asyncio.Event()
        self._role_read = asyncio.Event()
        self._quiet = RateLimitedLog()

    def brokers(self) -> Sequence[Address]:
        """See :class:`admin.ports.Directory`."""
        return self._brokers

    def secured(self) -> bool:
        """See :class:`admin.ports.Directory`."""
        return self._secured

    def authenticating(self) -> bool:
        """See :class:`admin.ports.Directory`."""
        return self._authenticating

    async def known(self) -> None:
        """See :class:`admin.ports.Directory`."""
        await self._known.wait()

    def node(self) -> Node | None:
        """The active daemon as clients are to see it; None while a broker holds the role, or nobody."""
        if self._daemon is None or self.advertised is None:
            return None
        return Node(self._daemon, *self.advertised)

    def holder(self) -> Holder | None:
        """The active daemon and where it is reached; None while no daemon is, or it does not say where."""
        return self._holder

    def vacant(self) -> bool:
        """Whether nobody held the role when it was read last."""
        return self._vacant

    async def changed(self) -> None:
        """Waits until the role was read anew."""
        await self._role_read.wait()

    async def follow(self, new_session: Callable[[], ZooKeeper], connect_timeout_s: float) -> None:
        """Keeps it up to date, with one session after the other, until cancelled."""
        while True:
            zk = new_session()
            try:
                await zk.connect(connect_timeout_s)
                await self.run(zk)
            except ZooKeeperError as error:
                log.warning("the cluster cannot be followed, what was known of it stays: %s", error)
            finally:
                with anyio.CancelScope(shield=True):
                    await zk.close()
            await asyncio.sleep(AGAIN_S)

    async def _announce(self, zk: ZooKeeper, seals: Seals) -> tuple[list[str], list[str]]:
        """Tells the daemon beside it where clients reach this endpoint, for as long as the session lives.

        Returns the znode that says so, which is written again when somebody removes it, and the parent that it waits
        for: with ``set_acl`` the daemon makes it, because it must belong to brokers and daemon.
        """
        if self._announced_for is None or self.advertised is None:
            return [], []
        path = endpoint_path(self._announced_for)
        if zk.set_acl and await zk.exists(ENDPOINTS) is None:
            return [], [ENDPOINTS]
        try:
            mine = AdminEndpoint(self._listener, *self.advertised)
            sealed = seals.announced(self._announced_for, zk.session_id, mine)
            other = await announce(zk, self._announced_for, sealed)
        except ZkError as error:
            if error.code is not Code.NO_AUTH:
                raise
            self._quiet.warn(
                "",
                path,
                f"this endpoint may not write {path}, so brokers do not show it to their clients: give the daemon the "
                "same admin.zookeeper_digest_file or admin.zookeeper_sasl_file, and restart it",
            )
            return [], []
        if other is not None:
            self._quiet.warn(
                "",
                path,
                f"{path} names another admin endpoint ({other}), so brokers do not show this one to their clients: "
                f"where two daemons have controller.id {self._announced_for}, give one another id; what a former "
                "life of this endpoint left goes with its session",
            )
        return [path], []

    async def run(self, zk: ZooKeeper) -> None:
        """Follows on a connected session; raises ``SessionLost`` when that is over."""
        zk.on_watch, zk.on_state = self._watched, self._state_changed
        try:
            while True:
                self._changed.clear()
                try:
                    await self._read(zk)
                except SessionLost:
                    raise
                except NotConnected:
                    if zk.state is ConnectionState.LOST:
                        raise SessionLost("the ZooKeeper session is over") from None
                await self._changed.wait()
                await asyncio.sleep(TOGETHER_S)
        finally:
            zk.on_watch = zk.on_state = None

    def _watched(self, event: WatchEvent) -> None:
        self._changed.set()

    def _state_changed(self, state: ConnectionState) -> None:
        """Watches are gone after each blip, so everything is read again."""
        self._changed.set()

    async def _read(self, zk: ZooKeeper) -> None:
        since = zk.last_zxid
        cluster_id = await read_cluster_id(zk)
        seals = Seals(self._secret, cluster_id if isinstance(cluster_id, str) else "")
        own, parents = await self._announce(zk, seals)
        controller = await read_controller(zk)
        found = await read_brokers(zk)
        for bad in found.malformed:
            self._quiet.warn("", bad.path, f"{bad.path} is left out: {bad.why}")
        self._take(found.brokers.values())
        held = controller.value if controller is not None else None
        self._hold(held if isinstance(held, ControllerZnode) else None, seals)
        self._vacant = controller is None
        self._known.set()
        registered = [f"{paths.BROKER_IDS}/{broker}" for broker in found.brokers]
        await zk.watch(
            data=registered + [bad.path for bad in found.malformed] + [paths.CONTROLLER] * (held is not None) + own,
            exists=[paths.CONTROLLER] * (held is None) + parents,
            children=[paths.BROKER_IDS],
            since_zxid=since,
        )

    def _hold(self, held: ControllerZnode | None, seals: Seals) -> None:
        self._holder = _sealed_holder(held, seals) if held is not None else None
        self._daemon = self._holder.id if self._holder is not None else None
        if held is not None and held.nonce is not None and self._holder is None:
            self._quiet.warn(
                str(held.broker),
                "seal",
                f"{paths.CONTROLLER} names daemon {held.broker}, but is not sealed with this endpoint's secret, so no "
                "call is carried there: upgrade that daemon, or give both the same admin.secret_file",
            )
        self._role_read.set()
        self._role_read = asyncio.Event()

    def _take(self, brokers: Iterable[Broker]) -> None:
        """Without any broker it stays as secured as it was."""
        usable, protocols = [], set()
        for broker in brokers:
            endpoint = broker.endpoint(self._listener)
            if endpoint is None:
                self._left_out(broker, f"has no listener named {self._listener}")
                continue
            protocols.add(endpoint.security_protocol)
            if self._tls != (endpoint.security_protocol in WITHOUT_TLS):
                usable.append(Address(endpoint.host, endpoint.port))
            else:
                has, wanted = ("no TLS", "false") if self._tls else ("TLS", "true")
                self._left_out(broker, f"has {has} on its listener {self._listener}: set admin.tls = {wanted}")
        self._brokers = tuple(usable)
        if protocols:
            self._secured = protocols != {PLAINTEXT}
            self._authenticating = protocols <= WITH_SASL

    def _left_out(self, broker: Broker, why: str) -> None:
        self._quiet.warn(str(broker.id), "listener", f"broker {broker.id} is left out: it {why}")


def _sealed_holder(held: ControllerZnode, seals: Seals) -> Holder | None:
    """Returns the daemon in ``/controller`` and its listener's address; None where no daemon of ours sealed them."""
    if held.nonce is None or held.listener is None or held.seal is None:
        return None
    host, _, port = held.listener.rpartition(":")
    sealed = seals.is_controller(held.broker, held.nonce, held.listener, held.seal)
    if not sealed or not host or not port.isdecimal():
        return None
    return Holder(held.broker, held.nonce, host, int(port), seals.cluster_id)
