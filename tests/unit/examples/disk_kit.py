"""Watches each step on files: runs a hook there, and makes the folder that a crash at this step would leave."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.kv.logs import MARKER


class Disk:
    """Calls ``hook`` before and after each step on files. Writes are done in two halves, so that records tear."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.hook: Callable[[], None] = lambda: None
        self.steps = 0
        self._patch = patch
        self._silent = False
        self._kept: list[int] = []  # open files, so that the number of an inode is never used again
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        for place, name in ((os, "replace"), (os, "unlink"), (os, "mkdir"), (os, "listdir"), (Path, "read_bytes")):
            self._around(place, name)
        self._around(os, "open", lambda _, flags, *rest, **named: bool(flags & os.O_CREAT), self._keep)
        self._around(os, "stat", lambda path, *rest, **named: str(path).endswith(MARKER))
        self._around(os, "fsync", then=self._synced)
        self._halve_writes()

    def close(self) -> None:
        for handle in self._kept:
            os.close(handle)

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Calls no hooks, and takes no notice of what is synced."""
        before, self._silent = self._silent, True
        try:
            yield
        finally:
            self._silent = before

    def killed(self, image: Path) -> None:
        """Makes the folder that is left where all processes are killed."""
        shutil.copytree(self.root, image)

    def without_power(self, image: Path) -> None:
        """Makes the folder that is left at the worst where the machine fails: only what was synced."""
        self._restore(self.root.stat().st_ino, image)

    def _restore(self, folder: int, image: Path) -> None:
        image.mkdir()
        for name, inode in self._names.get(folder, {}).items():
            if inode < 0:
                self._restore(-inode, image / name)
            else:
                (image / name).write_bytes(self._contents.get(inode, b""))

    def _step(self) -> None:
        if not self._silent:
            self.steps += 1
            self.hook()

    def _around(
        self,
        place: Any,
        name: str,
        wanted: Callable[..., bool] | None = None,
        then: Callable[[int], None] | None = None,
    ) -> None:
        real = getattr(place, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            if self._silent or (wanted and not wanted(*arguments, **named)):
                return real(*arguments, **named)
            self._step()
            result = real(*arguments, **named)
            if then is not None:
                with self.silent():
                    then(arguments[0] if result is None else result)
            self._step()
            return result

        self._patch.setattr(place, name, watched)

    def _halve_writes(self) -> None:
        real = os.write

        def halved(handle: int, data: bytes) -> int:
            if self._silent:
                return real(handle, data)
            self._step()
            written = real(handle, data[: len(data) // 2 + 1])
            self._step()
            return written

        self._patch.setattr(os, "write", halved)

    def _keep(self, handle: int) -> None:
        self._kept.append(os.dup(handle))

    def _synced(self, handle: int) -> None:
        found = os.fstat(handle)
        self._keep(handle)
        if stat.S_ISDIR(found.st_mode):
            self._names[found.st_ino] = {
                name: -inode.st_ino if stat.S_ISDIR(inode.st_mode) else inode.st_ino
                for name in os.listdir(handle)
                for inode in [os.stat(name, dir_fd=handle)]
            }
        else:
            self._contents[found.st_ino] = Path(f"/proc/self/fd/{handle}").read_bytes()
