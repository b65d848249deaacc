"""Checks the brokers' settings that a controller obeys, with the value that will hold, and how brokers name clients."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from configs.sections import ControllerSettings
from configs.settings import Settings
from controller.daemon.preflight.context import PRINCIPAL_BUILDER, Context, Finding, listener_builder, ok, refuse, warn
from controller.kafka.path.adoption import chosen
from controller.process.wording import named
from state_machines.admin_rules.broker_settings import (
    POLICY,
    SETTINGS,
    InForce,
    Setting,
    advice,
    in_force,
    shown,
    source,
)


def checks() -> list[Callable[[Context], Awaitable[Finding]]]:
    """Returns one check for each setting."""
    return [_check(setting) for setting in SETTINGS]


def _check(setting: Setting) -> Callable[[Context], Awaitable[Finding]]:
    async def check(ctx: Context) -> Finding:
        found = in_force(chosen(ctx.settings.controller), ctx.configs())[setting.key]
        return _policy(found, ctx.settings.controller) if setting.key == POLICY else _compared(found)

    check.__name__ = setting.name
    return check


def _compared(found: InForce) -> Finding:
    """Refuses a value of ours that removes a protection of the brokers; warns of other differences."""
    text, differing = f"{shown(found.value)} ({source(found)})", advice(found)
    if differing is None:
        return ok(found.setting.name, text)
    difference, _, remedy = differing.partition(": ")
    if found.weaker:
        return refuse(found.setting.name, f"{text} takes away text the brokers guard: {difference}", remedy)
    return warn(found.setting.name, f"{text}, and {difference}", remedy)


def _policy(found: InForce, settings: ControllerSettings) -> Finding:
    """Reports the policy on new topics: that of the settings, else a Java class, which only a broker can call."""
    name = found.setting.name
    if settings.create_topic_policy is not None:
        return _asked(found, settings.create_topic_policy)
    if not found.strictest:
        return ok(name, "none")
    held = [broker for broker, value in found.reported.items() if value]
    has = f"{found.strictest} on broker {','.join(map(str, held))}"
    if found.chosen:
        return warn(
            name,
            f"{has}, and controller.ignore_create_topic_policy is true: admin clients create topics without it",
            "leave the key out to refuse them instead",
        )
    return warn(
        name,
        f"{has}, which the daemon cannot call: admin clients create no topics (POLICY_VIOLATION)",
        "set controller.create_topic_policy to have it or another policy asked, or "
        "controller.ignore_create_topic_policy = true where topics may be created without it",
    )


def _asked(found: InForce, words: Sequence[str]) -> Finding:
    """Reports the policy that is asked, and a program that this machine does not have."""
    name, has = found.setting.name, found.strictest or "no class"
    if words[0].startswith(("http://", "https://")):
        return ok(name, f"{words[0]} is asked for each topic (brokers have {has})")
    if shutil.which(words[0]) is None:
        why = f"controller.create_topic_policy names {words[0]}, which cannot be run here: no topic will be created"
        return warn(name, why, "install it for the daemon's user, or correct the key")
    asked = f"{has} in a JVM" if words[0] == "java" else " ".join(words)
    return ok(name, f"{asked} is asked for each topic (brokers have {has})")


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
