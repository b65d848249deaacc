"""Checks listeners: names, protocols, a separate one for clients, reachable addresses."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Final

from brokers.queries import control_endpoint
from controller.daemon.preflight.cluster import of_these_settings
from controller.daemon.preflight.context import (
    CONTROL_PLANE_LISTENER,
    INTER_BROKER_LISTENER,
    INTER_BROKER_PROTOCOL,
    Context,
    Finding,
    ok,
    refuse,
    warn,
)
from controller.process.wording import named
from metadata_store.codecs.cluster import PROTOCOLS
from state_machines.model.types import Broker

PROTOCOL_NAMES: Final = {number: name for name, number in PROTOCOLS.items()}
OWN_RESPONSE_S_MAX: Final = 5.0


async def listener_names(ctx: Context) -> Finding:
    """Checks that the settings name the listeners that the brokers use among themselves."""
    name, ours = "listener names", ctx.settings.brokers
    wrong = []
    for broker, found in ctx.configs().items():
        inter = (found.get(INTER_BROKER_LISTENER) or found.get(INTER_BROKER_PROTOCOL) or "PLAINTEXT").upper()
        control = (found.get(CONTROL_PLANE_LISTENER) or "").upper()
        if inter != ours.inter_broker_listener:
            wrong.append(f"{broker} ({INTER_BROKER_LISTENER}={inter})")
        elif control != ours.control_plane_listener:
            wrong.append(f"{broker} ({CONTROL_PLANE_LISTENER}={control or 'unset'})")
    if wrong:
        return refuse(
            name,
            f"brokers.inter_broker_listener is {ours.inter_broker_listener}, brokers.control_plane_listener is "
            f"{ours.control_plane_listener or 'empty'}; different is broker {named(wrong)}",
            "set both to the brokers' values: brokers look the daemon up under these names",
        )
    return ok(name, ours.inter_broker_listener)


async def separate_listener(ctx: Context) -> Finding:
    """Checks the listener that lists the daemon: on one shared with clients it must answer clients, too.

    The admin endpoint does: it forwards brokers' requests to the daemon, and all others to a broker.
    """
    name, ours, admin = "separate listener", ctx.settings.brokers, ctx.settings.admin
    internal = {ours.inter_broker_listener, ours.control_plane_listener}
    shared = [b for b, broker in ctx.brokers.items() if not {e.listener for e in broker.endpoints} - internal]
    if not shared:
        return ok(name, f"clients have one besides {ours.inter_broker_listener}")
    shared_is_served = admin.listed and admin.client_listener in internal
    if shared_is_served and ctx.settings.security.protocol != "SSL":
        return ok(name, f"shared by clients and brokers: the admin endpoint answers on {admin.client_listener}")
    return refuse(
        name,
        f"broker {named(sorted(shared))} has one listener for clients and brokers",
        "its brokers are known by certificates alone, which the admin endpoint does not see: give brokers a second one"
        if shared_is_served
        else f"set admin.client_listener to {ours.inter_broker_listener}, so that the admin endpoint answers both, or "
        "give brokers a second one: listeners=CLIENT://...,INTERNAL://... and inter.broker.listener.name=INTERNAL",
    )


async def client_listener(ctx: Context) -> Finding:
    """Checks that every broker has the listener on which clients find the admin endpoint."""
    name, admin = "client listener", ctx.settings.admin
    if not admin.listed:
        return ok(name, "not used: admin.listed is false")
    without = sorted(b for b, broker in ctx.brokers.items() if broker.endpoint(admin.client_listener) is None)
    if not without:
        return ok(name, admin.client_listener)
    remedy = (
        "set admin.client_listener to the brokers' listener that clients use, or admin.listed = false where tools and "
        "applications need no controller"
    )
    text = f"broker {named(without)} has no listener {admin.client_listener}: its clients would find no controller"
    return (refuse if len(without) == len(ctx.brokers) else warn)(name, text, remedy)


async def listener_protocol(ctx: Context) -> Finding:
    """Checks that every broker's listener has the security protocol of the settings."""
    name, ours = "listener protocol", ctx.settings.security.protocol
    others = [
        f"{b} ({PROTOCOL_NAMES[endpoint.security_protocol]})"
        for b, broker in ctx.brokers.items()
        if (endpoint := control_endpoint(ctx.settings, broker)) is not None
        and endpoint.security_protocol != PROTOCOLS[ours]
    ]
    if others:
        return refuse(
            name,
            f"security.protocol is {ours}; different is the inter-broker listener of broker {named(others)}",
            "set security.protocol, and its keys in [security], as the brokers have it",
        )
    return ok(name, ours)


async def own_address(ctx: Context) -> Finding:
    """Checks, from this machine, the address at which brokers must reach the daemon."""
    name, listener = "own address", ctx.settings.listener
    host, port = listener.advertised_host, listener.advertised_port or listener.port
    addresses = await _resolved(host)
    if not addresses:
        return refuse(name, f"listener.advertised_host {host} cannot be resolved", "give a name or address that can")
    distant = [b for b, broker in ctx.brokers.items() if not await _is_here(ctx, broker)]
    if distant and all(ipaddress.ip_address(address).is_loopback for address in addresses):
        return refuse(
            name,
            f"listener.advertised_host {host} is this machine's loopback, and broker {named(distant)} is elsewhere",
            "give a name or address under which the brokers reach this machine",
        )
    if not port:
        return ok(name, f"{host}, on a free port")
    runs_here = any(of_these_settings(ctx.settings, process) for process in ctx.daemons)
    if not ctx.own_listener and not runs_here:
        return warn(
            name,
            f"{host}:{port} was not tried: no daemon with the id {ctx.settings.controller.id} and this address runs",
            "start 'regent run' and try again",
        )
    if not await _accepts(host, port):
        return refuse(
            name,
            f"nothing answers at {host}:{port}, the daemon's own address",
            "fix listener.advertised_host and listener.advertised_port, or the network between here and there",
        )
    return ok(name, f"{host}:{port} answers from here")


async def _is_here(ctx: Context, broker: Broker) -> bool:
    endpoint = control_endpoint(ctx.settings, broker) or next(iter(broker.endpoints), None)
    addresses = await _resolved(endpoint.host) if endpoint is not None else []
    return any(ipaddress.ip_address(address).is_loopback for address in addresses)


async def _resolved(host: str) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({str(address[0]).partition("%")[0] for *_, address in found})


async def _accepts(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(OWN_RESPONSE_S_MAX):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
