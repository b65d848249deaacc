"""The settings of TLS and SASL between daemons and brokers; see :mod:`configs.sections`."""

from __future__ import annotations

from typing import Literal

from configs.sections import Section
from configs.values import AbsolutePath, key


class SecuritySettings(Section):
    """TLS and SASL between daemon and brokers, in both directions, as on the brokers' inter-broker listener."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = key(
        "PLAINTEXT",
        "Security protocol of the brokers' inter-broker listener. The daemon's own listener has the same, because "
        "brokers speak it to their controller.",
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = key(
        "SCRAM-SHA-512", "sasl.mechanism.inter.broker.protocol of the brokers."
    )
    sasl_file: AbsolutePath | None = key(
        None,
        "File with one line user:password: who the daemon, and its admin endpoint, is at brokers and other daemons.",
        sample="/etc/regent/sasl",
        remedy="name a file that holds one line user:password and that the daemon may read",
    )
    sasl_brokers_file: AbsolutePath | None = key(
        None,
        "File with a line user:password for each user that brokers are at the daemon's listener, besides the daemon's "
        "own, which is always let in: admin endpoints come as it.",
        sample="/etc/regent/sasl-brokers",
        remedy="name a file with lines user:password that the daemon may read",
    )
    ca_file: AbsolutePath | None = key(
        None,
        "Certificates, PEM, of the authorities whose signature makes another side trusted. Without it those of the "
        "system. With SSL alone broker_principals says who of those is a broker.",
        sample="/etc/regent/ca.pem",
        remedy="name a file of PEM certificates",
    )
    certificate_file: AbsolutePath | None = key(
        None,
        "The daemon's own certificate, PEM, and those between it and the authority. A renewed file is noticed.",
        sample="/etc/regent/certificate.pem",
        remedy="name a file of PEM certificates",
    )
    key_file: AbsolutePath | None = key(
        None,
        "The key of that certificate, PEM, without a password. Without this key it stands in certificate_file.",
        sample="/etc/regent/key.pem",
        remedy="name a PEM file that the daemon's user alone may read",
    )
    broker_principals: str = key(
        "",
        "With SSL alone: who brokers are, as Kafka names them by their certificates, with semicolons between them: "
        "User:CN=broker1,O=x;User:CN=broker2,O=x. Empty: whoever has the subject of a certificate that the daemon "
        "found at a registered broker's listener, super users, and who is allowed ClusterAction.",
    )
    check_host: bool = key(
        True, "Whether a broker's certificate must name the host at which it is reached, as with Kafka's default."
    )
    client_certificates: Literal["required", "none"] = key(
        "required",
        "Whether brokers must show a certificate when they connect to the daemon. Brokers use their keystore for that.",
    )
