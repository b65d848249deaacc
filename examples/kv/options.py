"""Adds options: where regent's daemons are, for servers and clients, and how a server answers them."""

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


def add_transport(parser: argparse.ArgumentParser) -> None:
    """Adds ``--transport``, ``--zookeeper`` and ``--zookeeper-digest-file``."""
    parser.add_argument(
        "--transport",
        choices=("poll", "zookeeper"),
        default="poll",
        help="how this server answers: by reports, or by znodes, to daemons whose regions.transport is that, too",
    )
    parser.add_argument(
        "--zookeeper", type=_zookeeper, help="host:port of ZooKeeper servers, separated by commas, and the chroot"
    )
    parser.add_argument(
        "--zookeeper-digest-file",
        dest="digest",
        type=_digest,
        help="file with one line user:password, the identity of servers at ZooKeeper",
    )


def check_transport(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Ends the process where an option of the transport has no meaning, or is missing."""
    if options.transport == "zookeeper" and not options.zookeeper:
        parser.error("--transport zookeeper needs --zookeeper HOST:PORT")
    if options.transport == "poll" and (options.zookeeper or options.digest):
        parser.error("--zookeeper and --zookeeper-digest-file are for --transport zookeeper")


def _zookeeper(text: str) -> str:
    for server in text.partition("/")[0].split(","):
        host, _, port = server.rpartition(":")
        if not (host and port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
            raise argparse.ArgumentTypeError(f"{server!r} in {text!r} is not HOST:PORT")
    return text


def _digest(path: str) -> str:
    found = _secret(path)
    if not all(found.partition(":")):
        raise argparse.ArgumentTypeError(f"{path} is not one line user:password")
    return found


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
