"""Checks settings that security advises against (:mod:`configs.advice`)."""

from __future__ import annotations

from brokers.security.shared_secret import secret_trouble
from configs.advice import advice
from configs.daemon_user import daemon_user
from controller.daemon.preflight.context import Context
from controller.daemon.preflight.finding import Finding, ok, warn


async def exposure(ctx: Context) -> Finding:
    """Checks files with secrets, passwords on the wire, and the admin endpoint's identity at ZooKeeper."""
    trouble = secret_trouble(ctx.settings.secret_file, daemon_user(ctx.settings.state.directory))
    found = [*advice(ctx.settings), *([f"{trouble}; without it Kafka's tools find no controller"] if trouble else [])]
    if not found:
        return ok("secrets", "no file of a secret is open to others, no password crosses the network in plain text")
    return warn("secrets", "; ".join(found), "repair what it names")
