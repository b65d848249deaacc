"""Who may call as brokers do where a connection alone does not say: without SASL whoever gets through is nobody yet.

A certificate of the right authority may be an application's, and an address anybody's. So the daemon knows brokers by
what it met when it connected to their registered listeners itself: the subject of the certificate that they showed,
which is the one that they call with, and the address.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any, Final

HOST_BITS: Final = 64
"""Bits of an IPv6 address that one machine may choose."""
MET_MAX: Final = 10_000
"""Subjects, and addresses, that are remembered; the oldest are forgotten."""
ANONYMOUS: Final = "User:ANONYMOUS"

_SHORT: Final = {
    "commonName": "CN", "localityName": "L", "stateOrProvinceName": "ST", "organizationName": "O",
    "organizationalUnitName": "OU", "countryName": "C", "streetAddress": "STREET", "domainComponent": "DC",
    "userId": "UID",
}  # fmt: skip
_ESCAPED: Final = frozenset(',+"\\<>;')


class Met:
    """What brokers were met as."""

    def __init__(self) -> None:
        self._subjects: dict[str, None] = {}
        self._addresses: dict[str, None] = {}
        self._parties: dict[str, None] = {}

    def met(self, transport: asyncio.BaseTransport) -> None:
        """A connection that the daemon made to a broker is up."""
        if (name := subject(transport)) is not None:
            _remember(self._subjects, name)
        if (address := transport.get_extra_info("peername")) is not None:
            _remember(self._addresses, str(address[0]))
            _remember(self._parties, party(str(address[0])))

    def subject(self, name: str) -> bool:
        """Whether a broker showed a certificate with it."""
        return name in self._subjects

    def address(self, address: str) -> bool:
        """Whether a broker was reached there."""
        return address in self._addresses

    def party(self, address: str) -> bool:
        """Whether a broker was reached at one of the addresses that count together as this one."""
        return address in self._parties


class Callers:
    """Judges connections of the controller listener.

    ``principals``: brokers' own, as Kafka writes them, instead of those that were met. ``by_subject``: callers show
    certificates and nothing else. ``by_address``: they show nothing, and only brokers' addresses are served.
    """

    def __init__(
        self,
        met: Met | None = None,
        *,
        principals: frozenset[str] = frozenset(),
        by_subject: bool = False,
        by_address: bool = False,
    ) -> None:
        self._met = met or Met()
        self._principals = principals
        self._by_subject = by_subject
        self._by_address = by_address

    def known(self, address: str) -> bool:
        """Whether a broker was reached there; ``address`` as :func:`party` gives it."""
        return self._met.party(address)

    async def refused(
        self, transport: asyncio.BaseTransport | None, admits: Callable[[str, str], Awaitable[bool]]
    ) -> str | None:
        """Why a caller is no broker, None where it is one; ``admits`` judges as an authorizer does (ClusterAction)."""
        peer = transport.get_extra_info("peername") if transport is not None else None
        if transport is None or peer is None or not (self._by_subject or self._by_address):
            return None
        address = str(peer[0])
        if self._by_address:
            return None if self._met.address(address) else f"no broker was ever reached at {address}"
        name = subject(transport)
        principal = f"User:{name}" if name is not None else ANONYMOUS
        if self._principals:
            return None if principal in self._principals else f"security.broker_principals does not name {principal}"
        if (name is not None and self._met.subject(name)) or await admits(principal, address):
            return None
        return f"no broker shows the certificate of {principal}, and no ACL allows it ClusterAction"


def subject(transport: asyncio.BaseTransport) -> str | None:
    """The subject of the other side's certificate as Java writes it (RFC 2253); None where it showed none."""
    certificate: dict[str, Any] | None = transport.get_extra_info("peercert")
    if not certificate:
        return None
    return ",".join("+".join(_attribute(*pair) for pair in part) for part in reversed(certificate["subject"]))


def _attribute(name: str, value: str) -> str:
    written = "".join(f"\\{c}" if c in _ESCAPED else c for c in value)
    if written.startswith(("#", " ")):
        written = f"\\{written}"
    if written.endswith(" "):
        written = f"{written[:-1]}\\ "
    return f"{_SHORT.get(name, name)}={written}"


def _remember(known: dict[str, None], name: str) -> None:
    if name not in known:
        known[name] = None
        if len(known) > MET_MAX:
            del known[next(iter(known))]


def party(address: str) -> str:
    """The address whose connections count together: of IPv6 a network of /64, which one machine may have."""
    if ":" not in address:
        return address
    found = ipaddress.IPv6Address(address.partition("%")[0])
    return str(found.ipv4_mapped or ipaddress.IPv6Address(int(found) >> HOST_BITS << HOST_BITS))
