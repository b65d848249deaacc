"""Whether brokers name their clients as the admin endpoint does: from the exchange, by Kafka's default builder."""

from __future__ import annotations

from typing import Final

from configs.settings import Settings
from controller.handover.preflight.context import PRINCIPAL_BUILDER, Context, listener_builder
from controller.handover.preflight.finding import Finding, ok, refuse, warn
from controller.process.wording import named

DEFAULT: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


async def principal_builder(ctx: Context) -> Finding:
    """With another one somebody could be judged, and counted, as who they are not."""
    name, of_listener = PRINCIPAL_BUILDER, listener_builder(ctx.settings)
    told = ctx.configs().items()
    own = [f"{b} ({found[name]})" for b, found in told if found.get(name) not in (None, "", DEFAULT)]
    own += [f"{b} ({of_listener})" for b, found in told if found.get(of_listener, DEFAULT) != DEFAULT]
    if not own:
        return ok(name, "Kafka's own")
    what = f"broker {named(own)} names clients by a class of its own, which the admin endpoint does not know"
    if _nobody_is_judged(ctx.settings):
        return warn(name, f"{what}; nobody changes anything there by name", "know it before you set super_users")
    return refuse(
        name,
        f"{what}: it would take them for others",
        'remove it from the brokers, or set controller.acls = "none" and leave controller.super_users out: then nobody '
        "who authenticates may change anything through the endpoint",
    )


def _nobody_is_judged(settings: Settings) -> bool:
    return settings.controller.acls == "none" and not settings.controller.super_users
