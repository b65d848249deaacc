"""Makes and checks the seals of addresses that daemon and admin endpoint write into ZooKeeper for each other.

A seal is an HMAC under the shared secret, which daemon and endpoint read from a file. Without seals, any client that
may write these znodes could divert traffic to its own address: all clients', or the endpoint's calls to the daemon.

A seal binds the address to the cluster, to the daemon, and to the incarnation that wrote it. The ZooKeeper session that
owns the znode identifies an endpoint's incarnation, the nonce of its process a daemon's. Envelopes
(:mod:`brokers.wire.envelope`) have seals under the same secret.
"""

from __future__ import annotations

import hmac
from struct import Struct as Layout

from msgspec import Struct, structs

from metadata_store.nodes.endpoint_znode import AdminEndpoint

_I32 = Layout(">i").pack


class Seals(Struct, frozen=True):
    """Makes and checks seals with one secret, for one cluster."""

    secret: bytes
    cluster_id: str

    def announced(self, daemon: int, session: int, endpoint: AdminEndpoint) -> AdminEndpoint:
        """Returns the announcement with its seal; ``session`` will own the znode."""
        return structs.replace(endpoint, seal=self._of_endpoint(daemon, session, endpoint))

    def announces(self, daemon: int, session: int, endpoint: AdminEndpoint) -> bool:
        """Returns whether an endpoint with our secret wrote it on the session that owns the znode."""
        wanted = self._of_endpoint(daemon, session, endpoint)
        return hmac.compare_digest(wanted.encode(), endpoint.seal.encode())

    def _of_endpoint(self, daemon: int, session: int, endpoint: AdminEndpoint) -> str:
        return self._mac("endpoint", daemon, session, endpoint.listener, endpoint.host, endpoint.port)

    def of_controller(self, daemon: int, nonce: str, listener: str) -> str:
        """Returns the seal of ``/controller`` on the listener of a daemon's incarnation ``nonce``."""
        return self._mac("controller", daemon, nonce, listener)

    def is_controller(self, daemon: int, nonce: str, listener: str, seal: str) -> bool:
        """Returns whether a daemon with our secret wrote that."""
        return hmac.compare_digest(self.of_controller(daemon, nonce, listener).encode(), seal.encode())

    def of_daemon(self, daemon: int, nonce: str) -> str:
        """Returns the seal of a daemon's queue position, which shows whether two daemons have the same secret."""
        return self._mac("daemon", daemon, nonce)

    def _mac(self, kind: str, *parts: object) -> str:
        made = hmac.new(self.secret, digestmod="sha256")
        for part in ("regent znode 1", self.cluster_id, kind, *parts):
            data = str(part).encode()
            made.update(_I32(len(data)) + data)
        return made.hexdigest()
