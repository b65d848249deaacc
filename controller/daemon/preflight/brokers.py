"""Checks every live broker: it must answer, and obey a controller of the configured IBP."""

from __future__ import annotations

from typing import Final

from brokers.client import BrokerCallFailed
from brokers.queries import control_endpoint
from brokers.security.authentication import read_user
from brokers.wire.versions import Api, Ibp, UnknownIbp
from controller.daemon.preflight.context import (
    ALLOW_EVERYONE,
    AUTHORIZER,
    CONTROLLER_TIMEOUT,
    IBP,
    SUPER_USERS,
    Context,
    Finding,
    ok,
    refuse,
    warn,
)
from controller.kafka.path.adoption import ibp_is_set
from controller.process.wording import named

ACL_AUTHORIZERS: Final = frozenset(
    {"kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer"}
)
"""Authorizers with their ACLs in ZooKeeper."""
HIDDEN: Final = {SUPER_USERS: "super_users", ALLOW_EVERYONE: "allow_everyone_if_no_acl_found"}
"""Settings of authorizers whose values brokers hide, and ours for each."""
ISR_WAIT_MS_RECOMMENDED: Final = 10_000


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
