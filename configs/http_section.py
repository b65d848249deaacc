"""Declares the settings of the operators' interface; see :mod:`configs.sections`."""

from __future__ import annotations

from pathlib import Path

from configs.sections import Section
from configs.values import AbsolutePath, OptionalAddress, SocketPath, key


class HttpSettings(Section):
    """The operators' interface: the regent command, metrics, health."""

    socket: SocketPath = key(
        Path("/run/regent/regent.sock"),
        "Unix socket. Members of its group may read; only the daemon's own user and root may change anything.",
        remedy="give an absolute path of at most 96 bytes, such as /run/regent/regent.sock",
    )
    address: OptionalAddress = key(
        "",
        "Address host:port that also serves /metrics, /liveness, /readiness and read-only /v1 over TCP. Empty serves "
        "them on the socket alone; port 0 takes a free port. Addresses other than loopback need TLS and credentials.",
        remedy="give host:port, for example 127.0.0.1:9097, 0.0.0.0:9097 or [::1]:9097",
    )
    certificate_file: AbsolutePath | None = key(
        None,
        "Certificate, PEM, of http.address, which turns TLS on. The daemon picks up a renewed file.",
        sample="/etc/regent/http-certificate.pem",
        remedy="name a file of PEM certificates",
    )
    key_file: AbsolutePath | None = key(
        None,
        "Private key of that certificate, PEM, without a password. Without this key the same file holds both.",
        sample="/etc/regent/http-key.pem",
        remedy="name a PEM file that only the daemon's user may read",
    )
    token_file: AbsolutePath | None = key(
        None,
        "File with one line, the token that clients of http.address send as Authorization: Bearer. The daemon picks up "
        "a changed file. Probes without the token get a short response.",
        sample="/etc/regent/http-token",
        remedy="name a file that others may neither read nor change and that holds one line of 16 to 1000 characters",
    )
    client_ca_file: AbsolutePath | None = key(
        None,
        "Certificates, PEM, of the authorities that sign the certificates of clients of http.address. A client with "
        "such a certificate needs no token.",
        sample="/etc/regent/http-clients-ca.pem",
        remedy="name a file of PEM certificates",
    )
    stop_timeout_ms: int = key(
        2_000,
        "At a stop: longest wait for responses in progress, in milliseconds.",
        ge=0,
        le=60_000,
    )
