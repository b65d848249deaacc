"""Declares the settings of TLS and SASL between daemons and brokers; see :mod:`configs.sections`."""

from __future__ import annotations

from typing import Literal

from configs.sections import Section
from configs.values import AbsolutePath, key


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
