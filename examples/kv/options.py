"""Adds the options that servers and clients share: where regent's daemons are."""

from __future__ import annotations

import argparse
from pathlib import Path

from regent_agent.connection import Address


def add_daemons(parser: argparse.ArgumentParser) -> None:
    """Adds ``--daemons``, ``--secret-file`` and ``--secret``."""
    parser.add_argument(
        "--daemons", type=_addresses, required=True, help="host:port of regent's daemons, separated by commas"
    )
    secrets = parser.add_mutually_exclusive_group()
    secrets.add_argument(
        "--secret-file",
        dest="secret",
        type=_secret,
        default=argparse.SUPPRESS,
        help="file with the secret that the daemons want",
    )
    secrets.add_argument("--secret", default="", help="the secret itself, which other users of the machine see")


def _secret(path: str) -> str:
    """Reads a secret: the first line of the daemon's file, whose second one is of use while both are replaced."""
    try:
        found = Path(path).read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{path} cannot be read: {error}") from error
    if not found:
        raise argparse.ArgumentTypeError(f"{path} has no first line: write the secret into it")
    return found


def _addresses(text: str) -> tuple[Address, ...]:
    pairs = [one.rpartition(":") for one in text.split(",")]
    for host, _, port in pairs:
        if not host or not (port.isascii() and port.isdigit()):
            raise argparse.ArgumentTypeError(f"{text!r}: write host:port, for instance 127.0.0.1:9190,127.0.0.1:9191")
    return tuple((host, int(port)) for host, _, port in pairs)
