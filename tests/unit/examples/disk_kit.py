"""Watches each step on files, and runs the owners of one region and its heirs: alive, frozen and fenced ones."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from examples.kv import logs, regions
from examples.kv.content import Content
from examples.kv.logs import MARKER
from examples.kv.memory import Region
from examples.kv.records import Edit, encode
from examples.kv.writer import Fenced, Segments
from regent_agent.protocol import Source
from regent_agent.service import OpenedRegion
from tests.kit.examples.processes import region


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
        for name in ("replace", "unlink", "rmdir", "mkdir", "listdir"):
            self._around(os, name)
        self._around(Path, "read_bytes")
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


REGION = 7
NAME = "kv"
SEGMENT_BYTES = 120
"""Three or four edits."""
LATER = 1_000_000
"""Token of an owner after all others."""


class Process:
    """One process with its log. ``busy``: its thread for the log is at work, perhaps frozen there."""

    def __init__(self, root: Path, incarnation: int) -> None:
        self.incarnation = incarnation
        self.segments = Segments(root, NAME, incarnation, SEGMENT_BYTES)
        self.regions: list[Region] = []
        self.busy = False
        self.ended = False


class Owner:
    """An owner of the region: what it opened with, all that it put, and how much of that it acknowledged."""

    def __init__(self, process: Process, opened: OpenedRegion, content: Content) -> None:
        self.process, self.token = process, opened.token
        self.opened_with = values(content)
        self.region = Region(opened, content)
        process.regions.append(self.region)
        self.edits: list[Edit] = []
        self.written = 0
        self.acknowledged = 0
        self.survived: int | None = None
        """How many of its edits the next owner has."""
        self.flushing = False
        self.closing = False

    def after(self, count: int) -> dict[bytes, bytes]:
        """Returns the region's content after the first edits."""
        return self.opened_with | {edit.key: edit.value for edit in self.edits[:count]}

    def kept(self, content: Content) -> int:
        """Returns how many of the edits are in the content, which must be the first ones and all acknowledged ones."""
        for count in range(self.acknowledged, len(self.edits) + 1):
            if self.after(count) == values(content):
                return count
        raise AssertionError(
            f"{values(content)} of {self.edits}, {self.acknowledged} acknowledged, upon {self.opened_with}"
        )


class Opening(NamedTuple):
    """An open that the daemon has sent to a process, ``before``: to follow this owner."""

    process: Process
    region: OpenedRegion
    before: Owner | None


class Owners:
    """Acts as the daemon and as all processes. ``current``: the owner that the daemon knows.

    The region gets an heir with the same keys again and again.
    """

    def __init__(self, disk: Disk, images: Path) -> None:
        self._disk, self._images = disk, images
        self._numbers = itertools.count(1)
        self._opening: list[Opening] = []
        self._late: list[Opening] = []
        self._region = region(0, REGION)
        self.fenced: list[int] = []
        self.all: list[Owner] = []
        self.current: Owner | None = None
        self._open(self._dispatch(Process(disk.root, next(self._numbers))))

    # -- the processes

    def put(self, owner: Owner, key: bytes) -> None:
        if not owner.closing:
            value = f"{owner.token}.{len(owner.edits)}".encode()
            owner.edits.append(owner.region.put(key, value, owner.process.segments.number))

    def write(self, owner: Owner) -> None:
        """Writes the owner's edits to the log, and acknowledges them unless the process is fenced."""
        process = owner.process
        if process.busy or process.ended:
            return
        process.busy, count = True, len(owner.edits)
        try:
            process.segments.write(b"".join(map(encode, owner.edits[owner.written : count])))
        except Fenced:
            assert process.incarnation in self.fenced
            process.ended = True
            return
        finally:
            process.busy = False
            owner.written = count
        owner.acknowledged = max(owner.acknowledged, count)
        assert owner.survived is None or owner.acknowledged <= owner.survived, "acknowledged what the next owner lacks"

    def flush(self, owner: Owner, *, whole: bool = False) -> None:
        """Writes the owner's file, unless a flush is frozen; one that was fenced may do it as well."""
        if owner.flushing or not (owner.region.unflushed_from or (whole and owner.region.sources)):
            return
        owner.flushing = True
        content = owner.region.begin_flush(owner.process.segments.number, whole=whole)
        try:
            regions.save(self._disk.root, owner.region.number, owner.token, content)
        except FileNotFoundError:
            assert owner is not self.current, "the next owner deletes the temporary file of one before"
        else:
            owner.region.end_flush(content)
        finally:
            owner.flushing = False

    def trim(self, owner: Owner) -> None:
        """Deletes the segments whose edits are in files."""
        process = owner.process
        if not process.busy:
            process.busy = True
            kept = [region.unflushed_from for region in process.regions if region.unflushed_from]
            process.segments.delete_below(min(kept, default=process.segments.number))
            process.busy = False

    def compact(self, owner: Owner) -> None:
        """Writes the owner's file so that it refers to nothing; the daemon then has the region's sources discarded."""
        if owner.closing:
            return
        self.flush(owner, whole=True)
        is_known = owner.token == self._region.token and owner.process.incarnation not in self.fenced
        if is_known and not owner.region.sources:
            sources, self._region = self._region.sources, replace(self._region, sources=())
            for source in sources:
                with contextlib.suppress(OSError):  # a log is split into the folder; the daemon has it done again
                    regions.discard(self._disk.root, source.region)

    # -- the daemon

    def inherit(self) -> None:
        """Closes the region, and opens one that has its keys."""
        if self._region.sources or (opening := self._closed(same_process=False)) is None:
            return
        self._opening.remove(opening)
        assert self.current is not None
        parent = Source(self._region.region, b"", b"", self.current.token, self._region.sequence)
        self._region = replace(self._region, region=parent.region + 1, sources=(parent,))
        self._open(self._dispatch(opening.process))

    def move(self, same_process: bool) -> None:
        """Closes the region and opens it elsewhere; nothing more where the close is frozen, and the daemon goes on."""
        if (opening := self._closed(same_process)) is not None:
            self._open(opening)

    def move_late(self) -> None:
        """Closes the region and has it opened by a process that freezes before it begins."""
        if (opening := self._closed(same_process=False)) is not None:
            self._late.append(opening)

    def wake(self) -> None:
        """Lets the process go on that is to open the region, even if others have opened it since."""
        if self._late:
            self._open(self._late.pop())

    def take_over(self) -> None:
        """Fences the current owner and those that open at this moment, splits their logs, and opens the region."""
        owner = self.current
        assert owner is not None
        for process in (owner.process, *(opening.process for opening in self._opening)):
            self.fence_and_split(process.incarnation)
        starting = Process(self._disk.root, next(self._numbers))
        if owner is self.current:
            self._open(self._dispatch(starting))

    def _closed(self, same_process: bool) -> Opening | None:
        owner = self.current
        assert owner is not None
        if owner.closing or owner.flushing or owner.process.incarnation in self.fenced:
            return None
        owner.closing = True
        self.flush(owner)
        process = owner.process if same_process else Process(self._disk.root, next(self._numbers))
        return self._dispatch(process) if owner is self.current else None

    def _dispatch(self, process: Process) -> Opening:
        self._region = replace(self._region, token=next(self._numbers))
        opening = Opening(process, self._region, self.current)
        self._opening.append(opening)
        return opening

    def fence_and_split(self, incarnation: int) -> None:
        self.fenced.append(incarnation)
        parts = logs.fence(self._disk.root, NAME, incarnation)
        before = self.current
        for part in parts:
            try:
                logs.split(self._disk.root, NAME, incarnation, part)
            except FileNotFoundError:
                assert self.current is not before, "a later owner deletes the temporary files of those before"

    def _open(self, opening: Opening) -> None:
        """Opens the region. Where the daemon had others do it meanwhile, what this process has does not matter."""
        try:
            content = regions.open_content(self._disk.root, opening.region)
        except (regions.StaleOwner, regions.Lost, FileNotFoundError):
            assert opening.region.token < self._region.token
            return
        finally:
            self._opening.remove(opening)
        owner = Owner(opening.process, opening.region, content)
        self.all.append(owner)
        if opening.region.token < self._region.token:
            owner.survived = 0
            return
        if opening.before is not None:
            opening.before.survived = opening.before.kept(content)
        assert content.sequence > self._region.sequence
        self.current, self._region = owner, replace(self._region, sequence=content.sequence)

    # -- the judge

    def judge_crash(self) -> None:
        """Recovers the region from what a crash at this moment leaves, of all processes or of the machine."""
        if self.current is None:
            return
        with self._disk.silent():
            for number, leave in enumerate((self._disk.killed, self._disk.without_power)):
                image = self._images / str(number)
                shutil.rmtree(image, ignore_errors=True)
                leave(image)
                self.current.kept(recover(image, self._region))


def values(content: Content) -> dict[bytes, bytes]:
    return {key: entry.value for key, entry in content.entries.items()}


def recover(data: Path, region: OpenedRegion) -> Content:
    """Opens the region once all processes are fenced and their logs are split."""
    for folder in sorted((data / "logs").iterdir()):
        server, _, incarnation = folder.name.partition(",")
        for part in logs.fence(data, server, int(incarnation)):
            logs.split(data, server, int(incarnation), part)
    return regions.open_content(data, replace(region, token=LATER))
