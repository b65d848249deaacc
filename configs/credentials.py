"""Credentials in files: named by a key, handed over by systemd, or, for root by hand, where systemd has them from."""

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
"""Sections and keys that hold ``user:password``; the systemd credential of one is both, with dashes."""

GIVEN_SECRET: Final = "admin-secret"  # noqa: S105  # a name
"""The systemd credential of an admin endpoint that holds what ``admin.secret_file`` does."""

HANDED_OVER: Final = "CREDENTIALS_DIRECTORY"
STORE: Final = Path("/etc/credstore")
"""Where systemd finds what it hands over; it is root's alone."""

S = TypeVar("S", bound=Section)


def with_credential(
    section: str, key: str, found: S, origins: dict[str, str], environ: Mapping[str, str]
) -> tuple[S, list[Problem]]:
    """Reads the credentials' file into ``key``, so that nobody else has to."""
    path, name = getattr(found, f"{key}_file"), f"{section}.{key}_file"
    if getattr(found, key):
        both = Problem(
            name, shown(path), origins.get(name, ""), f"is given beside {section}.{key}", "remove one of the two"
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
    """The name that systemd knows it by."""
    return f"{section}-{key}".replace("_", "-")


def systemd_credential(name: str, environ: Mapping[str, str]) -> Path | None:
    """The file with that credential, None where there is none.

    A command that is run by hand is handed nothing over: it takes what its user may read in the store.
    """
    if folder := environ.get(HANDED_OVER):
        path = Path(folder, name)
        return path if path.is_file() else None
    path = STORE / name
    return path if os.access(path, os.R_OK, effective_ids=True) and path.is_file() else None
