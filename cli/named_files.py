"""Reads the files that the settings name, as the daemon and the admin endpoint do at their start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from configs.daemon_user import daemon_user
from configs.settings import Settings, value_of

MADE_AT_START: Final = ("admin.secret_file",)
"""Files that the first process creates that needs them."""


def unusable(settings: Settings, names: Iterable[str]) -> list[str]:
    """Returns a sentence with key, path and cause for each file of ``names`` that cannot be used by this user."""
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


def _between_brokers(settings: Settings) -> str | None:
    from brokers.security.access import access_of

    return _refused("security", lambda: access_of(settings.security))


def _towards_clients(settings: Settings) -> str | None:
    from admin.endpoint_tls import endpoint_tls

    return _refused("admin", lambda: endpoint_tls(settings))


def _towards_zookeeper(settings: Settings) -> str | None:
    from controller.process.zookeeper_tls import tls_of

    tls = tls_of(settings.zookeeper)
    return None if tls is None else _refused("zookeeper", tls.context)


def _over_tcp(settings: Settings) -> str | None:
    from controller.http.tcp import credentials_of

    user = daemon_user(settings.state.directory)
    return _refused("http", lambda: credentials_of(settings.http, user)) if settings.http.address else None


def _between_daemon_and_endpoint(settings: Settings) -> str | None:
    from brokers.security.shared_secret import secret_trouble

    trouble = secret_trouble(settings.secret_file, daemon_user(settings.state.directory))
    return f"[admin]: {trouble}" if trouble else None


def _refused(section: str, use: Callable[[], object]) -> str | None:
    from brokers.security.users import SecurityUnusable

    try:
        use()
    except (OSError, SecurityUnusable) as error:
        return f"[{section}]: {error}"
    return None


CHECKS: Final = (_between_brokers, _between_daemon_and_endpoint, _towards_clients, _towards_zookeeper, _over_tcp)
