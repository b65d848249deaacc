"""Returns the subjects of certificates in Java's form (RFC 2253), as Kafka and ZooKeeper write them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROUNDS_MAX: Final = 4
"""Turns of both sides in a handshake without a network."""
_SHORT: Final = {
    "commonName": "CN", "localityName": "L", "stateOrProvinceName": "ST", "organizationName": "O",
    "organizationalUnitName": "OU", "countryName": "C", "streetAddress": "STREET", "domainComponent": "DC",
    "userId": "UID",
}  # fmt: skip
_ESCAPED: Final = frozenset(',+"\\<>;')


def subject_of(certificate: Mapping[str, Any]) -> str:
    """Returns the subject of a certificate as :meth:`ssl.SSLSocket.getpeercert` returns it."""
    return ",".join("+".join(_attribute(*pair) for pair in part) for part in reversed(certificate["subject"]))


def subject_in(certificate: Path, key: Path | None = None) -> str | None:
    """Returns the subject of the certificate in a file; None where it cannot be used, also once it has expired.

    The module ``ssl`` reads certificates of peers alone: the process shows it to itself, in a handshake in memory.
    """
    try:
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for each in (server, client):
            each.load_cert_chain(certificate, key, password=b"")
        server.verify_mode = ssl.CERT_REQUIRED
        server.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        server.load_verify_locations(certificate)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        near, far = client.wrap_bio(there, back), server.wrap_bio(back, there, server_side=True)
        for one in (near, far) * ROUNDS_MAX:
            try:
                one.do_handshake()
            except ssl.SSLWantReadError:
                continue
        found = far.getpeercert()
    except (OSError, ValueError):
        return None
    return subject_of(found) if found else None


def _attribute(name: str, value: str) -> str:
    written = "".join(f"\\{c}" if c in _ESCAPED else c for c in value)
    if written.startswith(("#", " ")):
        written = f"\\{written}"
    if written.endswith(" "):
        written = f"{written[:-1]}\\ "
    return f"{_SHORT.get(name, name)}={written}"
