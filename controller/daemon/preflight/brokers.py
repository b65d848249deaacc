"""Checks every live broker: it must answer, and obey a controller of the configured IBP.

Each setting of brokers that a controller obeys is compared with the value that will hold.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from brokers.client import BrokerCallFailed
from brokers.queries import control_endpoint
from brokers.security.authentication import read_user
from brokers.wire.versions import Api, Ibp, UnknownIbp
from configs.sections import ControllerSettings
from configs.settings import Settings
from controller.daemon.preflight.context import (
    ALLOW_EVERYONE,
    AUTHORIZER,
    CONTROLLER_TIMEOUT,
    IBP,
    PRINCIPAL_BUILDER,
    SUPER_USERS,
    Context,
    Finding,
    listener_builder,
    ok,
    refuse,
    warn,
)
from controller.kafka.path.adoption import chosen, ibp_is_set
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

ACL_AUTHORIZERS: Final = frozenset(
    {"kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer"}
)
"""Authorizers with their ACLs in ZooKeeper."""
HIDDEN: Final = {SUPER_USERS: "super_users", ALLOW_EVERYONE: "allow_everyone_if_no_acl_found"}
"""Settings of authorizers whose values brokers hide, and ours for each."""
ISR_WAIT_MS_RECOMMENDED: Final = 10_000
DEFAULT: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


async def answering(ctx: Context) -> Finding:
    """Checks that every registered broker answers at its address, and that no other broker answers there."""
    name = "brokers answer"
    unnamed = [
        f"{b} ({', '.join(e.listener for e in broker.endpoints)})"
        for b, broker in ctx.brokers.items()
        if control_endpoint(ctx.settings, broker) is None
    ]
    if unnamed:
        return refuse(
            name,
            f"broker {named(unnamed)} registered no listener {ctx.settings.brokers.inter_broker_listener}",
            "set brokers.inter_broker_listener to inter.broker.listener.name of the brokers",
        )
    silent = [f"{b} ({found})" for b, found in ctx.responses.items() if isinstance(found, BrokerCallFailed)]
    if silent:
        return refuse(
            name,
            f"broker {named(silent)}",
            "start it, or open the way from this machine to its inter-broker listener",
        )
    strange = [f"{b} ({a.configs})" for b, a in ctx.responding().items() if isinstance(a.configs, BrokerCallFailed)]
    if strange:
        return refuse(
            name,
            f"broker {named(strange)} does not send its settings",
            "fix advertised.listeners if another broker answers there; with an authorizer, allow "
            f"{own_principal(ctx)} DescribeConfigs and ClusterAction on the cluster",
        )
    return ok(name, f"all {len(ctx.brokers)}")


async def releases(ctx: Context) -> Finding:
    """Refuses brokers before 3.0: they look the controller up in ``/brokers/ids``, where no daemon is."""
    name = "broker releases"
    old = [b for b, a in ctx.responding().items() if Api.ALLOCATE_PRODUCER_IDS not in a.api_versions]
    if old:
        return refuse(
            name,
            f"broker {named(old)} is older than Kafka 3.0: it would not find a controller that is not a broker",
            "upgrade it; regent is tested with 3.9",
        )
    return ok(name, "Kafka 3.0 or later")


async def request_versions(ctx: Context) -> Finding:
    """Checks that every broker accepts the request versions of the configured IBP."""
    name = "request versions"
    wanted = {
        Api.LEADER_AND_ISR: ctx.ibp.leader_and_isr_version,
        Api.UPDATE_METADATA: ctx.ibp.update_metadata_version,
        Api.STOP_REPLICA: ctx.ibp.stop_replica_version,
    }
    refused = [
        f"{b} ({api.name} v{version})"
        for b, facts in ctx.responding().items()
        for api, version in wanted.items()
        if not _accepts(facts.api_versions.get(api), version)
    ]
    if refused:
        return refuse(
            name,
            f"broker {named(refused)} does not accept the requests of a controller at {ctx.ibp}",
            "lower controller.ibp to the brokers' inter.broker.protocol.version, or upgrade the broker; a KRaft "
            "broker accepts none of them",
        )
    return ok(name, ", ".join(f"{api.name} v{version}" for api, version in wanted.items()))


def _accepts(offered: tuple[int, int] | None, version: int) -> bool:
    return offered is not None and offered[0] <= version <= offered[1]


async def ibp(ctx: Context) -> Finding:
    """Compares the setting, which requests follow, with every broker's own."""
    name, ours = "controller.ibp", ctx.ibp
    texts = {b: configs.get(IBP) for b, configs in ctx.configs().items()}
    theirs = {b: _parsed(text) for b, text in texts.items()}
    unknown = [f"{b} ({texts[b]})" for b, found in theirs.items() if found is None]
    if unknown:
        return refuse(
            name,
            f"broker {named(unknown)} has an {IBP} that regent does not know",
            "regent speaks 2.4-IV1 to 3.9-IV0: upgrade the broker's setting, or regent",
        )
    known = {b: found for b, found in theirs.items() if found is not None}
    lower = [f"{b} ({found})" for b, found in known.items() if found < ours]
    if lower:
        return warn(
            name,
            f"{ours}, and broker {named(lower)} is lower: fields of {ours} are lost on it",
            f"set controller.ibp to the lowest {IBP}; raise it after the last broker",
        )
    higher = [f"{b} ({found})" for b, found in known.items() if found > ours]
    if higher:
        return warn(
            name,
            f"{ours}, and broker {named(higher)} is higher: requests stay at {ours}",
            "raise controller.ibp once every broker has the higher one"
            if ibp_is_set(ctx.settings.controller)
            else f"give every broker the same {IBP}; the lowest one is adopted at each take-over",
        )
    return ok(name, f"{ours} ({'set by us' if ibp_is_set(ctx.settings.controller) else 'adopted'}) on every broker")


def _parsed(text: str | None) -> Ibp | None:
    try:
        return Ibp.parse(text or "")
    except UnknownIbp:
        return None


async def authorizer(ctx: Context) -> Finding:
    """Checks that authorizers permit the daemon ClusterAction; on PLAINTEXT the daemon is the anonymous user."""
    name = "authorizer"
    with_one = {b: found for b, found in ctx.configs().items() if found.get(AUTHORIZER)}
    if not with_one:
        return ok(name, "none")
    us = own_principal(ctx)
    closed = [b for b, found in with_one.items() if us not in (found.get(SUPER_USERS) or "").split(";")]
    if closed:
        return warn(
            name,
            f"broker {named(closed)} has one and {us} is not in its super.users",
            f"make sure that {us} may do ClusterAction on the cluster, or add it to super.users: without it "
            "no broker obeys the daemon",
        )
    return ok(name, f"{us} is a super user")


async def access_lists(ctx: Context) -> Finding:
    """Checks that the admin endpoint can read the brokers' ACLs: they must be in ZooKeeper."""
    name, ours = "access control lists", ctx.settings.controller
    classes = {b: found.get(AUTHORIZER) for b, found in ctx.configs().items()}
    others = [f"{b} ({found})" for b, found in classes.items() if found and found not in ACL_AUTHORIZERS]
    if others and ours.acls == "zookeeper":
        return refuse(
            name,
            f"the authorizer of broker {named(others)} does not keep its lists in ZooKeeper, and controller.acls is "
            "zookeeper: principals that it denies would be allowed",
            'set controller.acls = "none", and name the users of the admin endpoint in controller.super_users',
        )
    for theirs, key in HIDDEN.items():
        hiding = [b for b, found in ctx.configs().items() if classes[b] and theirs in found]
        if hiding and key not in ours.model_fields_set:
            return warn(
                name,
                f"broker {named(hiding)} has {theirs}, and controller.{key} is not set: through the admin endpoint it "
                "does not hold",
                f"give controller.{key} the brokers' value, which they hide",
            )
    return ok(name, ours.acls if any(classes.values()) else "not used")


def own_principal(ctx: Context) -> str:
    """Returns the daemon's principal at brokers, by Kafka's default rules. Raises OSError for an unreadable file."""
    security = ctx.settings.security
    if security.protocol.startswith("SASL") and security.sasl_file is not None:
        return f"User:{read_user(security.sasl_file)[0]}"
    if security.protocol == "SSL" and security.certificate_file is not None:
        return f"the subject of {security.certificate_file}"
    return "User:ANONYMOUS"


async def isr_wait(ctx: Context) -> Finding:
    """Checks how long ISR changes wait on a daemon that froze with its connections open."""
    name = "controller timeout"
    waits = {b: int(found.get(CONTROLLER_TIMEOUT) or 0) for b, found in ctx.configs().items()}
    long = {b: ms for b, ms in waits.items() if ms > ISR_WAIT_MS_RECOMMENDED}
    if long:
        return warn(
            name,
            f"{CONTROLLER_TIMEOUT} is {max(long.values())} ms on broker {named(long)}: while a frozen daemon is "
            "replaced, ISR changes wait that long",
            f"set {CONTROLLER_TIMEOUT} to 5000 to {ISR_WAIT_MS_RECOMMENDED}",
        )
    return ok(name, f"at most {max(waits.values(), default=0)} ms")


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
    """Reports the policy that the daemon asks about new topics; warns where this machine lacks its program."""
    name, has = found.setting.name, found.strictest or "no class"
    if words[0].startswith(("http://", "https://")):
        return ok(name, f"{words[0]} is asked for each topic (brokers have {has})")
    if shutil.which(words[0]) is None:
        why = f"controller.create_topic_policy names {words[0]}, which cannot be run here: no topic will be created"
        return warn(name, why, "install it for the daemon's user, or correct the key")
    is_jvm = words[0] == "java"
    asked = f"{has} in a JVM" if is_jvm else " ".join(words)
    unit = "; under systemd its unit needs MemoryDenyWriteExecute=no for that" if is_jvm else ""
    return ok(name, f"{asked} is asked for each topic (brokers have {has}){unit}")


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
