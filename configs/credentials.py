"""Reads credentials from files: named by a key, passed by systemd, or, for root by hand, in systemd's own store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

from pydantic import SecretStr

from configs.problems import Problem
from configs.sections import Section
from configs.settings import shown
from configs.values import check_digest

CREDENTIALS: Final = (
    ("zookeeper", "digest"), ("zookeeper", "sasl"), ("admin", "zookeeper_digest"), ("admin", "zookeeper_sasl"),
)  # fmt: skip
"""Sections and keys that hold ``user:password``; section and key, joined by dashes, name the systemd credential."""

GIVEN_SECRET: Final = "admin-secret"  # noqa: S105  # a name
"""The systemd credential of an admin endpoint with the content of ``admin.secret_file``."""

HANDED_OVER: Final = "CREDENTIALS_DIRECTORY"
STORE: Final = Path("/etc/credstore")
"""The directory from which systemd passes credentials; only root may read it."""

S = TypeVar("S", bound=Section)


def with_credential(
    section: str, key: str, found: S, origins: dict[str, str], environ: Mapping[str, str]
) -> tuple[S, list[Problem]]:
    """Reads the credentials' file into ``key``, so that no other module opens it."""
    path, name = getattr(found, f"{key}_file"), f"{section}.{key}_file"
    if getattr(found, key):
        both = Problem(
            name, shown(path), origins.get(name, ""), f"is set beside {section}.{key}", "remove one of the two"
        )
        return found, [both] if path else []
    if path is None:
        path, name = systemd_credential(credential_name(section, key), environ), f"{section}.{key}"
    if path is None:
        return found, []
    try:
        secret = check_digest(SecretStr(path.read_text(encoding="utf-8").strip()))
    except (OSError, ValueError) as error:
        why = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else "holds something else"
        remedy = "the file must hold one line user:password and be readable by the daemon's user"
        return found, [Problem(name, shown(path), origins.get(name, "systemd credential"), why, remedy)]
    origins[f"{section}.{key}"] = f"file {path}"
    return found.model_copy(update={key: secret}), []


def credential_name(section: str, key: str) -> str:
    """Returns the name of the systemd credential for a key."""
    return f"{section}-{key}".replace("_", "-")


def systemd_credential(name: str, environ: Mapping[str, str]) -> Path | None:
    """Returns the file with that credential, None where there is none.

    systemd passes nothing to a command by hand: such a command uses those in the store that its user may read.
    """
    if folder := environ.get(HANDED_OVER):
        path = Path(folder, name)
        return path if path.is_file() else None
    path = STORE / name
    return path if os.access(path, os.R_OK, effective_ids=True) and path.is_file() else None
