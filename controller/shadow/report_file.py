"""The shadow's report on disk: its counts outlive the process."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

import msgspec

from controller.shadow.statistics import Report
from metadata_store.content import decoded

log = logging.getLogger("regent.shadow")

NAME: Final = "shadow-report.json"


def report_path(folder: Path) -> Path:
    """Returns the file in a daemon's ``state.directory``."""
    return folder / NAME


def load(path: Path) -> Report | None:
    """Reads the report of an earlier process; None without a readable one."""
    try:
        return decoded(path.read_bytes(), Report)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        log.warning(
            "whether the shadow has an earlier report %s is not known (%s), counting begins anew and is not saved. "
            "Remedy: give %s to the daemon's user (chown regent:regent)",
            path,
            error.strerror,
            path.parent,
        )
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("the shadow's earlier report %s cannot be read, counting begins anew: %s", path, error)
        return None


def save(path: Path, report: Report) -> None:
    """Replaces the file atomically; raises OSError and then leaves the old file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}-{os.getpid()}.tmp")
    try:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
