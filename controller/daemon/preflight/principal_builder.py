"""Checks that brokers derive principals as the admin endpoint does: by Kafka's default builder."""

from __future__ import annotations

from typing import Final

from configs.settings import Settings
from controller.daemon.preflight.context import PRINCIPAL_BUILDER, Context, listener_builder
from controller.daemon.preflight.finding import Finding, ok, refuse, warn
from controller.process.wording import named

DEFAULT: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


async def principal_builder(ctx: Context) -> Finding:
    """Checks the principal builder: under another one the endpoint would authorize the wrong principal."""
    name, of_listener = PRINCIPAL_BUILDER, listener_builder(ctx.settings)
    configs = ctx.configs().items()
    own = [f"{b} ({found[name]})" for b, found in configs if found.get(name) not in (None, "", DEFAULT)]
    own += [f"{b} ({of_listener})" for b, found in configs if found.get(of_listener, DEFAULT) != DEFAULT]
    if not own:
        return ok(name, "Kafka's own")
    text = f"broker {named(own)} names clients by a class of its own, which the admin endpoint does not know"
    if _no_name_matters(ctx.settings):
        return warn(name, f"{text}; no permission there depends on the name", "know it before you set super_users")
    return refuse(
        name,
        f"{text}: it would take them for other principals",
        'remove it from the brokers, or set controller.acls = "none" and leave controller.super_users out: then no '
        "authenticated client may change anything through the endpoint",
    )


def _no_name_matters(settings: Settings) -> bool:
    return settings.controller.acls == "none" and not settings.controller.super_users
