"""Checks that regent's znodes get the same ACLs as the brokers' znodes (``zookeeper.set.acl``), and are closed."""

from __future__ import annotations

from configs.zookeeper_section import ZooKeeperSettings
from controller.daemon.preflight.context import SET_ACL, Context
from controller.daemon.preflight.finding import Finding, ok, refuse, warn
from controller.process.wording import named
from controller.role.own_acls import closes
from metadata_store import paths
from metadata_store.acl import ALL, Acl, digest_id
from metadata_store.closing import close_tree
from metadata_store.own import ROOT

NAME = "access control of znodes"
LOOKED_AT_MAX = 5_000
"""Znodes of regent whose ACLs are read: records and regions may be many."""


async def set_acl(ctx: Context) -> Finding:
    """Compares the brokers' setting with ours, and checks that the brokers could write our znodes."""
    closing, opening = ctx.with_config(SET_ACL, "true"), ctx.with_config(SET_ACL, "false")
    if closing and opening:
        return refuse(
            NAME,
            f"{SET_ACL} is true on broker {named(closing)} and false on broker {named(opening)}",
            "give all brokers one value, restart them one by one, and set zookeeper.set_acl to the same",
        )
    if closing and not ctx.zk.set_acl:
        return refuse(
            NAME,
            f"{SET_ACL}=true on broker {named(closing)}, and zookeeper.set_acl is false: regent's znodes would be "
            "open to any client, keys of SCRAM users included",
            "set zookeeper.set_acl = true, and zookeeper.sasl_file to the brokers' user",
        )
    if not ctx.zk.set_acl:
        return ok(NAME, "open to any client, as on the brokers")
    if opening:
        return refuse(
            NAME,
            f"zookeeper.set_acl is true, and {SET_ACL}=false on broker {named(opening)}: they could not write "
            "regent's znodes",
            f"set zookeeper.set_acl = false, or {SET_ACL}=true on the brokers",
        )
    return await _same_identity(ctx)


async def own_znodes(ctx: Context) -> Finding:
    """Looks for znodes below ``/regent`` that any client may write, although they are closed by the settings."""
    name = "regent's znodes"
    if not closes(ctx.zk):
        return ok(name, "open to any client, as those of the brokers are")
    found = await close_tree(ctx.zk, ROOT, only_look=True, looked_at_max=LOOKED_AT_MAX)
    if found.left:
        return warn(
            name,
            f"any client may write {named(found.left)}: another release made them, or the cluster was open then",
            "start a daemon of this release: it closes them; one that is named again has an ACL of another client, and "
            "needs ZooKeeper's super user",
        )
    if found.others:
        return warn(name, found.others, "give the commands where none of that is meant")
    return ok(name, f"{found.looked_at} are closed to other clients")


async def _same_identity(ctx: Context) -> Finding:
    """Checks that one identity owns the brokers' znodes and ours, so that brokers can take the role back."""
    acls, _ = await ctx.zk.get_acls(paths.TOPICS)
    owners = [acl for acl in acls if acl.perms == ALL]
    if any(acl.scheme == "world" for acl in owners):
        return refuse(
            NAME,
            f"zookeeper.set_acl is true, and {paths.TOPICS} is open to any client: it was created before the brokers "
            f"had {SET_ACL}=true",
            "close the existing znodes with Kafka's zookeeper-security-migration.sh --zookeeper.acl=secure",
        )
    others = [f"{acl.scheme}:{acl.id}" for acl in owners if not _is_ours(ctx.settings.zookeeper, acl)]
    if others:
        return refuse(
            NAME,
            f"{paths.TOPICS} belongs to {', '.join(others)}, which is not this daemon's identity: brokers could not "
            "write regent's znodes",
            "set zookeeper.sasl_file to the user of the section Client in the brokers' JAAS file, or "
            "zookeeper.certificate_file to a certificate with the brokers' subject",
        )
    return ok(NAME, f"closed, as on the brokers; they belong to {', '.join(f'{a.scheme}:{a.id}' for a in owners)}")


def _is_ours(zookeeper: ZooKeeperSettings, acl: Acl) -> bool:
    """Returns whether an ACL names our identity. The check of permissions stands in for a certificate's subject."""
    match acl.scheme:
        case "sasl" if zookeeper.sasl is not None:
            return acl.id == zookeeper.sasl.get_secret_value().partition(":")[0]
        case "digest" if zookeeper.digest is not None:
            user, _, password = zookeeper.digest.get_secret_value().partition(":")
            return acl.id == digest_id(user, password)
        case "x509":
            return zookeeper.certificate_file is not None
    return False
