"""Checks the files that the settings name: opens them as the daemon and the admin endpoint do at their start."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from configs.daemon_user import daemon_user
from configs.settings import Settings, shown, value_of

MADE_AT_START: Final = ("admin.secret_file",)
"""Keys of files that the first process in need of them creates."""


def unusable(settings: Settings, names: Iterable[str]) -> list[str]:
    """Returns a sentence for each file under the keys ``names`` that this user cannot read.

    If all are readable, returns one for each of :data:`CHECKS` that fails.
    """
    files = {name: value_of(settings, name) for name in names if name.endswith("_file")}
    causes = {name: _unreadable(name, path) for name, path in files.items() if path is not None}
    unreadable = [f"{name} = {files[name]}: {why}" for name, why in causes.items() if why]
    return unreadable or [why for check in CHECKS if (why := check(settings))]


def _unreadable(name: str, path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except FileNotFoundError:
        return None if name in MADE_AT_START else "there is no such file"
    except OSError as error:
        return f"it cannot be read by this user ({error.strerror})"
    return None


# imports stand inside the functions, so that `regent --help` stays quick


def _check_brokers(settings: Settings) -> str | None:
    from brokers.security.access import access_of

    return _failure("security", lambda: access_of(settings.security))


def _check_endpoint_tls(settings: Settings) -> str | None:
    from admin.streams import endpoint_tls

    return _failure("admin", lambda: endpoint_tls(settings))


def _check_zookeeper_tls(settings: Settings) -> str | None:
    from controller.process.zookeeper import tls_of

    tls = tls_of(settings.zookeeper)
    return None if tls is None else _failure("zookeeper", tls.context)


def _check_http(settings: Settings) -> str | None:
    from controller.http.tcp import credentials_of

    user = daemon_user(settings.state.directory)
    return _failure("http", lambda: credentials_of(settings.http, user)) if settings.http.address else None


def _check_shared_secret(settings: Settings) -> str | None:
    from brokers.security.shared_secret import secret_trouble

    trouble = secret_trouble(settings.secret_file, daemon_user(settings.state.directory))
    return f"[admin]: {trouble}" if trouble else None


def _check_regions(settings: Settings) -> str | None:
    from brokers.regions.secret import regions_secrets

    wanted = settings.regions
    return _failure("regions", lambda: regions_secrets(wanted.secret_file, wanted.clients_secret_file))


def _check_fence_command(settings: Settings) -> str | None:
    command = settings.regions.fence_command
    if command is None or (Path(command[0]).is_file() and os.access(command[0], os.X_OK)):
        return None
    return f"regions.fence_command = {shown(command)}: this user cannot run {command[0]}: install it with mode 755"


def _failure(section: str, use: Callable[[], object]) -> str | None:
    from brokers.security.authentication import SecurityUnusable

    try:
        use()
    except (OSError, SecurityUnusable) as error:
        return f"[{section}]: {error}"
    return None


CHECKS: Final = (
    _check_brokers,
    _check_shared_secret,
    _check_endpoint_tls,
    _check_zookeeper_tls,
    _check_http,
    _check_regions,
    _check_fence_command,
)
