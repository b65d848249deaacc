"""Reaches files by Arrow's file systems, on this machine and beyond; Spark gets the same file by :func:`for_spark`."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyarrow import fs

OTHER_NAMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
"""Schemes of Hadoop, by those of Arrow."""
KNOWN: Final = ("file", "hdfs", "viewfs", "s3", "gs", "abfs", "abfss")
"""Schemes that Arrow reads; ``hdfs`` needs Hadoop's client library (``libhdfs``) on all machines."""

HADOOP: Final = "; set JAVA_HOME, HADOOP_HOME and CLASSPATH (by 'hadoop classpath --glob') on driver and executors"
REMEDIES: Final = {"hdfs": HADOOP, "viewfs": HADOOP}
"""What is mostly missing where a store does not open."""
USUAL: Final = f"give a path, or one that begins with {':, '.join(KNOWN)}:"
INSTEAD: Final = {"dbfs": "give /dbfs/... instead", "wasb": "give abfs: instead", "wasbs": "give abfss: instead"}
"""Names for what Arrow reads under another one."""


class NothingToRead(Exception):
    """There is no such journal, or no such bronze folder, or it cannot be read; the message names it."""


def place(path: str) -> tuple[Any, str]:
    """Returns the file system of ``path`` and the path in it; one without a scheme is of this machine.

    Raises :class:`NothingToRead` for a scheme that Arrow does not read, or a store that it cannot reach.
    """
    scheme, colon, rest = path.partition(":")
    if not colon or "/" in scheme:
        return fs.LocalFileSystem(), str(Path(path).absolute())
    if scheme == "file":
        return fs.LocalFileSystem(), "/" + rest.lstrip("/")
    named = OTHER_NAMES.get(scheme, scheme)
    if named not in KNOWN:
        raise NothingToRead(f"{path}: {scheme}: is not read: {INSTEAD.get(scheme, USUAL)}")
    try:
        found, inside = fs.FileSystem.from_uri(f"{named}:{rest}")
    except (OSError, ValueError) as error:
        remedy = REMEDIES.get(named, "")
        raise NothingToRead(f"{path}: its store does not open: {first_line(error)}{remedy}") from None
    return found, inside


def for_spark(path: str) -> str:
    """Returns the path as Spark takes it: one of this machine with its scheme, whatever Spark's default is."""
    store, inside = place(path)
    return f"file:{inside}" if isinstance(store, fs.LocalFileSystem) else path


class Found(NamedTuple):
    """A file: its path, its bytes, and the time of its last change in seconds since 1970."""

    path: str
    size: int
    changed_s: float


def listed(folder: str, ending: str = "") -> list[tuple[str, int]]:
    """Lists the files of a folder that end so, with their bytes and in the order of their names; none without it.

    Hidden ones (their names begin with ``_`` or a dot) are left out. Raises :class:`NothingToRead` for what is no
    folder, or one that does not open.
    """
    return [(file.path, file.size) for file in found_in(folder, ending)]


def found_in(folder: str, ending: str = "") -> list[Found]:
    """Lists the same files as :func:`listed` with the times of their last change."""
    store, inside = place(folder)
    try:
        found = store.get_file_info(fs.FileSelector(inside, allow_not_found=True))
    except OSError as error:
        raise NothingToRead(f"{folder} cannot be listed as a folder: {first_line(error)}") from None
    files = [
        Found(f"{folder.rstrip('/')}/{each.base_name}", each.size, (each.mtime_ns or 0) / 1e9)
        for each in found
        if each.type == fs.FileType.File
    ]
    return sorted(file for file in files if _shown(file.path, ending))


def is_folder(path: str) -> bool:
    """Checks that there is such a folder."""
    store, inside = place(path)
    return bool(store.get_file_info(inside).type == fs.FileType.Directory)


def under(folder: str, inside: str = "") -> list[str]:
    """Lists files of a folder, hidden ones as well, by their paths in it: all below ``inside``, or those in itself."""
    store, root = place(folder)
    selector = fs.FileSelector(f"{root}/{inside}".rstrip("/"), recursive=bool(inside), allow_not_found=True)
    found = store.get_file_info(selector)
    return [each.path.removeprefix(f"{root}/") for each in found if each.type == fs.FileType.File]


def size_of(path: str) -> int | None:
    """Returns the bytes of a file; None where there is none."""
    store, inside = place(path)
    found = store.get_file_info(inside)
    return found.size if found.type == fs.FileType.File else None


def opened(path: str) -> Any:
    """Opens a file to read, at any place of it."""
    store, inside = place(path)
    return store.open_input_file(inside)


@contextmanager
def written(path: str, aside: str) -> Iterator[Any]:
    """Provides a stream into a file that is there only once it is whole.

    It is written beside its place, under a hidden name with ``aside``, which no other writer has. An error removes it.
    """
    store, inside = place(path)
    folder, _, name = inside.rpartition("/")
    store.create_dir(folder, recursive=True)
    hidden = f"{folder}/_{aside}-{name}"
    try:
        with store.open_output_stream(hidden) as stream:
            yield stream
        if not isinstance(store, fs.LocalFileSystem):
            _removed(store, inside)  # not all of them put a file in the place of another
        store.move(hidden, inside)
    except BaseException:
        _removed(store, hidden)
        raise


def remove(path: str) -> None:
    """Removes a file if it is there."""
    _removed(*place(path))


def move(path: str, to: str) -> None:
    """Moves a file to another place of the same store."""
    store, inside = place(path)
    store.move(inside, place(to)[1])


def remove_folder(path: str) -> None:
    """Removes a folder with all that is in it, if it is there."""
    store, inside = place(path)
    if store.get_file_info(inside).type == fs.FileType.Directory:
        store.delete_dir(inside)


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's text."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _removed(store: Any, inside: str) -> None:
    if store.get_file_info(inside).type == fs.FileType.File:
        with suppress(FileNotFoundError):  # another process may have removed it since
            store.delete_file(inside)


def _shown(path: str, ending: str) -> bool:
    return path.endswith(ending) and not path.rpartition("/")[2].startswith(("_", "."))


FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class CannotMerge(Exception):
    """A file cannot be read or written; the message names it, the cause, and the remedy."""


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Raises :class:`CannotMerge` about ``path`` for an error of the file system."""
    try:
        yield
    except OSError as error:
        raise CannotMerge(reason(error, path)) from None


def reason(error: OSError, path: str) -> str:
    """Words an error of a file system with its remedy."""
    if error.errno in FULL:
        return f"there is no room left to write {path}: free some, or name another folder, and run it again"
    return f"{path}: {first_line(error)}"


def write(path: str, run: str, content: bytes) -> None:
    """Writes a small file whole, or not at all. Raises :class:`CannotMerge`."""
    with writing(path), written(path, run) as stream:
        stream.write(content)


def discard(path: str) -> None:
    """Removes a file if it is there. Raises :class:`CannotMerge`."""
    with writing(path):
        remove(path)
