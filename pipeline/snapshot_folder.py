"""Finds snapshots in a folder, such as that of a daemon: all of them, or the newest one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pipeline.inputs import BadInput
from pipeline.snapshot_file import read_header

SNAPSHOTS_MAX: Final = 1_000
"""Snapshots that one command reads."""
ENDINGS: Final = (".jsonl", ".jsonl.gz")


def snapshots_of(given: Path) -> list[Path]:
    """Returns the snapshots of a folder by name, or the file that is given; raises :class:`BadInput` for none."""
    if not given.is_dir():
        return [given]
    try:
        inside = sorted(path for path in given.iterdir() if path.name.endswith(ENDINGS) and path.is_file())
    except OSError as error:
        raise BadInput(f"{given} cannot be read: {error.strerror or error}") from None
    if not inside:
        raise BadInput(f"{given} has no snapshots (*.jsonl.gz): name the folder 'snapshots' of a daemon, or a file")
    if len(inside) > SNAPSHOTS_MAX:
        raise BadInput(f"{given} has {len(inside)} snapshots, more than {SNAPSHOTS_MAX}: name a file of it")
    return inside


def newest_of(given: Path) -> Path:
    """Returns the newest snapshot of a folder by the time in its header, or the file that is given.

    Raises :class:`BadInput` where the folder has none, has those of several clusters, or where a header is torn.
    """
    if len(paths := snapshots_of(given)) == 1:
        return paths[0]
    headers = [(read_header(path), path) for path in paths]
    first = headers[0][0].cluster
    if other := next((path for header, path in headers if header.cluster != first), None):
        raise BadInput(f"{other} is of another cluster than {paths[0]}: name one file")
    return max(headers, key=lambda one: (one[0].ts_us, one[1].name))[1]
