"""Has the claim of a SQLite store of regions, for commands that work on its file without a daemon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.exit_codes import Exit, Failure
from metadata_store.records.claims import FileClaim, Locked, Other


@contextmanager
def claimed(path: Path, remedy: str) -> Iterator[None]:
    """Has the claim of a store, so that no daemon changes it. ``remedy``: where a daemon has it already."""
    try:
        claim = FileClaim(path)
    except Locked:
        other = Other(path)
        other.look()
        raise Failure(Exit.REFUSED, f"{other.holder} has {path}", remedy) from None
    except OSError as error:
        raise Failure(Exit.FAILED, f"no claim of {path}: {error}", "run the command as the daemon's user") from error
    try:
        yield
    finally:
        claim.release()
