"""Declares the settings of connections: to ZooKeeper, between daemons and brokers, and of operators."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from configs.sections import Section
from configs.values import REQUIRED, AbsolutePath, ConnectString, Digest, OptionalAddress, SocketPath, key


class ZooKeeperSettings(Section):
    """The ensemble that holds the cluster's metadata."""

    connect: ConnectString = key(
        REQUIRED,
        "Servers of the ensemble, followed by the chroot: the same value as zookeeper.connect of the brokers.",
        sample="zk1:2181,zk2:2181,zk3:2181/kafka",
        remedy="write host:port,host:port/chroot as in zookeeper.connect of the brokers",
    )
    session_timeout_ms: int = key(
        18_000,
        "Requested session timeout, in milliseconds. The ensemble may grant another one (2 to 20 of its ticks). A "
        "dead daemon's role is free after this time; the brokers use the same default.",
        ge=2_000,
        le=300_000,
    )
    connect_timeout_ms: int = key(
        18_000,
        "Longest wait for the first connection, in milliseconds.",
        ge=100,
        le=300_000,
    )
    digest_file: AbsolutePath | None = key(
        None,
        "File with one line user:password for ZooKeeper's digest authentication. Without this key the systemd "
        "credential zookeeper-digest applies, if the unit has one.",
        sample="/etc/regent/zookeeper-digest",
        remedy="name a file that holds one line user:password and that the daemon may read",
    )
    digest: Digest | None = key(
        None,
        "The same user:password as a value. Only the environment may set it, never this file.",
        remedy="give user:password",
        environment_only=True,
    )
    sasl_file: AbsolutePath | None = key(
        None,
        "File with one line user:password for a SASL login (DIGEST-MD5), as in the section Client of the brokers' JAAS "
        "file. Without this key the systemd credential zookeeper-sasl applies, if the unit has one.",
        sample="/etc/regent/zookeeper-sasl",
        remedy="name a file that holds one line user:password and that the daemon may read",
    )
    sasl: Digest | None = key(
        None,
        "The same user:password as a value. Only the environment may set it, never this file.",
        remedy="give user:password",
        environment_only=True,
    )
    set_acl: bool = key(
        False,
        "zookeeper.set.acl of the brokers: whether the daemon creates znodes with the ACLs that brokers give theirs, "
        "which close them to others. The daemon then needs the brokers' identity at ZooKeeper (sasl_file, or the same "
        "certificate).",
    )
    tls: bool = key(False, "Whether the ports in connect use TLS (the servers' secureClientPort).")
    ca_file: AbsolutePath | None = key(
        None,
        "For tls: certificates, PEM, of the authorities that sign the servers' certificates. The daemon also trusts "
        "the system's authorities, so keep check_host on.",
        sample="/etc/regent/zookeeper-ca.pem",
        remedy="name a file of PEM certificates",
    )
    certificate_file: AbsolutePath | None = key(
        None,
        "For tls: certificate of the daemon, PEM. Servers request one by default.",
        sample="/etc/regent/zookeeper-certificate.pem",
        remedy="name a file of PEM certificates",
    )
    key_file: AbsolutePath | None = key(
        None,
        "Private key of that certificate, PEM, without a password. Without this key the same file holds both.",
        sample="/etc/regent/zookeeper-key.pem",
        remedy="name a PEM file that only the daemon's user may read",
    )
    check_host: bool = key(True, "Whether a server's certificate must name the host that connect contains.")


class SecuritySettings(Section):
    """TLS and SASL between daemon and brokers, in both directions, as on the brokers' inter-broker listener."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = key(
        "PLAINTEXT",
        "Security protocol of the brokers' inter-broker listener. The daemon's own listener uses the same one, because "
        "brokers connect to their controller with it.",
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = key(
        "SCRAM-SHA-512", "sasl.mechanism.inter.broker.protocol of the brokers."
    )
    sasl_file: AbsolutePath | None = key(
        None,
        "File with one line user:password: the identity of the daemon and its admin endpoint at brokers and other "
        "daemons.",
        sample="/etc/regent/sasl",
        remedy="name a file that holds one line user:password and that the daemon may read",
    )
    sasl_brokers_file: AbsolutePath | None = key(
        None,
        "File with a line user:password for each user under which brokers log in at the daemon's listener. The "
        "daemon's own user is always accepted, because admin endpoints log in with it.",
        sample="/etc/regent/sasl-brokers",
        remedy="name a file with lines user:password that the daemon may read",
    )
    ca_file: AbsolutePath | None = key(
        None,
        "Certificates, PEM, of the authorities that sign trusted peers; without this key the system's authorities. "
        "With SSL alone broker_principals selects the brokers among these peers.",
        sample="/etc/regent/ca.pem",
        remedy="name a file of PEM certificates",
    )
    certificate_file: AbsolutePath | None = key(
        None,
        "Certificate of the daemon, PEM, with the intermediate certificates. The daemon picks up a renewed file.",
        sample="/etc/regent/certificate.pem",
        remedy="name a file of PEM certificates",
    )
    key_file: AbsolutePath | None = key(
        None,
        "Private key of that certificate, PEM, without a password. Without this key certificate_file holds both.",
        sample="/etc/regent/key.pem",
        remedy="name a PEM file that only the daemon's user may read",
    )
    broker_principals: str = key(
        "",
        "With SSL alone: the principals of brokers, as Kafka derives them from certificates, separated by semicolons: "
        "User:CN=broker1,O=x;User:CN=broker2,O=x. Empty: super users, principals with an ACL for ClusterAction, and "
        "those with the subject of a certificate of a registered broker's listener.",
    )
    check_host: bool = key(
        True, "Whether a broker's certificate must name the host to which the daemon connects, as with Kafka's default."
    )
    client_certificates: Literal["required", "none"] = key(
        "required",
        "Whether brokers must present a certificate when they connect to the daemon. Brokers present the one of their "
        "keystore.",
    )


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
