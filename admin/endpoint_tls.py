"""Configures TLS of the admin endpoint, towards clients and towards the brokers behind it."""

from __future__ import annotations

from msgspec import Struct

from brokers.security.tls import Tls
from configs.settings import Settings


class EndpointTls(Struct, frozen=True):
    """TLS of both sides. ``brokers`` presents no certificate: else all clients would have the endpoint's identity."""

    clients: Tls
    brokers: Tls


def endpoint_tls(settings: Settings) -> EndpointTls | None:
    """Returns the TLS of the settings; raises :class:`brokers.security.authentication.SecurityUnusable`."""
    admin, security = settings.admin, settings.security
    if not admin.tls:
        return None
    key = admin.key_file if admin.certificate_file is not None else security.key_file
    own = Tls(admin.certificate_file or security.certificate_file, key, security.ca_file)
    return EndpointTls(own, Tls(None, None, security.ca_file, check_host=security.check_host))
