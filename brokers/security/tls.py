"""Makes TLS contexts for both directions, and renews them when a file has changed, without a restart."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from brokers.rate_limited_log import RateLimitedLog
from brokers.security.authentication import SecurityUnusable

log = logging.getLogger("regent.brokers")

_Stamp = tuple[tuple[int, int, int], ...]
NO_PASSWORD: Final = b""
"""Makes a key with a password an error: OpenSSL would prompt for it."""
OLDEST: Final = ssl.TLSVersion.TLSv1_2
"""The oldest version of Kafka 3.9's default of ``ssl.enabled.protocols``."""


class Tls:
    """TLS of one side: ``certificate`` and ``key`` are its PEM files, ``authority`` that of its trusted authorities.

    Without ``authority`` the system's ones count. ``check_host``: a broker's certificate must name the host of the
    connection. ``require_clients``: clients must present a certificate that ``authority`` signed; ``clients`` sets the
    same as a mode of OpenSSL.
    """

    def __init__(
        self,
        certificate: Path | None,
        key: Path | None,
        authority: Path | None,
        *,
        check_host: bool = True,
        require_clients: bool = False,
        clients: ssl.VerifyMode = ssl.CERT_NONE,
    ) -> None:
        self._certificate = certificate
        self._key = key
        self._authority = authority
        self._check_host = check_host
        self._clients = ssl.CERT_REQUIRED if require_clients else clients
        self._quiet = RateLimitedLog()
        self._stamp = self._stamped()
        self._client = self._made(self._new_client)
        self._server = self._made(self._new_server) if certificate is not None else None

    def client(self) -> ssl.SSLContext:
        """Returns the context for connections to other processes."""
        self._renew()
        return self._client

    def server(self) -> ssl.SSLContext:
        """Returns the listener's context, which stays the same and uses renewed files for each new connection."""
        self._renew()
        if self._server is None:
            raise SecurityUnusable("a listener with TLS needs a certificate: set security.certificate_file")
        return self._server

    def _renew(self) -> None:
        """Renews the contexts from changed files; unusable files change nothing, because they may be half written."""
        if (stamp := self._stamped()) == self._stamp:
            return
        try:
            client = self._made(self._new_client)
            server = self._made(self._new_server) if self._server is not None else None
        except SecurityUnusable as error:
            self._quiet.warn("", "tls", f"the earlier certificates stay in use: {error}")
            return
        self._client, self._server, self._stamp = client, server, stamp
        log.info("the certificates were read again: %s", ", ".join(map(str, self._files())))

    def _made(self, make: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        try:
            return make()
        except OSError as error:
            names = ", ".join(map(str, self._files()))
            why = error.strerror or str(error)
            raise SecurityUnusable(
                f"TLS files cannot be used ({names}): {why}; they must be PEM, the key that of the certificate and "
                "without a password, all readable by the daemon's user"
            ) from error

    def _new_client(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self._authority)
        context.minimum_version = OLDEST
        context.check_hostname = self._check_host
        self._load(context)
        return context

    def _new_server(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self._authority)
        context.minimum_version = OLDEST
        context.verify_mode = self._clients
        self._load(context)
        context.sni_callback = self._begins
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        if self._certificate is not None:
            context.load_cert_chain(self._certificate, self._key, password=NO_PASSWORD)

    def _begins(self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, context: ssl.SSLContext) -> None:
        """Switches a new handshake to the renewed context; OpenSSL calls it when a handshake begins."""
        if (fresh := self.server()) is not context:
            connection.context = fresh

    def _files(self) -> list[Path]:
        return [path for path in (self._certificate, self._key, self._authority) if path is not None]

    def _stamped(self) -> _Stamp:
        return tuple(_stamp(path) for path in self._files())


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_size, found.st_ino
