"""Follows the brokers' client listeners and the active daemon in ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import anyio

from admin.ports import Address, Holder, Node
from brokers.rate_limited_log import RateLimitedLog
from brokers.security.shared_secret import Seals
from metadata_store import paths
from metadata_store.codecs.controller import ControllerZnode
from metadata_store.errors import Code, NotConnected, SessionLost, ZkError, ZooKeeperError
from metadata_store.nodes.cluster_nodes import read_cluster_id, read_controller
from metadata_store.nodes.endpoint_znode import AdminEndpoint, announce, endpoint_path
from metadata_store.own import ENDPOINTS
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
"""Wait after a change for others that belong to it: a broker's death changes several znodes."""
AGAIN_S: Final = 1.0
"""Pause before the next session."""


class ClusterView:
    """The state read last, kept while ZooKeeper is away: brokers and daemon go on without it for a while.

    ``listener`` is the name of the brokers' client listener. ``advertised`` is the address under which clients reach
    this endpoint, None as long as it has no port. ``announced_for`` is the daemon that shows it to clients of brokers.
    ``tls`` is True where the endpoint uses TLS; its brokers must then use it, too. ``secret`` is shared with the
    daemons: the view trusts only a name of a daemon that is sealed with it.
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
        """Returns the active daemon as the node that clients see; None while no daemon holds the role."""
        if self._daemon is None or self.advertised is None:
            return None
        return Node(self._daemon, *self.advertised)

    def holder(self) -> Holder | None:
        """Returns the active daemon with its address; None while no daemon is active, or none with an address."""
        return self._holder

    def vacant(self) -> bool:
        """Returns whether the role was vacant at the last read."""
        return self._vacant

    async def changed(self) -> None:
        """Waits until the role was read again."""
        await self._role_read.wait()

    async def follow(self, new_session: Callable[[], ZooKeeper], connect_timeout_s: float) -> None:
        """Keeps the view up to date, with one session after the other, until cancelled."""
        while True:
            zk = new_session()
            try:
                await zk.connect(connect_timeout_s)
                await self.run(zk)
            except ZooKeeperError as error:
                log.warning("the admin endpoint cannot follow the cluster, and keeps its last view of it: %s", error)
            finally:
                with anyio.CancelScope(shield=True):
                    await zk.close()
            await asyncio.sleep(AGAIN_S)

    async def _announce(self, zk: ZooKeeper, seals: Seals) -> tuple[list[str], list[str]]:
        """Announces this endpoint's address to the daemon beside it, for as long as the session lives.

        Returns the znode of the announcement, which is written again after a removal, and the missing parent. With
        ``set_acl`` the daemon creates the parent, because it must belong to brokers and daemon.
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
                f"this endpoint may not write {path}, so brokers do not show it to their clients: configure the same "
                "admin.zookeeper_digest_file or admin.zookeeper_sasl_file for the daemon, and restart it",
            )
            return [], []
        if other is not None:
            self._quiet.warn(
                "",
                path,
                f"{path} names another admin endpoint ({other}), so brokers do not show this one to their clients: "
                f"where two daemons have controller.id {self._announced_for}, give one another id; an announcement of "
                "an earlier incarnation of this endpoint goes with its session",
            )
        return [path], []

    async def run(self, zk: ZooKeeper) -> None:
        """Follows the cluster on a connected session; raises ``SessionLost`` when the session is over."""
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
        """Reads everything again after each interruption, because it removed the watches."""
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
                f"{paths.CONTROLLER} names daemon {held.broker}, but is not sealed with this endpoint's secret, so the "
                "endpoint carries no calls to it: upgrade that daemon, or give both the same admin.secret_file",
            )
        self._role_read.set()
        self._role_read = asyncio.Event()

    def _take(self, brokers: Iterable[Broker]) -> None:
        """Takes over the brokers' listeners; without any broker the view stays as secured as it was."""
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
    """Returns the daemon in ``/controller`` with its listener; None where no daemon with our secret sealed it."""
    if held.nonce is None or held.listener is None or held.seal is None:
        return None
    host, _, port = held.listener.rpartition(":")
    sealed = seals.is_controller(held.broker, held.nonce, held.listener, held.seal)
    if not sealed or not host or not port.isdecimal():
        return None
    return Holder(held.broker, held.nonce, host, int(port), seals.cluster_id)
