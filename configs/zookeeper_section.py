"""Declares the settings of the connection to ZooKeeper; see :mod:`configs.sections`."""

from __future__ import annotations

from configs.sections import Section
from configs.values import REQUIRED, AbsolutePath, ConnectString, Digest, key


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
