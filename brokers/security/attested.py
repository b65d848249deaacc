"""Seals on what daemon and admin endpoint write into ZooKeeper for each other.

Whoever may write there could otherwise name an address of their own, as the admin endpoint's to all clients, or as the
daemon's to the endpoint. A seal is an HMAC under the secret that both read from a file. It binds the address to the
cluster, to the daemon, and to the life that wrote it: the ZooKeeper session that owns an endpoint's znode, the nonce
of a daemon's process.
"""

from __future__ import annotations

import hmac
from struct import Struct as Layout

from msgspec import Struct, structs

from metadata_store.nodes.endpoint_znode import AdminEndpoint

_I32 = Layout(">i").pack


class Seals(Struct, frozen=True):
    """Made and judged with one secret, for one cluster."""

    secret: bytes
    cluster_id: str

    def announced(self, daemon: int, session: int, endpoint: AdminEndpoint) -> AdminEndpoint:
        """The announcement with its seal; ``session`` will own the znode."""
        return structs.replace(endpoint, seal=self._of_endpoint(daemon, session, endpoint))

    def announces(self, daemon: int, session: int, endpoint: AdminEndpoint) -> bool:
        """Whether an endpoint of ours wrote it on the session that owns the znode."""
        wanted = self._of_endpoint(daemon, session, endpoint)
        return hmac.compare_digest(wanted.encode(), endpoint.seal.encode())

    def _of_endpoint(self, daemon: int, session: int, endpoint: AdminEndpoint) -> str:
        return self._mac("endpoint", daemon, session, endpoint.listener, endpoint.host, endpoint.port)

    def of_controller(self, daemon: int, nonce: str, listener: str) -> str:
        """For ``/controller``: where the life ``nonce`` of a daemon listens."""
        return self._mac("controller", daemon, nonce, listener)

    def is_controller(self, daemon: int, nonce: str, listener: str, seal: str) -> bool:
        """Whether a daemon of ours wrote that."""
        return hmac.compare_digest(self.of_controller(daemon, nonce, listener).encode(), seal.encode())

    def of_daemon(self, daemon: int, nonce: str) -> str:
        """For a daemon's place in the queue: whether two daemons have the same secret shows by it."""
        return self._mac("daemon", daemon, nonce)

    def _mac(self, kind: str, *parts: object) -> str:
        made = hmac.new(self.secret, digestmod="sha256")
        for part in ("regent znode 1", self.cluster_id, kind, *parts):
            data = str(part).encode()
            made.update(_I32(len(data)) + data)
        return made.hexdigest()
