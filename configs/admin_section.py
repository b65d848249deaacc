"""The settings of the admin endpoint; see :mod:`configs.sections`."""

from __future__ import annotations

from configs.sections import Section
from configs.values import AbsolutePath, Digest, Host, ListenerName, OptionalAdvertisedHost, key


class AdminSettings(Section):
    """regent admin-endpoint: a process of its own where admin clients and Kafka's tools find their controller."""

    host: Host = key(
        "0.0.0.0",  # noqa: S104  # clients are on other machines
        "Address to listen on.",
        remedy='give an address of this machine, or "0.0.0.0" for all of them',
    )
    port: int = key(9096, "Port to listen on; 0 takes a free one.", ge=0, le=65_535)
    advertised_host: OptionalAdvertisedHost = key(
        "",
        "Name or address under which clients reach it; empty is listener.advertised_host.",
        remedy="give the name or address of this machine as clients see it",
    )
    advertised_port: int = key(0, "Port under which clients reach it; 0 is the port it listens on.", ge=0, le=65_535)
    client_listener: ListenerName = key(
        "CLIENT",
        "Listener of the brokers that clients use. What is not for the controller is passed on to it.",
        remedy="give the name of a listener of the brokers that is not for brokers alone",
    )
    tls: bool = key(
        False,
        "Whether that listener has TLS (SSL or SASL_SSL): then clients speak TLS to the endpoint, too. Who signed the "
        "brokers' certificates is security.ca_file. Clients show no certificates.",
    )
    certificate_file: AbsolutePath | None = key(
        None,
        "The endpoint's certificate, PEM, for admin.tls. Without this key it is security.certificate_file.",
        sample="/etc/regent/admin-certificate.pem",
        remedy="name a file of PEM certificates",
    )
    key_file: AbsolutePath | None = key(
        None,
        "The key of admin.certificate_file, PEM, without a password. Without this key it stands in that file.",
        sample="/etc/regent/admin-key.pem",
        remedy="name a PEM file that the daemon's user alone may read",
    )
    beside_daemon: bool = key(
        True,
        "regent run starts it as a process beside the daemon, and starts it again when it ends. false: start regent "
        "admin-endpoint yourself, or have none.",
    )
    awaited: bool = key(
        False,
        "Where something else starts the endpoint, as its systemd unit does: whether the daemon queues for the role "
        "once the endpoint has announced itself, as it does for one that it starts. It waits for 5 seconds at most.",
    )
    listed: bool = key(
        True,
        "While the daemon with these settings holds the role, brokers show it to their clients at this endpoint, so "
        "that tools and applications find their controller at any broker.",
    )
    secret_file: AbsolutePath | None = key(
        None,
        "File with the secret that daemons and admin endpoints share; whoever starts first makes it. Without this key "
        "it is admin-secret in state.directory. Daemons on several machines need a copy of the same file.",
        sample="/var/lib/regent/admin-secret",
        remedy="give an absolute path that the daemon's user alone may read",
    )
    zookeeper_digest_file: AbsolutePath | None = key(
        None,
        "File with one line user:password: who the endpoint is at ZooKeeper, by the digest scheme, where it is to be "
        "somebody else than the daemon. With zookeeper.set_acl it then may read and announce itself, no more. Without "
        "this key the systemd credential admin-zookeeper-digest is taken if the unit has one.",
        sample="/etc/regent/admin-zookeeper-digest",
        remedy="name a file that holds one line user:password and that daemon and endpoint may read",
    )
    zookeeper_digest: Digest | None = key(
        None,
        "The same user:password itself. Never in this file, only in the environment.",
        remedy="give user:password",
        environment_only=True,
    )
    zookeeper_sasl_file: AbsolutePath | None = key(
        None,
        "The same for a login by SASL (DIGEST-MD5), where ZooKeeper wants one; the systemd credential is "
        "admin-zookeeper-sasl.",
        sample="/etc/regent/admin-zookeeper-sasl",
        remedy="name a file that holds one line user:password and that daemon and endpoint may read",
    )
    zookeeper_sasl: Digest | None = key(
        None,
        "The same user:password itself. Never in this file, only in the environment.",
        remedy="give user:password",
        environment_only=True,
    )
    frame_bytes_max: int = key(
        16_777_216,
        "Largest request, in bytes; the connection of a larger one is closed.",
        ge=65_536,
        le=104_857_600,
    )
    buffered_bytes_max: int = key(
        134_217_728,
        "Most bytes of all requests together that are received or worked on; a connection that exceeds it is closed.",
        ge=1_048_576,
        le=17_179_869_184,
    )
    connections_max: int = key(
        1_000,
        "Most connections at a time, TLS handshakes under way included. Where all are in use, the oldest that has "
        "neither authenticated nor asked for anything gives way to a new one; where all have, the new one is closed. "
        "Each may hold about 300 KB of answers.",
        ge=10,
        le=100_000,
    )
    connections_per_address_max: int = key(
        500,
        "As admin.connections_max, for those of one address (of IPv6, one network of /64).",
        ge=10,
        le=100_000,
    )
    frame_timeout_ms: int = key(
        10_000,
        "A request that has begun to arrive must be complete, a client authenticated or its first real request there, "
        "and a piece of an answer taken, within this time, in milliseconds.",
        ge=100,
        le=600_000,
    )
    idle_timeout_ms: int = key(
        600_000,
        "A connection without any request for this time is closed, in milliseconds.",
        ge=1_000,
        le=86_400_000,
    )
