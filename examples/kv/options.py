"""Adds the options that servers and clients share: where regent's daemons are."""

from __future__ import annotations

import argparse

from regent_agent.connection import Address


def add_daemons(parser: argparse.ArgumentParser) -> None:
    """Adds ``--daemons`` and ``--secret``."""
    parser.add_argument(
        "--daemons", type=_addresses, required=True, help="host:port of regent's daemons, separated by commas"
    )
    parser.add_argument("--secret", default="", help="bearer token that the daemons want")


def _addresses(text: str) -> tuple[Address, ...]:
    pairs = [one.rpartition(":") for one in text.split(",")]
    return tuple((host, int(port)) for host, _, port in pairs)
