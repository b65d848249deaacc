"""The section of the settings that says where the cluster's metadata is."""

from __future__ import annotations

from configs.sections import Section
from configs.values import REQUIRED, AbsolutePath, ConnectString, Digest, key


class ZooKeeperSettings(Section):
    """The ensemble that holds the cluster's metadata."""

    connect: ConnectString = key(
        REQUIRED,
        "Servers of the ensemble and, after them, the chroot: the same value as zookeeper.connect of the brokers.",
        sample="zk1:2181,zk2:2181,zk3:2181/kafka",
        remedy="write host:port,host:port/chroot as in zookeeper.connect of the brokers",
    )
    session_timeout_ms: int = key(
        18_000,
        "Session timeout asked for, in milliseconds. The ensemble may answer another one (2 to 20 of its ticks). A "
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
        "credential zookeeper-digest is taken if the unit has one.",
        sample="/etc/regent/zookeeper-digest",
        remedy="name a file that holds one line user:password and that the daemon may read",
    )
    digest: Digest | None = key(
        None,
        "The same user:password itself. Never in this file, only in the environment.",
        remedy="give user:password",
        environment_only=True,
    )
    sasl_file: AbsolutePath | None = key(
        None,
        "File with one line user:password for a login by SASL (DIGEST-MD5), as brokers have it in their JAAS file's "
        "section Client. Without this key the systemd credential zookeeper-sasl is taken if the unit has one.",
        sample="/etc/regent/zookeeper-sasl",
        remedy="name a file that holds one line user:password and that the daemon may read",
    )
    sasl: Digest | None = key(
        None,
        "The same user:password itself. Never in this file, only in the environment.",
        remedy="give user:password",
        environment_only=True,
    )
    set_acl: bool = key(
        False,
        "zookeeper.set.acl of the brokers: whether what the daemon creates is closed to others, with the lists that "
        "brokers give it. Then the daemon must be whom brokers are at ZooKeeper (sasl_file, or the same certificate).",
    )
    tls: bool = key(False, "Whether the servers of connect speak TLS there (their secureClientPort).")
    ca_file: AbsolutePath | None = key(
        None,
        "For tls: certificates, PEM, of the authorities that have signed the servers' ones. The system's authorities "
        "are trusted besides: keep check_host on.",
        sample="/etc/regent/zookeeper-ca.pem",
        remedy="name a file of PEM certificates",
    )
    certificate_file: AbsolutePath | None = key(
        None,
        "For tls: the certificate, PEM, that is shown to servers which ask for one, as they do by default.",
        sample="/etc/regent/zookeeper-certificate.pem",
        remedy="name a file of PEM certificates",
    )
    key_file: AbsolutePath | None = key(
        None,
        "The key of that certificate, PEM, without a password. Without this key it stands in the same file.",
        sample="/etc/regent/zookeeper-key.pem",
        remedy="name a PEM file that the daemon's user alone may read",
    )
    check_host: bool = key(True, "Whether a server's certificate must name the host that connect names.")
