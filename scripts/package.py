"""Builds sdist and wheel into dist/ and proves the wheel: installed alone, all its modules can be imported.

It does the same for the agent, which services install. A wheel is built from the unpacked sdist, so a missing file is
noticed. Nothing is downloaded: dependencies come from the environment that runs this script.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
IMPORT_ALL = """
import importlib, pathlib, sys
home = pathlib.Path(sys.prefix).resolve()
names, left_out = sys.stdin.read().split(), 0
for name in names:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in %r:
            raise
        left_out += 1
        continue
    assert home in pathlib.Path(module.__file__).resolve().parents, f"{name} came from {module.__file__}"
note = f"; {left_out} others need an extra that is not here" if left_out else ""
print(f"package: {len(names) - left_out} modules imported from the installed wheel{note}")
"""
NAME = re.compile(r"[A-Za-z0-9_]+")


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(DIST), cwd=ROOT)
        with tarfile.open(only(DIST.glob("*.tar.gz"))) as archive:
            archive.extractall(folder)  # this script has just made the archive; `filter` came with Python 3.11.4
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(DIST), cwd=only(folder.iterdir()))
        prove(only(DIST.glob("*.whl")), folder / "venv")
        run(str(folder / "venv" / "bin" / "regent"), "--help", cwd=folder, quiet=True)
        run(sys.executable, "-m", "hatchling", "build", "-d", str(DIST), cwd=ROOT / "regent_agent")
        prove(only(DIST.glob("regent_agent-*.whl")), folder / "agent")
    print(f"package: {', '.join(sorted(file.name for file in DIST.iterdir()))}")


def prove(wheel: Path, home: Path) -> None:
    """Installs the wheel into an environment with this one's dependencies, but without the work tree."""
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index", str(wheel))
    site = only((home / "lib").glob("python*/site-packages"))
    # A plain path entry: .pth files over there, such as that of the editable install, are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(str(python), "-I", "-c", IMPORT_ALL % (packages_of_extras(),), cwd=home, given="\n".join(modules(wheel)))


def packages_of_extras() -> tuple[str, ...]:
    """Returns the packages that only the modules of an extra import, so that the environment need not have them."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = (NAME.match(requirement) for wanted in extras.values() for requirement in wanted)
    return tuple(sorted({name.group() for name in found if name}))


def modules(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if name.endswith(".py")]
    return [file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in files]


def only(found: Iterable[Path]) -> Path:
    (path,) = found
    return path


def run(*command: str, cwd: Path = ROOT, given: str = "", quiet: bool = False) -> None:
    out = subprocess.DEVNULL if quiet else None
    ran = subprocess.run(command, cwd=cwd, input=given, text=True, check=False, stdout=out)
    if ran.returncode != 0:
        raise SystemExit(f"package: {Path(command[0]).name} {' '.join(command[1:3])} failed, its message stands above")


if __name__ == "__main__":
    main()
