"""Runs every check of the preflight and reports all findings at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from controller.daemon.preflight import brokers, cluster, daemons, ensemble, listeners, permissions
from controller.daemon.preflight.context import Context, Finding, PreflightReport, refuse
from metadata_store.errors import ZooKeeperError

Check = Callable[[Context], Awaitable[Finding]]

CHECKS: Final[tuple[Check, ...]] = (
    ensemble.zookeeper_release,
    ensemble.frozen_leader,
    ensemble.stored_format,
    cluster.cluster_id,
    cluster.live_brokers,
    cluster.readable,
    permissions.writable,
    permissions.set_acl,
    permissions.own_znodes,
    permissions.lockable,
    ensemble.controller_epoch,
    ensemble.kraft_migration,
    brokers.answering,
    brokers.releases,
    brokers.request_versions,
    brokers.ibp,
    brokers.authorizer,
    brokers.access_lists,
    brokers.principal_builder,
    *brokers.checks(),
    brokers.isr_wait,
    listeners.listener_names,
    listeners.separate_listener,
    listeners.client_listener,
    listeners.listener_protocol,
    listeners.own_address,
    cluster.own_id,
    cluster.racks,
    cluster.reassignments,
    cluster.reassignment_request,
    cluster.preferred_request,
    cluster.deletions,
    cluster.log_directories,
    daemons.daemons,
    daemons.daemons_agree,
    daemons.rollback_place,
    daemons.exposure,
)


async def preflight(ctx: Context) -> PreflightReport:
    """Runs every check, independent of the others' findings. Writes nothing."""
    return PreflightReport([await _checked(check, ctx) for check in CHECKS])


async def _checked(check: Check, ctx: Context) -> Finding:
    """Runs a check; one that fails to run counts as refused, because its result is unknown."""
    try:
        return await check(ctx)
    except ZooKeeperError as error:
        return refuse(_name(check), f"could not be checked: {error}", "make ZooKeeper answer, then try again")
    except (ValueError, OSError) as error:
        return refuse(_name(check), f"could not be checked: {error}", "repair what it names, then try again")


def _name(check: Check) -> str:
    return check.__name__.replace("_", " ")
