"""Makes TLS towards ZooKeeper from its files, and finds why a handshake fails."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from metadata_store.subjects import subject_in

PROBE_S_MAX: Final = 2.0


class ZooKeeperTls(Struct, frozen=True):
    """PEM files. ``certificate`` (with its ``key``, which may be in the same file) is for servers that require one.

    ``authority`` is trusted besides those of the system, as kazoo does it. ``check_host``: a server's certificate must
    name the host of the connect string.
    """

    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    check_host: bool = True

    def options(self) -> dict[str, Any]:
        """Returns the options of kazoo's client."""
        key = self.key or self.certificate
        return {
            "use_ssl": True,
            "verify_certs": True,
            "check_hostname": self.check_host,
            "ca": str(self.authority) if self.authority else None,
            "certfile": str(self.certificate) if self.certificate else None,
            "keyfile": str(key) if key else None,
            "keyfile_password": "",  # without one OpenSSL would prompt at the terminal
        }

    def subject(self) -> str | None:
        """Returns the subject of the own certificate; None without one, or where it cannot be used."""
        return subject_in(self.certificate, self.key) if self.certificate is not None else None

    def context(self, *, check_host: bool | None = None) -> ssl.SSLContext:
        """Returns the context of regent's own connections; raises OSError where a file cannot be used."""
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.authority)
        context.load_default_certs()
        context.check_hostname = self.check_host if check_host is None else check_host
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key, password=b"")
        return context


async def why_not(servers: str, tls: ZooKeeperTls) -> str | None:
    """Returns the fault of TLS at the first server that has one; None where no server reports one."""
    try:
        context = tls.context()
    except OSError as error:
        return f"its TLS files cannot be used: {error.strerror or error}"
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            async with asyncio.timeout(PROBE_S_MAX):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
            writer.close()
        except ssl.SSLCertVerificationError as error:
            return f"{server} shows a certificate that is not accepted: {error.verify_message}"
        except ssl.SSLError as error:
            return f"{server} does not accept TLS: {error.reason or error}; is it the secureClientPort?"
        except (ConnectionResetError, ConnectionAbortedError):
            return f"{server} hangs up where TLS begins; is it the secureClientPort?"
        except (OSError, ValueError):
            continue
    return None
