"""Keeps snapshots: files of regions as they were at one moment, ``snapshots/IDENTITY/REGION/TOKEN.sqlite``.

``IDENTITY`` is what regent sends: name and id, so that a discard that comes late finds no later snapshot of the same
name. A folder with the name alone is of a regent before ids.

A file of a region is never changed in place, so a second name for it is a copy. ``TOKEN`` is that of the owner that
made it: one that was frozen spoils nothing of a later one. A copy refers to no other region.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from pathlib import Path
from urllib.parse import quote

from examples.kv import files


def stage(data: Path, identity: str, region: int, token: int, file: Path) -> None:
    """Copies a file of a region into a snapshot, durably; a copy by the same owner before is replaced."""
    copy = _folder(data, identity) / str(region) / f"{token:020}.sqlite"
    for folder in reversed(copy.parents[:3]):
        files.make_folder(folder)
    temporary = copy.with_suffix(f".{secrets.token_hex(8)}.tmp")
    temporary.hardlink_to(file)
    temporary.replace(copy)
    temporary.unlink(missing_ok=True)  # where both were names of one file already
    files.sync(copy.parent)


def unstage(data: Path, identity: str, region: int) -> None:
    """Deletes a region's copies from a snapshot, and the folder of a snapshot that has none left."""
    folder = _folder(data, identity)
    _delete(folder / str(region))
    with contextlib.suppress(OSError):  # it has other regions, or is gone
        folder.rmdir()


def discard(data: Path, identity: str) -> None:
    """Deletes a snapshot; it may have been begun before."""
    _delete(_folder(data, identity))


def file_of(data: Path, identity: str, region: int, token: int) -> Path:
    """Returns the latest copy of a region by an owner up to ``token``; raises FileNotFoundError."""
    newest = _folder(data, identity) / str(region) / f"{token:020}.sqlite"
    found = [path for path in newest.parent.glob("*.sqlite") if path.name <= newest.name]
    return max(found, default=newest)


def _delete(folder: Path) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)
        files.sync(folder.parent)


def _folder(data: Path, identity: str) -> Path:
    return data / "snapshots" / quote(identity, safe="").replace(".", "%2E")
