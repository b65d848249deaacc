"""Keeps the broker epochs at the start of a rolling restart in a file, for the later calls of a script."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from cli.exit_codes import Exit, Failure

if TYPE_CHECKING:
    from cli.client import Client

BROKERS_MAX: Final = 500
"""Brokers of one restart: the daemon reads no more of them in a query."""


def begun(client: Client, file: Path | None, chosen: Collection[int]) -> dict[int, int]:
    """Returns the broker epochs at the start: from the file where it exists, else the present ones.

    Writes them to the file where it does not exist. ``chosen``: the brokers to restart; empty for all registered ones.
    Raises :class:`Failure` where they do not fit, or the file is of another cluster.
    """
    cluster = str(client.get("/v1/cluster")["items"][0].get("clusterId", ""))
    if file is not None and file.exists():
        if chosen:
            message = f"{file} names the brokers of this restart already"
            raise Failure(Exit.USAGE, message, "leave the ids away, or name a new file by --since")
        return _read(file, cluster)
    found = {b["id"]: b["epoch"] for b in client.get("/v1/brokers")["items"] if b.get("epoch") is not None}
    absent = sorted(set(chosen) - found.keys())
    if absent:
        message = f"broker {', '.join(map(str, absent))} is not registered"
        raise Failure(Exit.REFUSED, message, "start it first, or leave its id away: 'regent list brokers' has them")
    since = {b: epoch for b, epoch in found.items() if not chosen or b in chosen}
    if len(since) > BROKERS_MAX:
        message = f"{len(since)} brokers are more than the {BROKERS_MAX} of one restart"
        raise Failure(Exit.USAGE, message, f"name at most {BROKERS_MAX} brokers")
    if file is not None:
        _write(file, cluster, since)
    return since


def _read(file: Path, cluster: str) -> dict[int, int]:
    try:
        body: Any = json.loads(file.read_text(encoding="utf-8"))
        since = {int(broker): int(epoch) for broker, epoch in body["brokers"].items()}
        of = str(body["clusterId"])
    except OSError as error:
        _unusable(file, f"cannot be read: {error.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError):
        _unusable(file, "does not hold the start of a restart")
    if of != cluster:
        _unusable(file, f"is of the cluster {of}, not of {cluster}")
    if not 0 < len(since) <= BROKERS_MAX or any(number < 0 for pair in since.items() for number in pair):
        _unusable(file, f"does not hold the ids and epochs of 1 to {BROKERS_MAX} brokers")
    return since


def _write(file: Path, cluster: str, since: dict[int, int]) -> None:
    """Writes the file at once: a call that is killed leaves the whole file or none."""
    body = {"clusterId": cluster, "brokers": {str(broker): epoch for broker, epoch in sorted(since.items())}}
    part = file.with_name(f"{file.name}.part")
    try:
        part.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
        part.replace(file)
    except OSError as error:
        raise Failure(
            Exit.FAILED, f"{file} cannot be written: {error.strerror}", "name a writable file by --since"
        ) from None


def _unusable(file: Path, why: str) -> NoReturn:
    raise Failure(Exit.USAGE, f"{file} {why}", "name the file of this restart by --since, or remove it to begin anew")
