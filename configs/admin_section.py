"""Declares the settings of the admin endpoint; see :mod:`configs.sections`."""

from __future__ import annotations

from configs.sections import Section
from configs.values import AbsolutePath, Digest, Host, ListenerName, OptionalAdvertisedHost, key


class AdminSettings(Section):
    """regent admin-endpoint: a separate process that serves admin clients and Kafka's tools as their controller."""

    host: Host = key(
        "0.0.0.0",  # noqa: S104  # clients are on other machines
        "Address to listen on.",
        remedy='give an address of this machine, or "0.0.0.0" for all of them',
    )
    port: int = key(9096, "Port to listen on; 0 takes a free one.", ge=0, le=65_535)
    advertised_host: OptionalAdvertisedHost = key(
        "",
        "Name or address under which clients reach it; empty is listener.advertised_host.",
        remedy="give the name or address under which clients reach this machine",
    )
    advertised_port: int = key(0, "Port under which clients reach it; 0 is the port it listens on.", ge=0, le=65_535)
    client_listener: ListenerName = key(
        "CLIENT",
        "Listener of the brokers that clients use. The endpoint forwards requests to it that are not for the "
        "controller.",
        remedy="give the name of a broker listener that clients use",
    )
    tls: bool = key(
        False,
        "Whether that listener uses TLS (SSL or SASL_SSL); clients then use TLS with the endpoint, too. "
        "security.ca_file names the authorities of the brokers' certificates. Clients present no certificates.",
    )
    certificate_file: AbsolutePath | None = key(
        None,
        "Certificate of the endpoint, PEM, for admin.tls. Without this key the endpoint uses "
        "security.certificate_file.",
        sample="/etc/regent/admin-certificate.pem",
        remedy="name a file of PEM certificates",
    )
    key_file: AbsolutePath | None = key(
        None,
        "Private key of admin.certificate_file, PEM, without a password. Without this key that file holds both.",
        sample="/etc/regent/admin-key.pem",
        remedy="name a PEM file that only the daemon's user may read",
    )
    beside_daemon: bool = key(
        True,
        "Whether regent run starts the endpoint as a child process, and restarts it when it ends. With false the "
        "operator starts regent admin-endpoint, or runs none.",
    )
    awaited: bool = key(
        False,
        "For an endpoint that the daemon does not start itself, such as the one of the systemd unit. With true the "
        "daemon waits up to 5 seconds for the endpoint's announcement before it queues for the role.",
    )
    listed: bool = key(
        True,
        "Whether brokers list this endpoint in their metadata while the daemon with these settings holds the role. "
        "Tools and applications then find their controller through any broker.",
    )
    secret_file: AbsolutePath | None = key(
        None,
        "File with the secret that daemons and admin endpoints share; the first process that starts creates it. "
        "Without this key it is admin-secret in state.directory. Daemons on several machines need a copy of one file.",
        sample="/var/lib/regent/admin-secret",
        remedy="give an absolute path that only the daemon's user may read",
    )
    zookeeper_digest_file: AbsolutePath | None = key(
        None,
        "File with one line user:password: the endpoint's own identity at ZooKeeper, by the digest scheme. With "
        "zookeeper.set_acl that identity may only read and announce the endpoint. Without this key the systemd "
        "credential admin-zookeeper-digest applies, if the unit has one.",
        sample="/etc/regent/admin-zookeeper-digest",
        remedy="name a file that holds one line user:password and that daemon and endpoint may read",
    )
    zookeeper_digest: Digest | None = key(
        None,
        "The same user:password as a value. Only the environment may set it, never this file.",
        remedy="give user:password",
        environment_only=True,
    )
    zookeeper_sasl_file: AbsolutePath | None = key(
        None,
        "The same for a SASL login (DIGEST-MD5), where ZooKeeper requires one. The systemd credential is "
        "admin-zookeeper-sasl.",
        sample="/etc/regent/admin-zookeeper-sasl",
        remedy="name a file that holds one line user:password and that daemon and endpoint may read",
    )
    zookeeper_sasl: Digest | None = key(
        None,
        "The same user:password as a value. Only the environment may set it, never this file.",
        remedy="give user:password",
        environment_only=True,
    )
    frame_bytes_max: int = key(
        16_777_216,
        "Largest request, in bytes. The endpoint closes the connection of a larger one.",
        ge=65_536,
        le=104_857_600,
    )
    buffered_bytes_max: int = key(
        134_217_728,
        "Most bytes of all requests together that are being received or processed. The endpoint closes a connection "
        "that exceeds the limit.",
        ge=1_048_576,
        le=17_179_869_184,
    )
    connections_max: int = key(
        1_000,
        "Most connections at a time, TLS handshakes in progress included. At the limit a new connection replaces the "
        "oldest one that has neither authenticated nor sent a request. Without such a one the endpoint closes the new "
        "connection. Each connection may hold about 300 KB of responses.",
        ge=10,
        le=100_000,
    )
    connections_per_address_max: int = key(
        500,
        "As admin.connections_max, for the connections of one address (for IPv6, of one /64 network).",
        ge=10,
        le=100_000,
    )
    frame_timeout_ms: int = key(
        10_000,
        "Longest time, in milliseconds, for a partly received request to complete. The same limit holds until a client "
        "authenticates or sends its first real request, and until it reads a part of a response.",
        ge=100,
        le=600_000,
    )
    idle_timeout_ms: int = key(
        600_000,
        "The endpoint closes a connection without any request for this time, in milliseconds.",
        ge=1_000,
        le=86_400_000,
    )
